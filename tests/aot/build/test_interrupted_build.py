"""Builds that fail, are interrupted or killed: what is said, what is left, and how the next one goes on.

Each test starts from a cache that lacks one or two units, so that a build is a few seconds of real compiling.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aot import cli
from aot.backends.aoti.backend import AotiBackend
from aot.graphs.units import UnitSpec

pytestmark = [
    pytest.mark.timeout(900),  # the first test waits for the bundle
    pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are looked up in /proc"),
]

FAILING, OTHER = "target_embed.t4", "target_embed.t8"
# target_embed.t4 is what verify passes of one request look their tokens up with, in both context buckets
FAILED = f"Unit {FAILING} of graph target_verify.r1.c64 and 1 more failed to compile"
ROOT = Path(__file__).parents[3]

Cached = Callable[[str], Path]


def leave_out(cached_unit: Cached, *names: str) -> dict[str, Path]:
    """Take units out of the cache; returns where they were."""
    folders = {name: cached_unit(name) for name in names}
    for folder in folders.values():
        shutil.rmtree(folder)
    return folders


def compiler(folder: Path, script: str) -> str:
    """A compiler that does what the shell `script` says."""
    folder.mkdir()
    file = folder / "c++"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return str(file)


@pytest.fixture
def build_here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """eagle3-build in this process; returns its exit code and what it said."""

    def run(config: Path, output: Path, cache: Path, compilers: dict[str, str], *options: str) -> tuple[int, str]:
        job = AotiBackend.job

        def told(self: AotiBackend, unit: UnitSpec) -> dict[str, Any]:
            made = job(self, unit)
            return made | {"compiler": compilers.get(unit.name, made["compiler"])}

        monkeypatch.setattr(AotiBackend, "job", told)
        monkeypatch.setenv("EAGLE3_CACHE", str(cache))
        arguments = ["eagle3-build", "--config", str(config), "--output", str(output), *options]
        monkeypatch.setattr(sys, "argv", arguments)
        with pytest.raises(SystemExit) as done:
            cli.main()
        assert isinstance(done.value.code, int)
        said = capsys.readouterr()
        return done.value.code, said.err + said.out

    return run


def test_a_unit_that_fails_is_named_with_its_log_and_the_others_are_kept(
    build_here: Callable[..., tuple[int, str]], tiny_config: Path, tmp_path: Path, cache_copy: Path, cached_unit: Cached
) -> None:
    entries = leave_out(cached_unit, FAILING, OTHER)
    broken = compiler(tmp_path / "bin", 'echo "c++: internal compiler error: of this test" >&2\nexit 1')
    output = tmp_path / "out" / "tiny"
    code, said = build_here(tiny_config, output, cache_copy, {FAILING: broken})
    assert code == 6
    log = output.with_name("tiny.logs") / f"{FAILING}.log"
    assert "error: 1 of 2 units failed; the others are in the cache." in said
    assert f"  - {FAILED}: expected exit code 0, found exit code 1.\n    hint: read {log}" in said
    assert "internal compiler error: of this test" in log.read_text()
    assert {name: entry.exists() for name, entry in entries.items()} == {FAILING: False, OTHER: True}
    assert [path.name for path in output.parent.iterdir()] == ["tiny.logs"]
    assert list((cache_copy / "staging").iterdir()) == []


def test_a_unit_killed_for_memory_gets_the_hint(
    build_here: Callable[..., tuple[int, str]], tiny_config: Path, tmp_path: Path, cache_copy: Path, cached_unit: Cached
) -> None:
    leave_out(cached_unit, FAILING)
    killer = compiler(tmp_path / "bin", "kill -9 $PPID")
    code, said = build_here(tiny_config, tmp_path / "tiny", cache_copy, {FAILING: killer}, "--json")
    assert code == 6
    error = json.loads(said)
    assert error["error"] == "ErrorGroup"
    (problem,) = error["problems"]
    assert problem["message"] == f"{FAILED}: expected exit code 0, found exit code -9."
    assert problem["repair"].endswith(f"{FAILING}.log, and free memory or pass --jobs 1")
    assert not (tmp_path / "tiny").exists()


def build_process(config: Path, output: Path, cache: Path) -> subprocess.Popen[str]:
    """eagle3-build as a shell starts it: the leader of a process group, which Ctrl-C reaches as a whole."""
    environment = {**os.environ, "EAGLE3_CACHE": str(cache), "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-m", "aot.cli", "--config", str(config), "--output", str(output), "--jobs", "1"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def processes_with(word: str) -> list[str]:
    """Command lines and environments of live processes that mention `word`, this one's aside."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                text = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
            except OSError:
                continue
            if word.encode() in text:
                found.append(f"{folder.name}: {text[:120]!r}")
    return found


