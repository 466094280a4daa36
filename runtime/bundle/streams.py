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
from contextlib import suppress

from runtime.bundle.errors import HostError

# 128 + SIGPIPE, as a shell reports a command whose reader went away
PIPE_CLOSED = 141


def prepare_streams() -> None:
    """Open what is closed, and let standard error lose what cannot be written; to be called before all else."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            os.dup2(opened, number)  # where it is the same, only what is started from here inherits it now
            if opened != number:
                os.close(opened)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "r" if number == 0 else "w", encoding="utf-8", closefd=False))  # noqa: SIM115
    if sys.stderr is sys.__stderr__ or sys.__stderr__ is None:
        raw = _Lossy(2, "w", closefd=False)
        sys.stderr = io.TextIOWrapper(
            io.BufferedWriter(raw), encoding=sys.stderr.encoding, errors="backslashreplace", line_buffering=True
        )


def lost_output() -> HostError | None:
    """Why standard output cannot be written, if it cannot; what waits to be written then is dropped.

    Raises:
        BrokenPipeError: who read it has gone.
    """
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        _drop(1)
        return HostError(
            "Standard output cannot be written",
            expected="success",
            found=error.strerror or str(error),
            repair="send it to a terminal, a pipe, or a file on a disk with room",
        )
    return None


def drop_streams() -> None:
    """Send what is still to be written to the null device: Python would complain when it ends."""
    for number in (1, 2):
        _drop(number)


def _drop(number: int) -> None:
    with suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, number)
        os.close(null)


class _Lossy(io.FileIO):
    """Loses what cannot be written; only a reader that has gone is an error."""

    def write(self, data: object, /) -> int:
        try:
            return super().write(data)  # type: ignore[arg-type]
        except BrokenPipeError:
            raise
        except OSError:
            return memoryview(data).nbytes  # type: ignore[arg-type]
