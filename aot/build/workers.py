"""The processes that compile: a crash, an endless compile or a lack of memory takes down one and no more.

Whatever ends the build ends them. Each leads a process group of its own, so that its compilers go with it, and each
waits at a pipe whose other end only the build holds: the end of that pipe is the end of the build, even by SIGKILL.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.util
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from multiprocessing import connection, forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from aot.backends.aoti.worker import run_logged

# Seconds for one unit. The largest seen took minutes; a compile that goes on for an hour goes on for ever.
TIMEOUT = 3600.0
# What the process that workers are forked from imports
PRELOADED = ["aot.backends.aoti.preload"]
# Of a terminal's Ctrl-C and hangup, which reach every process of the build. The build's first process alone answers.
TERMINAL_SIGNALS = {signal.SIGINT, signal.SIGHUP}
# A socket's path has 107 bytes at most, and multiprocessing adds 32 to that of the temporary folder
_LONGEST_TEMPORARY = 70


class TookTooLong(Exception):
    """A worker was ended since its time was over."""


class Workers:
    """The worker processes that are alive, so that whatever ends the build can end all of them with their compilers.

    timeout: seconds that one worker may take.
    """

    def __init__(self, timeout: float = TIMEOUT) -> None:
        self.timeout = timeout
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOADED)
        _make_short_temporary_folder()
        # Starting a process looks after those that have ended, and an exit code can be read only once
        self._reading = threading.Lock()
        self._lock = threading.Lock()
        self._running: set[BaseProcess] = set()
        self._commands: set[subprocess.Popen[bytes]] = set()
        # Nothing is ever written: a worker that reads waits for the end of this process
        self._build, self._held = multiprocessing.Pipe(duplex=False)
        self.stopping = False

    def run(self, job: dict[str, Any], out: Path, environment: dict[str, str]) -> int:
        """Compile `job` into folder `out` in a process of its own; returns its exit code.

        Raises:
            TookTooLong: it was ended, with its compilers, after `timeout` seconds.
        """
        process = self._context.Process(target=run_logged, args=(job, str(out), environment, self._build))
        # What is started from this thread inherits the blocked signals, so that no worker prints a traceback before it
        # leads its own process group
        signal.pthread_sigmask(signal.SIG_BLOCK, TERMINAL_SIGNALS)
        try:
            with self._reading:
                if self.stopping:
                    return -signal.SIGINT
                process.start()
        except (OSError, EOFError):
            if self.stopping:  # which ended the server that forks
                return -signal.SIGINT
            raise
        with self._lock:
            self._running.add(process)
            if self.stopping:
                end_process(process)
        try:
            in_time = bool(connection.wait([process.sentinel], self.timeout))
            if not in_time:
                end_process(process)
            connection.wait([process.sentinel])
            with self._reading:
                process.join()
                exit_code = process.exitcode
        finally:
            with self._lock:
                self._running.discard(process)
        if not in_time:
            raise TookTooLong
        return 1 if exit_code is None else exit_code

    def command(self, argv: Sequence[str], log: Path, environment: Mapping[str, str]) -> tuple[int, int]:
        """Run a command in a process group of its own, its output in `log`; returns its exit code and peak bytes.

        Its standard input ends when this process does.

        Raises:
            TookTooLong: it was ended, with all that it started, after `timeout` seconds.
        """
        with self._lock:
            if self.stopping:
                return -signal.SIGINT, 0
            with log.open("wb") as output:
                started = subprocess.Popen(
                    argv,
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    start_new_session=True,
                )
            self._commands.add(started)
        deadline, too_long = time.monotonic() + self.timeout, False
        while True:
            with self._lock:  # so that `stop` never signals a group whose number was given away
                pid, status, used = os.wait4(started.pid, os.WNOHANG)
                if pid:
                    self._commands.discard(started)
                    break
                if not too_long and time.monotonic() > deadline:
                    too_long = True
                    end_group(started.pid)
            time.sleep(0.05)
        started.returncode = os.waitstatus_to_exitcode(status)
        if started.stdin is not None:
            started.stdin.close()
        if too_long:
            raise TookTooLong
        return started.returncode, used.ru_maxrss * 1024

    def stop(self) -> None:
        """End every worker and the compilers that it started; no new one starts."""
        with self._lock:
            self.stopping = True
            # The server that forks may be importing torch for a first worker, and nobody waits for that. Later it is
            # the one that tells when a worker has ended
            server: Any = forkserver._forkserver
            if not self._running and server._forkserver_pid is not None:
                with contextlib.suppress(OSError):
                    os.kill(server._forkserver_pid, signal.SIGKILL)
            for process in self._running:
                end_process(process)
            for command in self._commands:
                end_group(command.pid)


def end_process(process: BaseProcess) -> None:
    """End a worker and its compilers."""
    if process.pid is not None:
        end_group(process.pid)
    # In its first moments it does not lead a group yet
    with contextlib.suppress(OSError):
        process.kill()


def end_group(leader: int) -> None:
    """End a process that leads a group, and all that it started."""
    with contextlib.suppress(OSError):
        os.killpg(leader, signal.SIGKILL)


def _make_short_temporary_folder() -> None:
    """Have multiprocessing make its folder for sockets, once for this process, where their paths are short enough."""
    if len(os.fsencode(tempfile.gettempdir())) > _LONGEST_TEMPORARY:
        kept, tempfile.tempdir = tempfile.tempdir, "/tmp"
        try:
            multiprocessing.util.get_temp_dir()
        finally:
            tempfile.tempdir = kept
