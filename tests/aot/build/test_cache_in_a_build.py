"""A build and its cache: what is told, what is compiled once, and what a cache that cannot be written is good for."""

from __future__ import annotations

import errno
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aot import cli
from aot.backends.aoti.backend import AotiBackend
from aot.backends.aoti.toolchain import Toolchain
from aot.build import run
from aot.build.assemble import BUILD_RECORD, place_units, publish
from aot.build.models import read_models
from aot.build.plan import Plan, make_plan
from aot.build.pool import Workers, compile_all
from aot.build.store import WeightStore
from aot.build.turns import turn
from aot.cache import Cache, cache_root
from aot.checkpoint.source import resolve
from aot.config import load_config
from aot.report import PlainReporter, QuietReporter
from aot.seal import naming
from runtime.bundle.errors import CacheMissError, HostError

pytestmark = pytest.mark.timeout(60)

BACKEND = AotiBackend(Toolchain("g++", "g++ 12", "x86-64-v3", (), "library", "2.13.0"))
BUNDLE = json.dumps({"format_version": 0, "bundle_id": "x"})


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the units that the compiler was called for. It writes a file, and a bundle is its units alone."""
    names: list[str] = []

    def compile_unit(workers: Workers, job: dict[str, Any], out: Path, environment: dict[str, str]) -> int:
        names.append(job["unit"]["name"])
        (out / "log.txt").write_text("log")
        (out / "unit.so").write_bytes(b"code")
        (out / "unit.json").write_text('{"constants": []}')
        return 0

    def stage(plan: Plan, backend: AotiBackend, cache: Cache, staging: Path, *rest: object) -> str:
        place_units(plan, backend, cache, staging)
        (staging / "manifest.json").write_text(BUNDLE)
        return "the manifest"

    monkeypatch.setattr(Workers, "run", compile_unit)
    monkeypatch.setattr(run, "_load", lambda plan: (None, None))
    monkeypatch.setattr(run, "_stage", stage)
    return names


@pytest.fixture
def planned(tiny_config: Path) -> Callable[[Cache], Plan]:
    def plan(cache: Cache) -> Plan:
        config = load_config(tiny_config, ())
        return make_plan(config, config.base, read_models(config, weights=False), BACKEND, cache)

    return plan


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


@pytest.fixture
def full(cache: Cache, planned: Callable[[Cache], Plan], compiled: list[str], tmp_path: Path) -> Cache:
    """The cache with every unit."""
    compile_all(planned(cache).units, BACKEND, cache, tmp_path / "logs", 2)
    compiled.clear()
    return cache


def tree(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.lstat().st_mtime_ns, path.lstat().st_size) for path in folder.rglob("*")}


def test_p4_b4_a_build_tells_of_a_damaged_entry_and_compiles_it_anew(
    full: Cache, planned: Callable[[Cache], Plan], compiled: list[str], tmp_path: Path
) -> None:
    unit = planned(full).units[3]
    os.truncate(full.entry(unit.key) / "unit.so", 1)
    plan = planned(full)
    assert [miss.spec.name for miss in plan.misses] == [unit.spec.name]
    said: list[str] = []
    result = run.run_build(plan, BACKEND, full, tmp_path / "out", PlainReporter(said.append))
    assert compiled == [unit.spec.name]
    assert (result.compiled, result.cached) == (1, len(plan.units) - 1)
    (line,) = [line for line in said if unit.spec.name in line and "damaged" in line]
    assert "unit.so has 1 bytes in place of 4" in line
    assert planned(full).misses == ()


def test_p4_a_damaged_entry_is_told_under_frozen_too(
    full: Cache, planned: Callable[[Cache], Plan], compiled: list[str], tmp_path: Path
) -> None:
    (full.entry(planned(full).units[0].key) / "unit.so").unlink()
    said: list[str] = []
    with pytest.raises(CacheMissError):
        run.run_build(planned(full), BACKEND, full, tmp_path / "out", PlainReporter(said.append), frozen=True)
    assert compiled == []
    assert "unit.so is missing" in said[0]


def test_b14_a_cache_with_every_unit_is_only_read(
    full: Cache, planned: Callable[[Cache], Plan], compiled: list[str], tmp_path: Path
) -> None:
    """No lock, no folder, no scratch: it may lie on a medium that cannot be written."""
    for folder in ("locks", "staging", "inductor"):
        for file in sorted((full.root / folder).rglob("*"), reverse=True):
            file.rmdir() if file.is_dir() else file.unlink()
        (full.root / folder).rmdir()
    folders = [full.root, *(path for path in full.root.rglob("*") if path.is_dir())]
    before = tree(full.root)
    for folder in folders:
        folder.chmod(0o500)
    try:
        result = run.run_build(planned(full), BACKEND, full, tmp_path / "out", QuietReporter())
    finally:
        for folder in folders:
            folder.chmod(0o700)
    assert (result.compiled, compiled) == (0, [])
    assert (tmp_path / "out" / "manifest.json").is_file()
    assert tree(full.root) == before


@pytest.mark.parametrize("where", ["locks", "staging", "units", "inductor"])
def test_b14_a_cache_that_lacks_units_and_cannot_be_written_is_told_before_compiling(
    cache: Cache, planned: Callable[[Cache], Plan], compiled: list[str], tmp_path: Path, where: str
) -> None:
    cache.root.mkdir()
    (cache.root / where).touch()
    with pytest.raises(HostError) as caught:
        run.run_build(planned(cache), BACKEND, cache, tmp_path / "out", QuietReporter())
    assert caught.value.exit_code == 4
    assert str(cache.root) in caught.value.sentence()
    assert "EAGLE3_CACHE" in caught.value.repair
    assert compiled == []
    assert not (tmp_path / "out").exists()


ODD = os.fsdecode(b"n\xffn")


def test_b14_paths_that_are_no_utf8_are_paths(
    planned: Callable[[Cache], Plan], compiled: list[str], tmp_path: Path, full: Cache
) -> None:
    """Output and logs wherever they lie; a cache too, as long as nothing is compiled into it."""
    moved = Cache(full.root.rename(tmp_path / ODD))
    result = run.run_build(planned(moved), BACKEND, moved, tmp_path / ODD / "out", QuietReporter())
    assert result.compiled == 0
    os.truncate(moved.entry(planned(moved).units[0].key) / "unit.so", 0)
    with pytest.raises(HostError) as caught:
        run.run_build(planned(moved), BACKEND, moved, tmp_path / "out", QuietReporter())
    assert "EAGLE3_CACHE" in caught.value.repair
    result = run.run_build(planned(full), BACKEND, full, tmp_path / ODD / "other", QuietReporter())
    assert result.compiled == len(compiled) == len(planned(full).units)
    assert (tmp_path / ODD / "other" / "manifest.json").is_file()


def test_b14_a_models_file_whose_name_is_no_utf8_has_a_fingerprint(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    source = resolve(str(tmp_path), key="model", base=tmp_path)
    before = source.fingerprint()
    (tmp_path / f"{ODD}.safetensors").write_bytes(b"")
    assert source.fingerprint() != before


def test_b14_an_output_whose_name_is_no_utf8_is_printed_as_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: Any, tiny_config: Path
) -> None:
    output, manifest = tmp_path / ODD, SimpleNamespace(toolchain={}, state="ready")
    done = SimpleNamespace(output=output, unchanged=True, seconds=0.0, neffs=(), manifest=manifest)
    monkeypatch.setattr(run, "run_build", lambda *_, **__: done)
    monkeypatch.setattr(sys, "argv", ["eagle3-build", "--config", str(tiny_config), "--output", str(output), "-q"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0
    assert capfdbinary.readouterr().out == os.fsencode(output) + b"\n"


def test_b14_two_equal_builds_at_once_compile_each_unit_once(
    cache: Cache, planned: Callable[[Cache], Plan], compiled: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second begins while the first compiles, waits for each unit, and takes it from the cache."""
    plan, began, may_end = planned(cache), threading.Event(), threading.Event()
    compile_unit = Workers.run

    def slowly(*arguments: Any) -> int:
        began.set()
        assert may_end.wait(30)
        return compile_unit(*arguments)

    monkeypatch.setattr(Workers, "run", slowly)
    results: dict[str, run.BuildResult] = {}

    def build(name: str) -> None:
        results[name] = run.run_build(plan, BACKEND, cache, tmp_path / name, QuietReporter(), jobs=1)

    first = threading.Thread(target=build, args=("first",))
    first.start()
    assert began.wait(30)
    second = threading.Thread(target=build, args=("second",))
    second.start()
    may_end.set()
    first.join(50)
    second.join(50)
    assert sorted(compiled) == sorted(unit.spec.name for unit in plan.units)
    assert sum(result.compiled for result in results.values()) == len(plan.units)
    assert sum(result.cached for result in results.values()) == len(plan.units)


