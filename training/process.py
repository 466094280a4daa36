"""What the commands of this package share: a process made for long work, and errors told in one sentence.

glibc hands every freed block above 32 MiB back to the system, and the next one is paid for page by page. On the
development machine that made a step of generation half as slow again. Its limits, and OpenMP's
(`runtime.bundle.threads`), are read from the environment when a process starts, so the process replaces itself once,
with them set.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import ParamSpec

import click

from runtime.bundle.errors import Eagle3Error, UsageError, render
from runtime.bundle.threads import bound_spinning

P = ParamSpec("P")

LIMITS = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 32),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 36),
    "MALLOC_TOP_PAD_": str(1 << 28),
}


def prepare_process(module: str) -> None:
    """Start `python -m module` anew with those limits, unless the environment sets one already."""
    if sys.platform != "linux" or any(name in os.environ for name in LIMITS):
        return
    bound_spinning()
    os.environ.update(LIMITS)
    os.execv(sys.executable, [sys.executable, "-m", module, *sys.argv[1:]])


def tells_errors(main: Callable[P, None]) -> Callable[P, None]:
    """A command whose failures a user can mend end in a sentence and an exit code, not in a traceback."""

    @functools.wraps(main)
    def told(*args: P.args, **options: P.kwargs) -> None:
        try:
            try:
                main(*args, **options)
            except OSError as error:
                raise UsageError(
                    f"{error.filename or 'a file'} cannot be read or written",
                    found=error.strerror or str(error),
                    repair="give another path, or make room",
                ) from None
        except Eagle3Error as error:
            click.echo("\n".join(render(error)), err=True)
            sys.exit(error.exit_code)

    return told
