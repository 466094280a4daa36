"""How many workers and threads this machine, or the container we are in, has room for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def cores(cgroup: Path = CGROUP) -> int:
    """Cores that this process may use: its affinity, and its container's quota where that is less; at least 1."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota, _, period = _read(cgroup / "cpu.max").partition(" ")
    if quota.isdigit() and period.isdigit() and int(period):
        count = min(count, int(quota) // int(period))
    return max(1, count)


@contextmanager
def own_threads() -> Iterator[None]:
    """Compute with as many threads as there are cores for us, whatever the environment says.

    A sum over several threads' parts rounds otherwise than one thread's, and what a build measures is in its manifest.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(cores())
    try:
        yield
    finally:
        torch.set_num_threads(before)


def free_memory(cgroup: Path = CGROUP, meminfo: Path = Path("/proc/meminfo")) -> int:
    """Bytes that new processes can use now: the system's, and the container's where that is less.

    A generous guess where the system does not tell.
    """
    free = 8 << 30
    for line in _read(meminfo).splitlines():
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) * 1024
    limit, used = _read(cgroup / "memory.max"), _read(cgroup / "memory.current")
    if limit.isdigit() and used.isdigit():
        free = min(free, int(limit) - int(used))
    return max(0, free)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
