"""The worker pool, with a scripted worker in place of the compiler."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from aot.backends.aoti.backend import AotiBackend
from aot.backends.aoti.toolchain import Toolchain
from aot.build import pool
from aot.build.plan import PlannedUnit
from aot.build.pool import Workers, compile_all, default_jobs
from aot.build.result import UnitResult
from aot.cache import Cache, key_of
from aot.graphs.units import UnitSpec
from runtime.bundle.errors import ConfigError

BACKEND = AotiBackend(Toolchain("g++", "g++ 12", "x86-64-v3", (), "library", "2.13.0"))
NAMES = ("one", "two", "three", "four")


def planned(name: str) -> PlannedUnit:
    spec = UnitSpec(name, "target_embed", "float32", {}, (), ())
    factors = {"unit": json.dumps({"name": name, "dtype": "float32"})}
    return PlannedUnit(spec, key_of(factors), factors, hit=False, reason="never compiled here")


UNITS = tuple(planned(name) for name in NAMES)


class ScriptedWorkers:
    """Stands for `Workers.run`: writes a unit's files, or exits as it is told, and counts who runs together."""

    def __init__(self, exit_codes: dict[str, int]) -> None:
        self.exit_codes = exit_codes
        self.lock = threading.Lock()
        self.running = self.most = 0
        self.order: list[str] = []
        self.during: Callable[[str], None] = lambda name: time.sleep(0.05)

    def __call__(self, workers: Workers, job: dict[str, Any], out: Path, environment: dict[str, str]) -> int:
        name = job["unit"]["name"]
        with self.lock:
            self.order.append(name)
            self.running += 1
            self.most = max(self.most, self.running)
        self.during(name)
        code = self.exit_codes.get(name, 0)
        (out / "log.txt").write_text(f"log of {name}")
        (out / "peak.txt").write_text("123456")
        (out / "leftover").mkdir()
        if code == 0:
            (out / "unit.so").write_bytes(b"code")
            (out / "unit.json").write_text("{}")
        with self.lock:
            self.running -= 1
        return code


Scripted = Callable[..., ScriptedWorkers]


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    def install(**exit_codes: int) -> ScriptedWorkers:
        workers = ScriptedWorkers(exit_codes)
        monkeypatch.setattr(Workers, "run", lambda *arguments: workers(*arguments))
        return workers

    return install


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


@pytest.mark.parametrize("jobs", [1, 2, 4])
def test_jobs_bounds_how_many_compile_at_once(scripted: Scripted, cache: Cache, tmp_path: Path, jobs: int) -> None:
    workers = scripted()
    results = compile_all(UNITS, BACKEND, cache, tmp_path / "logs", jobs)
    assert sorted(result.name for result in results) == sorted(NAMES)
    assert workers.most == jobs
    assert all(cache.has(unit.key) for unit in UNITS)


def test_a_failure_is_reported_and_the_others_are_kept(scripted: Scripted, cache: Cache, tmp_path: Path) -> None:
    scripted(two=1, three=-signal.SIGKILL)
    results = {result.name: result for result in compile_all(UNITS, BACKEND, cache, tmp_path / "logs", 2)}
    assert {name: result.exit_code for name, result in results.items()} == {"one": 0, "two": 1, "three": -9, "four": 0}
    assert [cache.has(unit.key) for unit in UNITS] == [True, False, False, True]
    assert results["two"].log == tmp_path / "logs" / "two.log"
    assert results["two"].log.read_text() == "log of two"
    assert list((cache.root / "staging").iterdir()) == []


def test_a_unit_keeps_its_log_and_nothing_else_of_the_compile(scripted: Scripted, cache: Cache, tmp_path: Path) -> None:
    scripted()
    (result,) = compile_all(UNITS[:1], BACKEND, cache, tmp_path / "logs", 1)
    kept = {file.name for file in cache.entry(result.key).iterdir()}
    assert kept == {"unit.so", "unit.json", "factors.json", "log.txt", "sealed.json"}
    assert result.peak_bytes == 123456


def test_a_unit_that_another_build_compiled_meanwhile_is_taken(
    scripted: Scripted, cache: Cache, tmp_path: Path
) -> None:
    workers = scripted()
    compile_all(UNITS[:1], BACKEND, cache, tmp_path / "logs", 1)
    results = compile_all(UNITS[:2], BACKEND, cache, tmp_path / "logs", 1)
    assert {result.name: result.cached for result in results} == {"one": True, "two": False}
    assert workers.order == ["one", "two"]


def test_progress_names_each_unit_when_it_starts_and_ends(scripted: Scripted, cache: Cache, tmp_path: Path) -> None:
    scripted(two=1)
    heard: list[str] = []

    def finished(result: UnitResult) -> None:
        heard.append(f"{result.name} exit {result.exit_code}")

    compile_all(UNITS[:2], BACKEND, cache, tmp_path / "logs", 1, started=heard.append, finished=finished)
    assert sorted(heard) == ["one", "one exit 0", "two", "two exit 1"]


def test_an_interrupt_stops_the_workers_and_starts_no_other(
    scripted: Scripted, cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = scripted()
    stopped: list[bool] = []
    monkeypatch.setattr(Workers, "stop", lambda self: stopped.append(True))

    def interrupt(name: str) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.5)

    workers.during = interrupt
    with pytest.raises(KeyboardInterrupt):
        compile_all(UNITS, BACKEND, cache, tmp_path / "logs", 1)
    assert stopped == [True]
    assert len(workers.order) == 1


def test_compiles_that_are_in_vain_are_ended(
    scripted: Scripted, cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N1: weights that are refused end the build, and not only once everything is compiled."""
    workers, weights, stopped = scripted(), Future[None](), threading.Event()
    monkeypatch.setattr(Workers, "stop", lambda self: stopped.set())

    def compile_until_stopped(name: str) -> None:
        weights.set_exception(ConfigError("lm_head.weight holds 3 numbers that are not finite"))
        assert stopped.wait(60)

    workers.during = compile_until_stopped
    with pytest.raises(ConfigError, match="not finite"):
        compile_all(UNITS, BACKEND, cache, tmp_path / "logs", 1, beside=weights)
    assert len(workers.order) == 1


@pytest.mark.parametrize(
    ("cores", "free", "largest", "jobs"),
    [
        (8, 64 << 30, 1 << 20, 8),
        (8, 3 << 30, 1 << 20, 2),
        (8, 64 << 30, 4 << 30, 3),  # 1 GiB and four times the unit's weights each
        (2, 100 << 20, 1 << 20, 1),  # never none
    ],
)
def test_default_jobs_fit_cores_and_memory(
    monkeypatch: pytest.MonkeyPatch, cores: int, free: int, largest: int, jobs: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)), raising=False)
    monkeypatch.setattr(pool, "free_memory", lambda: free)
    assert default_jobs(largest) == jobs
