"""Signals that end a build: each is raised in the main thread, so that everything is cleaned up as after Ctrl-C."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

# docker stop, systemd and CI systems; a terminal that closes
ENDING = (signal.SIGTERM, signal.SIGHUP)


class EndedBySignal(BaseException):
    """A signal asked this process to end. Like KeyboardInterrupt it is no Exception, which somebody might handle."""

    def __init__(self, number: int) -> None:
        self.number = signal.Signals(number)
        super().__init__(self.number.name)

    @property
    def exit_code(self) -> int:
        """As a shell reports a process that a signal ended."""
        return 128 + self.number


def leave(code: int) -> NoReturn:
    """End the process. A build that was ended may be reading weights in a thread, for which nobody waits."""
    others = (thread for thread in threading.enumerate() if thread is not threading.main_thread())
    if code > 128 and not all(thread.daemon for thread in others):
        atexit._run_exitfuncs()
        os._exit(code)
    sys.exit(code)


@contextmanager
def raised_signals() -> Iterator[None]:
    """Raise EndedBySignal on SIGTERM and SIGHUP, the first of them; to be used in the main thread.

    One that is ignored, as under nohup, stays ignored.
    """
    ours = [number for number in ENDING if signal.getsignal(number) == signal.SIG_DFL]
    for number in ours:
        signal.signal(number, _raise)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _raise(number: int, frame: FrameType | None) -> None:
    # A second one must not end the cleaning up after the first
    for each in ENDING:
        signal.signal(each, signal.SIG_IGN)
    raise EndedBySignal(number)
