"""The processes that compile: a crash, an endless compile or a lack of memory takes down one and no more."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from aot.backends.aoti.worker import run_logged


class Workers:
    """The worker processes that are alive, so that Ctrl-C can end all of them with their compilers."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["aot.backends.aoti.preload"])
        self._lock = threading.Lock()
        self._running: set[BaseProcess] = set()
        self._commands: set[subprocess.Popen[bytes]] = set()
        self.stopping = False

    def run(self, job: dict[str, Any], out: Path, environment: dict[str, str]) -> int:
        """Compile `job` into folder `out` in a process of its own; returns its exit code."""
        process = self._context.Process(target=run_logged, args=(job, str(out), environment))
        # Ctrl-C on a terminal reaches every process of the build. This one alone answers it; what is started from here
        # inherits the blocked signal, so that no worker prints a traceback before it leads its own process group.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        with self._lock:
            if self.stopping:
                return -signal.SIGINT
            process.start()
            self._running.add(process)
        try:
            process.join()
            return process.exitcode if process.exitcode is not None else 1
        finally:
            with self._lock:
                self._running.discard(process)

    def command(self, argv: Sequence[str], log: Path, environment: Mapping[str, str]) -> tuple[int, int]:
        """Run a command in a process group of its own, its output in `log`; returns its exit code and peak bytes."""
        with self._lock:
            if self.stopping:
                return -signal.SIGINT, 0
            with log.open("wb") as output:
                started = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    start_new_session=True,
                )
            self._commands.add(started)
        try:
            _, status, used = os.wait4(started.pid, 0)
            started.returncode = os.waitstatus_to_exitcode(status)
            return started.returncode, used.ru_maxrss * 1024
        finally:
            with self._lock:
                self._commands.discard(started)

    def stop(self) -> None:
        """End every worker and the compilers that it started; no new one starts."""
        with self._lock:
            self.stopping = True
            for process in self._running:
                # The worker leads a process group of its own; in its first moments it does not yet
                for kill in (lambda p: os.killpg(p.pid, signal.SIGKILL), lambda p: p.kill()):
                    with contextlib.suppress(OSError):
                        kill(process)
            for command in self._commands:
                with contextlib.suppress(OSError):
                    os.killpg(command.pid, signal.SIGKILL)
