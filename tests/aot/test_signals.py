"""Signals that end a build, as exceptions; and the end of a process whose threads nobody waits for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from aot.signals import ENDING, EndedBySignal, raised_signals

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_m4_a_signal_is_raised_with_its_exit_code(number: signal.Signals, exit_code: int) -> None:
    before = [signal.getsignal(each) for each in ENDING]
    with pytest.raises(EndedBySignal) as ended, raised_signals():
        signal.raise_signal(number)
    assert ended.value.exit_code == exit_code
    assert [signal.getsignal(each) for each in ENDING] == before


def test_m4_under_nohup_a_hangup_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with raised_signals():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(("code", "threads"), [(143, "a thread"), (143, ""), (0, "")])
def test_m4_who_was_ended_waits_for_no_thread(code: int, threads: str) -> None:
    """As a thread that reads weights; what was registered for the end is done."""
    script = (
        "import atexit, threading, time; from aot.signals import leave; atexit.register(print, 'done', flush=True)\n"
        f"if {threads!r}: threading.Thread(target=time.sleep, args=(600,)).start()\n"
        f"leave({code})"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (code, "done\n")
