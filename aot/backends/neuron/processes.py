"""Compiler processes, each the leader of a session of its own, so that it ends together with all that it started.

neuronx-cc runs its stages as further processes. Ending the first alone would leave them compiling. A build that is
killed outright can end nothing; a watcher, a small process beside it, then does.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

WATCHER = Path(__file__).with_name("watcher.py")


class Processes:
    """The compilers that are running; `stop` ends all of them, from any thread, and `close` the watcher."""

    def __init__(self) -> None:
        self._watcher: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self.stopping = False

    def run(self, argv: list[str], folder: Path, output: Path, timeout: float) -> int | None:
        """Run `argv` in `folder`, standard output and error into the file `output`; returns its exit code.

        None when it took more than `timeout` seconds. In every case nothing that it started is left running.
        """
        with output.open("wb") as stream:
            with self._lock:
                if self.stopping:
                    return -signal.SIGINT
                process = subprocess.Popen(
                    argv,
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=stream,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
                self._running.add(process)
                self._tell(f"+{process.pid}")
            try:
                return process.wait(timeout)
            except subprocess.TimeoutExpired:
                return None
            finally:
                _end(process)
                process.wait()
                with self._lock:
                    self._running.discard(process)
                    self._tell(f"-{process.pid}")

    def stop(self) -> None:
        """End every compiler; no new one starts."""
        with self._lock:
            self.stopping = True
            for process in self._running:
                _end(process)

    def close(self) -> None:
        """Let the watcher end; to be called when nothing runs any more."""
        with self._lock:
            watcher, self._watcher = self._watcher, None
        if watcher is not None:
            with contextlib.suppress(OSError):
                watcher.communicate()

    def _tell(self, change: str) -> None:
        """Tell the watcher what started or ended, and start it first where it is not running yet."""
        if self._watcher is None:
            self._watcher = subprocess.Popen(
                [sys.executable, "-IS", str(WATCHER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                text=True,
                start_new_session=True,  # a signal to the build's whole group must not reach it
            )
        if self._watcher.stdin is not None:
            # Without a watcher, which somebody may have ended, compilers only lose this one protection
            with contextlib.suppress(OSError):
                self._watcher.stdin.write(change + "\n")
                self._watcher.stdin.flush()


def _end(process: subprocess.Popen[bytes]) -> None:
    # A crashed compiler may leave its stages behind; its session's id stays theirs while they live
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
