"""A process of its own for long work on the CPU: freed memory is kept, and idle threads do not spin for long.

glibc hands every freed block above 32 MiB back to the system, and the next one is paid for page by page. On the
development machine that made a step of generation half as slow again. Its limits, and OpenMP's
(`runtime.bundle.threads`), are read from the environment when a process starts, so the process replaces itself once,
with them set.
"""

from __future__ import annotations

import os
import sys

from runtime.bundle.threads import bound_spinning

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
