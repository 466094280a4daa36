"""A worker that is a command ends with the build, and so does what it started."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import pytest

from aot.build.workers import Workers

pytestmark = [pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are looked up in /proc")]

STARTS_ANOTHER = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(child.pid, flush=True)
time.sleep(60)
"""


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
    stat = Path(f"/proc/{int(log.read_text())}/stat")
    while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < limit
        time.sleep(0.02)


def test_after_a_stop_nothing_starts(tmp_path: Path) -> None:
    workers = Workers()
    workers.stop()
    code, _ = workers.command([sys.executable, "-c", "raise SystemExit(0)"], tmp_path / "log.txt", os.environ)
    assert code == -2
    assert not (tmp_path / "log.txt").exists()