def wait_until(condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def wait_for_second_compile(process: subprocess.Popen[str], cache: Path, entries: dict[str, Path]) -> None:
    """Until one unit is compiled and the compile of the next has begun."""
    wait_until(lambda: process.poll() is not None or any(entry.exists() for entry in entries.values()))
    wait_until(lambda: process.poll() is not None or any((cache / "staging").glob("*/log.txt")))
    time.sleep(0.7)
    assert process.poll() is None, process.communicate()


@pytest.mark.parametrize("reach", ["the terminal's group", pytest.param("the process alone", marks=pytest.mark.slow)])
def test_ctrl_c_leaves_nothing_half_made_and_the_next_build_goes_on(
    tiny_config: Path, tmp_path: Path, cache_copy: Path, cached_unit: Cached, reach: str
) -> None:
    entries = leave_out(cached_unit, FAILING, OTHER)
    output = tmp_path / "out" / "tiny"
    process = build_process(tiny_config, output, cache_copy)
    wait_for_second_compile(process, cache_copy, entries)
    if reach == "the process alone":
        process.send_signal(signal.SIGINT)
    else:
        os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.endswith("Interrupted; what compiled is in the cache and the next build goes on from there\n")
    assert "Traceback" not in err
    assert out == ""
    assert [path.name for path in output.parent.iterdir()] == ["tiny.logs"]
    assert list((cache_copy / "staging").iterdir()) == []
    wait_until(lambda: processes_with(str(cache_copy)) == [], 20)
    assert sum(entry.exists() for entry in entries.values()) == 1

    again = build_process(tiny_config, output, cache_copy)
    out, err = again.communicate(timeout=300)
    assert again.returncode == 0, err
    assert "1 units compiled, 13 from cache" in err
    assert (output / "manifest.json").is_file()


@pytest.mark.slow
def test_a_killed_build_leaves_no_process_and_the_next_one_cleans_up(
    tiny_config: Path, tmp_path: Path, cache_copy: Path, cached_unit: Cached
) -> None:
    entries = leave_out(cached_unit, FAILING, OTHER)
    output = tmp_path / "out" / "tiny"
    process = build_process(tiny_config, output, cache_copy)
    wait_for_second_compile(process, cache_copy, entries)
    process.kill()
    process.communicate(timeout=60)
    assert not output.exists()
    left = sorted(path.name for path in output.parent.iterdir())
    assert [name.rpartition("-")[0] or name for name in left] == [".tiny.eagle3-staging", ".tiny.eagle3", "tiny.logs"]
    wait_until(lambda: processes_with(str(cache_copy)) == [], 20)
    assert len(list((cache_copy / "staging").iterdir())) == 1
    (output.parent / ".tiny.old-backup").mkdir()  # a user's (B13)

    again = build_process(tiny_config, output, cache_copy)
    _, err = again.communicate(timeout=300)
    assert again.returncode == 0, err
    assert "1 units compiled, 13 from cache" in err
    assert sorted(path.name for path in output.parent.iterdir()) == [".tiny.old-backup", "tiny", "tiny.logs"]
    assert list((cache_copy / "staging").iterdir()) == []
