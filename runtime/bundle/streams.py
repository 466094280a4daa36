"""Standard input, output and error, whatever the process was started with.

A command may be started with one of them closed (`>&-`). Then the next file that is opened takes its number, and what
anybody prints goes into that file. So the null device takes the place of a closed one before anything is opened.
Messages about the work are not the work: standard error on a full disk loses them, and the work goes on. A reader that
went away ends a command, from either stream, as it ends other commands.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO

from runtime.bundle.errors import HostError

# 128 + SIGPIPE, as a shell reports a command whose reader went away
PIPE_CLOSED = 141


class LostOutput(OSError):
    """Standard output takes no more."""


# What is nobody's to handle but `ended_well`'s
STREAM_ERRORS = (BrokenPipeError, LostOutput)


def prepare_streams() -> None:
    """Open what is closed, and let standard error lose what cannot be written; to be called before all else."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "r" if number == 0 else "w", encoding="utf-8", closefd=False))  # noqa: SIM115
    # Where they are not the process's own, as in tests, they are left alone
    if sys.stdout is sys.__stdout__ or sys.__stdout__ is None:
        sys.stdout = _over(_Output(1, "w", closefd=False), sys.stdout)
    if sys.stderr is sys.__stderr__ or sys.__stderr__ is None:
        sys.stderr = _over(_Messages(2, "w", closefd=False), sys.stderr)


def _over(raw: io.FileIO, stream: TextIO) -> TextIO:
    """A text stream like `stream` that writes through `raw`."""
    lines = raw.isatty() or raw.fileno() == 2
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding=stream.encoding, errors=stream.errors, line_buffering=lines
    )


def ended_well(run: Callable[[], int]) -> int | HostError:
    """What `run` returns, once all that it wrote is written; an error where standard output takes no more.

    PIPE_CLOSED where a reader has gone. To be used around everything that prints.
    """
    try:
        code = run()
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # Python would complain once more, when it flushes at its end
        _drop(1)
        _drop(2)
        return PIPE_CLOSED
    except LostOutput as error:
        _drop(1)
        return HostError(
            "Standard output cannot be written",
            expected="success",
            found=error.strerror or str(error),
            repair="send it to a terminal, a pipe, or a file on a disk with room",
        )


def _drop(number: int) -> None:
    with suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, number)
        os.close(null)


class _Output(io.FileIO):
    def write(self, data: object, /) -> int:
        try:
            return super().write(data)  # type: ignore[arg-type]
        except BrokenPipeError:
            raise
        except OSError as error:
            raise LostOutput(error.errno, error.strerror) from None


class _Messages(io.FileIO):
    """Loses what cannot be written; only a reader that has gone is an error."""

    def write(self, data: object, /) -> int:
        try:
            return super().write(data)  # type: ignore[arg-type]
        except BrokenPipeError:
            raise
        except OSError:
            return memoryview(data).nbytes  # type: ignore[arg-type]
