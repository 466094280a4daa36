"""How many workers and threads this machine, or the container we are in, has room for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runtime.bundle.cores import ROOT, cgroup_folders, usable_cores

# Version 2's names and version 1's: the limit, what is used of it, and the part of that which the kernel gives back
_LIMITS = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def cores(root: Path = ROOT) -> int:
    """Cores that this process may use, as the runtime counts them; at least 1."""
    return usable_cores(root).count


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


def free_memory(root: Path = ROOT) -> int:
    """Bytes that new processes can use now: the system's, and those of every cgroup that we are in where that is less.

    A generous guess where the system does not tell.

    Args:
        root: of the file system that tells, for tests.
    """
    free = 8 << 30
    for line in _read(root / "proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) * 1024
    for folder in cgroup_folders("memory", root):
        for limit_file, used_file, given_back in _LIMITS:
            limit, used = _read(folder / limit_file), _read(folder / used_file)
            if limit.isdigit() and used.isdigit():
                free = min(free, int(limit) - int(used) + _of_stat(folder, given_back))
    return max(0, free)


def _of_stat(folder: Path, name: str) -> int:
    for line in _read(folder / "memory.stat").splitlines():
        if line.startswith(f"{name} "):
            return int(line.split()[1])
    return 0


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
