"""What this machine is, and whether a bundle may run on it. Nothing here imports torch."""

from __future__ import annotations

import importlib.metadata
import platform
from pathlib import Path

from runtime.bundle.errors import Eagle3Error, ErrorGroup, HostError
from runtime.bundle.manifest import Requires


def cpu_features() -> frozenset[str]:
    """The CPU's feature flags under the kernel's names ("avx512f", "amx_tile"); empty where they cannot be read."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return frozenset()
    for line in text.splitlines():
        if line.startswith(("flags", "Features")):
            return frozenset(line.partition(":")[2].split())
    return frozenset()


def torch_release() -> str:
    """The installed torch release without its build suffix ("2.13.0"), or "none"."""
    try:
        return importlib.metadata.version("torch").partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return "none"


def check_host(requires: Requires) -> None:
    """Compare this machine with what a bundle requires.

    A Neuron bundle's compiled code runs on the device and not on this CPU: only the system is compared here, and its
    backend checks the instance, the runtime and the cores.

    Raises:
        HostError or an ErrorGroup of them: every mismatch, each with its repair (exit code 4).
    """
    if requires.backend == "neuron":
        if (system := platform.system().lower()) != requires.system:
            raise HostError(
                "The bundle is for another kind of machine",
                expected=requires.system,
                found=system,
                repair="run it on Linux: the Neuron runtime exists for no other system",
            )
        return
    rebuild = "rebuild the bundle on a machine of this kind with eagle3-build"
    problems: list[Eagle3Error] = []
    here = (platform.machine(), platform.system().lower())
    if here != (requires.machine, requires.system):
        problems.append(
            HostError(
                "The bundle is for another kind of machine",
                expected=f"{requires.machine} {requires.system}",
                found=" ".join(here),
                repair=rebuild,
            )
        )
    else:
        missing = sorted(set(requires.cpu_features) - cpu_features())
        if missing:
            problems.append(
                HostError(
                    "This CPU lacks instructions that the compiled graphs use",
                    expected=", ".join(requires.cpu_features),
                    found=f"no {', '.join(missing)}",
                    repair=rebuild,
                )
            )
    if torch_release() != requires.torch:
        problems.append(
            HostError(
                "The compiled graphs call another release of torch",
                expected=f"torch {requires.torch}",
                found=f"torch {torch_release()}",
                repair=f"pip install torch=={requires.torch}, or rebuild the bundle",
            )
        )
    if problems:
        raise problems[0] if len(problems) == 1 else ErrorGroup("This host cannot run the bundle", problems)