def test_a_build_that_waited_for_an_equal_one_takes_its_bundle(
    full: Cache, planned: Callable[[Cache], Plan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looked before there was one, and looks again when it is its turn."""
    plan, output, waits = planned(full), tmp_path / "out", threading.Event()
    asked: list[Path] = []

    def existing(folder: Path, request: str) -> str | None:
        asked.append(folder)
        return "the manifest" if (folder / "manifest.json").is_file() else None

    monkeypatch.setattr(run, "existing", existing)
    results: list[run.BuildResult] = []

    class Waiting(QuietReporter):
        def say(self, line: str) -> None:
            waits.set()

    with turn(output) as held:
        thread = threading.Thread(
            target=lambda: results.append(run.run_build(plan, BACKEND, full, output, Waiting(), jobs=1))
        )
        thread.start()
        assert waits.wait(30)
        staging = held.new_staging()
        (staging / "manifest.json").write_text(BUNDLE)
        publish(staging, output)
    thread.join(50)
    assert [result.unchanged for result in results] == [True]
    assert asked == [output, output]


def test_m2_without_a_home_the_variable_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("EAGLE3_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(HostError) as caught:
        cache_root()
    assert "EAGLE3_CACHE" in caught.value.repair


@pytest.mark.parametrize("variable", ["EAGLE3_CACHE", "XDG_CACHE_HOME"])
def test_a_relative_cache_means_the_folder_of_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str
) -> None:
    """Compilers run in folders of their own, where a relative path would be another one."""
    for name in ("EAGLE3_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(variable, "here")
    assert cache_root() == tmp_path / "here" / ("" if variable == "EAGLE3_CACHE" else "eagle3")


@pytest.mark.parametrize("text", ["[]", "3", "[" * 200_000, '{"request": ', "\udcff", '{"request": NaN}'])
def test_b9_a_build_record_that_is_none_is_a_build_and_no_traceback(
    full: Cache, planned: Callable[[Cache], Plan], compiled: list[str], tmp_path: Path, text: str
) -> None:
    output = tmp_path / "out"
    run.run_build(planned(full), BACKEND, full, output, QuietReporter())
    (output / BUILD_RECORD).write_bytes(text.encode("utf-8", "surrogateescape"))
    result = run.run_build(planned(full), BACKEND, full, output, QuietReporter())
    assert not result.unchanged
    assert isinstance(json.loads((output / BUILD_RECORD).read_text()), dict)


def test_b9_a_build_record_that_is_a_pipe_is_not_waited_for(
    full: Cache, planned: Callable[[Cache], Plan], tmp_path: Path
) -> None:
    output = tmp_path / "out"
    run.run_build(planned(full), BACKEND, full, output, QuietReporter())
    (output / BUILD_RECORD).unlink()
    os.mkfifo(output / BUILD_RECORD)
    run.run_build(planned(full), BACKEND, full, output, QuietReporter())
    assert (output / BUILD_RECORD).is_file()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")
def test_m7_a_full_disk_names_the_file_that_had_no_room(tmp_path: Path) -> None:
    """A write that fails knows no names."""
    stream = open("/dev/full", "wb", buffering=0)  # noqa: SIM115 - closed below
    with pytest.raises(OSError, match="No space") as caught, naming(tmp_path / "weights.safetensors"):
        stream.write(b"x")
    stream.close()
    assert caught.value.filename == str(tmp_path / "weights.safetensors")


def test_m7_an_entry_that_finds_no_room_in_the_bundle_names_the_bundles_file(
    full: Cache, planned: Callable[[Cache], Plan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copyfileobj(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    class Full:
        """A file on a disk without room."""

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            return

        def write(self, data: bytes) -> None:
            copyfileobj()

    real = Path.open
    monkeypatch.setattr(
        Path, "open", lambda self, mode="r", **rest: Full() if mode == "wb" else real(self, mode, **rest)
    )
    with pytest.raises(OSError, match="No space") as caught:
        full.take(planned(full).units[0].key, tmp_path / "bundle")
    assert str(caught.value.filename).startswith(str(tmp_path / "bundle"))


def test_m7_weights_that_find_no_room_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    def write_bytes(self: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", write_bytes)
    store = WeightStore(tmp_path / "weights", {"draft.fc.weight": {"plain"}}, BACKEND)
    with pytest.raises(OSError, match="No space") as caught:
        store.add("draft", {"fc.weight": torch.zeros(2, 2)})
    assert str(caught.value.filename).startswith(str(tmp_path / "weights" / "draft-"))
