"""What the figures were measured on: a figure without its machine says nothing. Imports no torch."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from runtime.bundle.host import cpu_features

# Instructions that decide the speed of bfloat16 on a CPU.
FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16")
PACKAGES = ("torch", "transformers", "accelerate")


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def load_average() -> str:
    """The runnable processes of the last 1 and 5 minutes: above the cores, figures are of a busy machine."""
    one, five, _ = os.getloadavg()
    return f"{one:.2f} {five:.2f}"


def describe() -> dict[str, str]:
    """The machine and the versions, by name."""
    features = cpu_features()
    facts = {
        "cpu": f"{_proc_field('cpuinfo', 'model name')}, {cores()} cores",
        "cpu flags": ", ".join(f"{flag} {'yes' if flag in features else 'no'}" for flag in FLAGS),
        "memory": _proc_field("meminfo", "MemTotal"),
        "system": platform.platform(),
        "python": platform.python_version(),
    }
    for package in PACKAGES:
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            facts[package] = "not installed"
    facts["command"] = shlex.join([Path(sys.executable).name, *sys.argv])
    return facts


def _proc_field(file: str, field: str) -> str:
    """The first value of `field` in /proc/`file`; what platform knows where there is none."""
    try:
        for line in Path("/proc", file).read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == field:
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
