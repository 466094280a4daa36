"""A worker that is a command ends with the build, and so does what it started."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from aot.build.workers import TookTooLong, Workers

pytestmark = [pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are looked up in /proc")]

STARTS_ANOTHER = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(child.pid, flush=True)
time.sleep(60)
"""


def wait_for_the_end_of(pid: int) -> None:
    limit = time.monotonic() + 60
    stat = Path(f"/proc/{pid}/stat")
    with contextlib.suppress(OSError):  # it ended between two looks
        while stat.read_text().rpartition(")")[2].split()[0] not in "ZX":
            assert time.monotonic() < limit
            time.sleep(0.02)


def test_stopping_ends_a_command_and_all_that_it_started(tmp_path: Path) -> None:
    workers, log, ended = Workers(), tmp_path / "log.txt", list[tuple[int, int]]()
    argv = [sys.executable, "-c", STARTS_ANOTHER]
    waiting = threading.Thread(target=lambda: ended.append(workers.command(argv, log, os.environ)))
    waiting.start()
    limit = time.monotonic() + 30
    while not (log.is_file() and log.read_text().endswith("\n")):
        assert time.monotonic() < limit
        time.sleep(0.02)
    workers.stop()
    waiting.join(10)
    assert [code for code, _ in ended] == [-9]
    wait_for_the_end_of(int(log.read_text()))


def test_after_a_stop_nothing_starts(tmp_path: Path) -> None:
    workers = Workers()
    workers.stop()
    code, _ = workers.command([sys.executable, "-c", "raise SystemExit(0)"], tmp_path / "log.txt", os.environ)
    assert code == -2
    assert not (tmp_path / "log.txt").exists()


def test_m5_a_command_beyond_its_time_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    workers, log = Workers(timeout=3), tmp_path / "log.txt"
    with pytest.raises(TookTooLong):
        workers.command([sys.executable, "-c", STARTS_ANOTHER], log, os.environ)
    wait_for_the_end_of(int(log.read_text()))


# A build with one command, which does what a lowering worker does first, says its id, and takes long
BUILD = """
import os, sys
from pathlib import Path
from aot.build.workers import Workers
work = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
worker = "from aot.backends.neuron import worker; worker.threading.Thread(target=worker._end_with_build).start()"
Workers().command([sys.executable, "-c", worker + "; " + work], Path(sys.argv[1]), os.environ)
"""


def test_b3_a_command_of_a_killed_build_ends(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    build = subprocess.Popen(
        [sys.executable, "-c", BUILD, str(log)], env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    )
    limit = time.monotonic() + 60
    while not (log.is_file() and log.read_text().endswith("\n")):
        assert time.monotonic() < limit
        time.sleep(0.02)
    build.kill()
    build.wait()
    wait_for_the_end_of(int(log.read_text()))
