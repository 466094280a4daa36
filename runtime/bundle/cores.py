"""How many cores this process may use, and what says so: its affinity, and the quotas of the cgroups that it is in.

A container's quota is time, not cores: all of the machine's are seen. Threads beyond the quota use it up sooner, and
then all of them stand still until the next period. Measured, a quota of one core on a machine of two: two threads 43 to
45 tokens/s, one thread 58 to 60; of half a core: 20 and 28. So quotas are rounded down, to 1 at least.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

ROOT = Path("/")


@dataclass(frozen=True)
class Cores:
    """count: cores, at least 1. bound: what leaves no more. why: the same in words."""

    count: int
    bound: Literal["affinity", "quota", "environment"]
    why: str


def usable_cores(root: Path = ROOT) -> Cores:
    """What affinity and CPU quotas leave, those of every cgroup from this process's up to the outermost that is seen.

    Args:
        root: of the file system in which cgroups are looked up, for tests.
    """
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = [Cores(max(1, int(quota)), "quota", f"a cgroup's quota of {quota:g} cores") for quota in _quotas(root)]
    # Of equal ones the first
    return min((*quotas, Cores(affinity, "affinity", f"an affinity of {affinity} cores")), key=lambda each: each.count)


def asked_threads() -> str:
    """What OMP_NUM_THREADS says, "" for nothing; of a list, which has one for each level of nesting, the outermost."""
    return os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()


def compute_threads(root: Path = ROOT) -> Cores:
    """What OMP_NUM_THREADS leaves of the usable cores to compute threads.

    A number there that the quota and the machine's whole cores give too is theirs, as `bound_threads` puts it there.
    """
    cores = usable_cores(root)
    asked = asked_threads()
    if asked.isdigit() and 0 < int(asked) < cores.count:
        if cores.bound == "quota" and int(asked) == whole_cores(root):
            return Cores(int(asked), "quota", f"{cores.why}, one thread for each of {asked} whole cores")
        return Cores(int(asked), "environment", f"OMP_NUM_THREADS={asked}")
    return cores


def whole_cores(root: Path = ROOT) -> int:
    """Of the affinity, the cores that are not the second thread of another one."""
    cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    topology = root / "sys/devices/system/cpu"
    return len({_read(topology / f"cpu{cpu}/topology/thread_siblings_list") or f"cpu {cpu}" for cpu in cpus})


def cgroup_folders(controller: str, root: Path = ROOT) -> Iterator[Path]:
    """The folders of this process's cgroups that may bound `controller` ("cpu", "memory"), each before its parent.

    Both versions are looked up, since a system may have both at once.
    """
    own = dict(_own_cgroups(_read(root / "proc/self/cgroup")))
    for line in _read(root / "proc/self/mountinfo").splitlines():
        mount, _, kind = line.partition(" - ")
        fields, (system, *rest) = mount.split(), kind.split() or [""]
        if len(fields) < 5 or system not in ("cgroup", "cgroup2"):
            continue
        name = "" if system == "cgroup2" else controller
        if name not in own or (name and name not in rest[-1].split(",")):
            continue
        # A container may see its own part of the hierarchy only, of which `fields[3]` is the root
        top = root / _unescaped(fields[4]).lstrip("/")
        folder = top / _below(own[name], _unescaped(fields[3]))
        yield folder
        while folder != top:
            folder = folder.parent
            yield folder


def _own_cgroups(text: str) -> Iterator[tuple[str, str]]:
    """(controller, path) of /proc/self/cgroup; version 2 has no controller's name."""
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for controller in controllers.split(","):
            yield controller, path


def _below(path: str, top: str) -> PurePosixPath:
    """`path` as seen from `top`, the top itself where it is not below it."""
    inside = PurePosixPath(path)
    if ".." in inside.parts or not inside.is_relative_to(top):
        return PurePosixPath()
    return inside.relative_to(top)


def _quotas(root: Path) -> Iterator[float]:
    """CPU quotas, in cores."""
    for folder in cgroup_folders("cpu", root):
        quota, _, period = _read(folder / "cpu.max").partition(" ")
        if not quota:
            quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period):  # "max" and -1 are none
            yield int(quota) / int(period)


def _unescaped(path: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found.group(1), 8)), path)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
