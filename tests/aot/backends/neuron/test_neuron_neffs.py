"""Graphs compile side by side, failures stay alone, what the cache has is not compiled, and nothing runs on.

All of it with the stand-in compiler; how the real one behaves is not tested anywhere.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from aot.backends.neuron.compiler import Compiler
from aot.backends.neuron.flags import arguments
from aot.backends.neuron.neff import NeffJob, NeffResult, neff_cache
from aot.backends.neuron.neffs import HLO_FACTOR, PROCESS_BYTES, compile_neffs, default_workers
from aot.cache import Cache, key_of
from tests.aot.backends.neuron import stand_in
from tests.aot.backends.neuron.conftest import Install

ROOT = Path(__file__).parents[4]

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are looked up in /proc")


def job(folder: Path, name: str, hlo: str | None = None) -> NeffJob:
    file = folder / f"{name}.hlo"
    file.write_text(hlo or f"HLO of {name}")
    return NeffJob(name, file, tuple(arguments("target_verify", target="trn2", lnc=2, release=(2, 27))), lnc=2)


@pytest.fixture
def jobs(tmp_path: Path) -> list[NeffJob]:
    return [job(tmp_path, name) for name in ("one", "two", "three")]


Compile = Callable[..., dict[str, NeffResult]]


@pytest.fixture
def run(cache: Cache, tmp_path: Path) -> Compile:
    """`run(jobs, compiler)`: the results by name."""

    def compile_them(
        jobs: list[NeffJob], compiler: Compiler, workers: int = 2, **options: float
    ) -> dict[str, NeffResult]:
        heard: list[str] = []
        results = compile_neffs(
            jobs,
            compiler,
            cache,
            tmp_path / "logs",
            workers,
            started=lambda name: heard.append(f"started {name}"),
            finished=lambda result: heard.append(f"finished {result.name}"),
            **options,
        )
        assert sorted(heard) == sorted(f"{event} {one.name}" for one in jobs for event in ("started", "finished"))
        return {result.name: result for result in results}

    return compile_them


def starts(tools: Path) -> int:
    return sum(call["event"] == "start" for call in stand_in.calls(tools))


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(holds: Callable[[], bool], seconds: float = 30) -> None:
    limit = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < limit
        time.sleep(0.02)


def test_every_graph_is_compiled_once_and_kept(
    run: Compile, jobs: list[NeffJob], compiler: Install, cache: Cache, tools: Path
) -> None:
    made = compiler()
    results = run(jobs, made)
    for one in jobs:
        result = results[one.name]
        assert (result.ok, result.cached, result.attempts, result.exit_code) == (True, False, 1, 0)
        entry = neff_cache(cache).entry(result.key)
        assert sorted(file.name for file in entry.iterdir()) == [
            *("command.json", "factors.json", "graph.neff", "log-neuron-cc.txt", "sealed.json")
        ]
        assert stand_in.hlo_of((entry / "graph.neff").read_bytes()) == one.hlo.read_bytes()
        record = json.loads((entry / "command.json").read_text())
        assert record == {
            "argv": ["neuronx-cc", *one.arguments],
            "flags": list(one.arguments),
            "extra": [],
            "compiler": "2.27.5334.0+standin (stand-in)",
            "attempts": 1,
        }
        log = (entry / "log-neuron-cc.txt").read_text()
        assert "== try 1: exit code 0\nCompiler status PASS\nstand-in, run 1\n" in log
        assert result.log.read_text() == log
    again = run(jobs, made)
    assert [(result.ok, result.cached, result.attempts) for result in again.values()] == [(True, True, 0)] * 3
    assert starts(tools) == 3
    assert list((cache.root / "staging").iterdir()) == []


def test_equal_graphs_are_compiled_once(run: Compile, compiler: Install, tools: Path, tmp_path: Path) -> None:
    results = run([job(tmp_path, "a", "same"), job(tmp_path, "b", "same")], compiler(seconds=0.2))
    assert sorted(result.cached for result in results.values()) == [False, True]
    assert starts(tools) == 1


def test_the_key_follows_hlo_arguments_and_compiler_and_no_path(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    here, there = job(tmp_path, "a", "same"), job(tmp_path / "elsewhere", "b", "same")
    one, moved = Compiler("/opt/bin/neuronx-cc", "2.27.1"), Compiler("/usr/bin/neuronx-cc", "2.27.1")
    key = key_of(here.factors(one))
    assert key_of(there.factors(moved)) == key
    assert str(tmp_path) not in json.dumps(here.factors(one))
    assert key_of(job(tmp_path, "a", "other").factors(one)) != key
    assert key_of(NeffJob("a", there.hlo, (*here.arguments, "--verbose=info"), 2).factors(one)) != key
    assert key_of(there.factors(Compiler("/opt/bin/neuronx-cc", "2.27.2"))) != key


def test_the_compiler_runs_in_a_folder_of_its_own(
    run: Compile, jobs: list[NeffJob], compiler: Install, cache: Cache, tools: Path
) -> None:
    run(jobs, compiler())
    folders = {call["folder"] for call in stand_in.calls(tools) if call["event"] == "start"}
    assert len(folders) == 3
    assert all(Path(folder).is_relative_to(cache.root / "staging") for folder in folders)
    assert not any(Path(folder).exists() for folder in folders)


@pytest.mark.parametrize(
    ("exits", "attempts", "succeeds"),
    [
        *(([70], 2, True), ([70, 70], 3, True), ([70, 70, 70], 3, False), ([-9], 2, True), ([-9, -9, -9], 3, False)),
        *(([70, -9], 3, True), ([-9, 70], 3, True), ([137, 137], 3, True), ([-9, 70, -9], 3, False)),
        *(([1], 1, False), ([-11], 1, False), ([-6], 1, False), ([2], 1, False)),
    ],
)
def test_what_may_pass_is_tried_three_times(
    run: Compile, compiler: Install, tools: Path, tmp_path: Path, exits: list[int], attempts: int, succeeds: bool
) -> None:
    result = run([job(tmp_path, "one")], compiler(exits=exits))["one"]
    assert (result.ok, result.attempts, starts(tools)) == (succeeds, attempts, attempts)
    assert result.exit_code == (0 if succeeds else exits[-1])
    assert result.log.read_text().count("== try ") == attempts


def test_a_failure_stops_no_other_and_is_not_cached(
    run: Compile, jobs: list[NeffJob], compiler: Install, cache: Cache, tools: Path
) -> None:
    results = run(jobs, compiler(match="two", exits=[1] * 9, says="[ERROR] [NCC_EVRF009] too large"))
    assert {name: result.ok for name, result in results.items()} == {"one": True, "two": False, "three": True}
    failed = results["two"]
    assert failed.problem is not None
    assert failed.problem.sentence() == "Graph two failed to compile: expected exit code 0, found exit code 1."
    assert failed.problem.repair.startswith("NCC_EVRF009: the graph and its buffers do not fit the device's memory")
    assert str(failed.log) in failed.problem.repair
    assert "too large" in failed.log.read_text()
    assert not neff_cache(cache).entry(failed.key).exists()
    mended = run(jobs, compiler())
    assert {name: result.cached for name, result in mended.items()} == {"one": True, "two": False, "three": True}
    assert "too large" not in mended["two"].log.read_text()


def test_what_was_killed_runs_again_alone(run: Compile, compiler: Install, tools: Path, tmp_path: Path) -> None:
    jobs = [job(tmp_path, name) for name in ("big1", "big2", "small1", "small2", "small3", "small4")]
    results = run(jobs, compiler(match="big", exits=[-9], seconds=0.1), workers=4)
    assert all(result.ok for result in results.values())
    assert (results["big1"].attempts, results["small1"].attempts) == (2, 1)
    seen: set[str] = set()
    running: set[str] = set()
    beside = []
    for call in sorted(stand_in.calls(tools), key=lambda call: call["time"]):
        if call["event"] == "start":
            if call["hlo"] in seen:
                beside.append(set(running))
            seen.add(call["hlo"])
            running.add(call["hlo"])
        else:
            running.discard(call["hlo"])
    assert beside == [set(), set()]


@pytest.mark.parametrize(
    ("behaviour", "expected", "found"),
    [
        ({"neff": "none"}, "the file graph.neff", "no such file"),
        ({"neff": "short"}, "a header of 1024 bytes", "1000 bytes"),
        ({"neff": "size"}, "bytes behind the header", ""),
        ({"lnc": 1}, "lnc 2", "lnc 1"),
        ({"lnc": 7}, "a logical core size of 1 or 2", "7"),
    ],
)
def test_a_wrong_neff_is_a_failure(
    run: Compile,
    compiler: Install,
    cache: Cache,
    tmp_path: Path,
    behaviour: dict[str, object],
    expected: str,
    found: str,
) -> None:
    result = run([job(tmp_path, "one")], compiler(**behaviour))["one"]
    assert result.problem is not None
    assert result.problem.exit_code == 6
    assert result.problem.what == "neuronx-cc wrote no usable NEFF for graph one"
    assert expected in result.problem.expected
    assert found in result.problem.found
    assert not neff_cache(cache).entry(result.key).exists()


def test_too_slow_a_compiler_is_ended_with_all_that_it_started(
    run: Compile, jobs: list[NeffJob], compiler: Install, tools: Path
) -> None:
    results = run(jobs, compiler(match="two", hangs=True), timeout=3)
    assert {name: result.ok for name, result in results.items()} == {"one": True, "two": False, "three": True}
    slow = results["two"]
    assert slow.timed_out
    assert slow.attempts == 1  # it would only be slow again
    assert slow.problem is not None
    assert "at most 3 s" in slow.problem.expected
    assert "took too long" in slow.log.read_text()
    hanging = int((tools / "hanging.pid").read_text())
    wait_until(lambda: not is_alive(hanging))


INTERRUPTED = """
import sys
from pathlib import Path
from aot.backends.neuron.compiler import find
from aot.backends.neuron.flags import arguments
from aot.backends.neuron.neff import NeffJob
from aot.backends.neuron.neffs import compile_neffs
from aot.cache import Cache

