"""Compiler processes, each the leader of a session of its own, so that it ends together with all that it started.

neuronx-cc runs its stages as further processes. Ending the first alone would leave them compiling.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from pathlib import Path


class Processes:
    """The compilers that are running; `stop` ends all of them, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopping = False

    def run(self, argv: list[str], folder: Path, output: Path, timeout: float) -> int | None:
        """Run `argv` in `folder`, standard output and error into the file `output`; returns its exit code.

        None when it took more than `timeout` seconds. In every case nothing that it started is left running.
        """
        with output.open("wb") as stream:
            with self._lock:
                if self._stopping:
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
            try:
                return process.wait(timeout)
            except subprocess.TimeoutExpired:
                return None
            finally:
                _end(process)
                process.wait()
                with self._lock:
                    self._running.discard(process)

    def stop(self) -> None:
        """End every compiler; no new one starts."""
        with self._lock:
            self._stopping = True
            for process in self._running:
                _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    # A crashed compiler may leave its stages behind; its session's id stays theirs while they live
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
