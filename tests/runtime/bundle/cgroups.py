"""A file system in which a process is in cgroups, for tests: /proc's two files and the cgroups' own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def cgroups(
    root: Path,
    own: str,
    files: Mapping[str, str],
    *,
    version: int = 2,
    controller: str = "cpu,cpuacct",
    mount: str = "/sys/fs/cgroup",
    top: str = "/",
) -> Path:
    """Make it under `root`.

    Args:
        own: this process's cgroup, as /proc/self/cgroup has it.
        files: content by path below the mount.
        mount, top: where the hierarchy is mounted, and which of its cgroups is seen there.
    """
    proc = root / "proc" / "self"
    proc.mkdir(parents=True, exist_ok=True)
    line = f"0::{own}\n" if version == 2 else f"4:{controller}:{own}\n0::/\n"
    (proc / "cgroup").write_text(line)
    system = "cgroup2 cgroup2 rw" if version == 2 else f"cgroup cgroup rw,{controller}"
    where = mount.replace(" ", "\\040")
    (proc / "mountinfo").write_text(
        f"22 1 8:1 / / rw shared:1 - ext4 /dev/sda rw\n31 22 0:28 {top} {where} rw,nosuid shared:9 - {system}\n"
    )
    for path, text in files.items():
        file = root / mount.lstrip("/") / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    return root