folder = Path(sys.argv[1])
flags = tuple(arguments("target_verify", target="trn2", lnc=2))
jobs = [NeffJob(name, folder / f"{name}.hlo", flags, 2) for name in ("one", "two", "three")]
try:
    compile_neffs(jobs, find(sys.argv[2]), Cache(folder / "cache"), folder / "logs", 1)
except KeyboardInterrupt:
    sys.exit(130)
"""


def test_ctrl_c_ends_every_compiler(
    jobs: list[NeffJob], compiler: Install, cache: Cache, tools: Path, tmp_path: Path
) -> None:
    program = compiler(hangs=True).command
    builder = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path), program],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )
    wait_until((tools / "hanging.pid").exists)
    builder.send_signal(signal.SIGINT)
    assert builder.wait(30) == 130
    hanging = int((tools / "hanging.pid").read_text())
    wait_until(lambda: not is_alive(hanging))
    assert starts(tools) == 1
    assert list((cache.root / "staging").iterdir()) == []
    assert not (cache.root / "neffs").exists()


def test_a_second_build_waits_for_the_first(
    run: Compile, compiler: Install, cache: Cache, tools: Path, tmp_path: Path
) -> None:
    one, made = job(tmp_path, "one"), compiler(seconds=0.3)
    first = threading.Thread(target=compile_neffs, args=([one], made, cache, tmp_path / "first"))
    first.start()
    run([one], made)
    first.join()
    assert starts(tools) == 1


def test_workers_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aot.backends.neuron.neffs.cores", lambda: 8)
    large = 1 << 30
    for free, workers in ((0, 1), (PROCESS_BYTES, 1), (3 * (PROCESS_BYTES + HLO_FACTOR * large), 3), (1 << 50, 8)):
        monkeypatch.setattr("aot.backends.neuron.neffs.free_memory", lambda free=free: free)
        assert default_workers(large) == workers
