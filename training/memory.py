"""Keep freed memory in the process: large tensors come and go many times a second here.

glibc hands every freed block above 32 MiB back to the system, and the next one is paid for page by page. On the
development machine that made a step of generation half as slow again. The limits are read from the environment when a
process starts, so the process replaces itself once, with them set.
"""

from __future__ import annotations

import os
import sys

LIMITS = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 32),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 36),
    "MALLOC_TOP_PAD_": str(1 << 28),
}


def reuse_memory(module: str) -> None:
    """Start `python -m module` anew with the allocator's limits raised, unless they are set already."""
    if sys.platform != "linux" or any(name in os.environ for name in LIMITS):
        return
    os.environ.update(LIMITS)
    os.execv(sys.executable, [sys.executable, "-m", module, *sys.argv[1:]])
