"""The Python that lowers: this one where it has torch-xla, else one that was named or that `make neuron-env` made.

torch-xla comes with a release of torch of its own, so it seldom lives beside the torch that the rest uses.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from runtime.bundle.errors import HostError

PACKAGES = ("aot", "runtime")
USUAL = Path(".venv-neuron") / "bin" / "python"
REPAIR = "run make neuron-env, or name an interpreter that has it as backend.python"
# Asked of an interpreter: releases without an import, which would take seconds
_ASK = """
import importlib.metadata, json, sys
found = {"python": "%d.%d.%d" % sys.version_info[:3]}
for name in ("torch", "torch-xla"):
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        found[name] = ""
print(json.dumps(found))
"""


@dataclass(frozen=True)
class LoweringPython:
    """An interpreter with torch-xla, and the releases it has."""

    executable: str
    python: str
    torch: str
    torch_xla: str


def find_python(named: Path | None, base: Path) -> LoweringPython:
    """The interpreter to lower with.

    Args:
        named: `backend.python` of the configuration; relative to the current directory, else to `base`.
        base: the folder of the configuration's file.

    Raises:
        HostError: none has torch-xla (exit code 4).
    """
    if named is not None:
        candidates = [named] if named.is_absolute() else [named, base / named]
        chosen = next((path for path in candidates if path.is_file()), None)
        if chosen is None:
            raise HostError("backend.python names no file", expected="an interpreter", found=str(named), repair=REPAIR)
        return _checked(str(chosen), "backend.python")
    here = _versions(sys.executable)
    if here.get("torch-xla"):
        return _checked(sys.executable, "this interpreter")
    if USUAL.is_file():
        return _checked(str(USUAL), str(USUAL))
    raise HostError(
        "No Python here can lower graphs for Neuron",
        expected="torch-xla in this environment, backend.python, or .venv-neuron in the current directory",
        found=f"none in this one and no {USUAL}",
        repair=REPAIR,
    )


def _checked(executable: str, what: str) -> LoweringPython:
    # Absolute, but not resolved: a virtual environment's interpreter is a link that must be called as it is
    executable = os.path.abspath(executable)
    found = _versions(executable)
    missing = [name for name in ("torch", "torch-xla") if not found.get(name)]
    if missing:
        raise HostError(
            f"{what} cannot lower graphs for Neuron",
            expected="torch and torch-xla in it",
            found=f"no {' and no '.join(missing)}" if found else "no Python at all",
            repair=REPAIR,
        )
    return LoweringPython(executable, found["python"], found["torch"], found["torch-xla"])


@functools.cache
def _versions(executable: str) -> Mapping[str, str]:
    """Releases of Python, torch and torch-xla behind an interpreter; empty where it does not run."""
    try:
        run = subprocess.run([executable, "-c", _ASK], capture_output=True, text=True, check=False, timeout=60)
        found: dict[str, str] = json.loads(run.stdout)
        return found
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return {}


def worker_environment(folder: Path) -> dict[str, str]:
    """A lowering worker's environment: ours, without what would change how torch-xla lowers.

    `folder` comes first on its path, with our two packages in it and nothing else: what lies beside them where they are
    installed, torch above all, is another interpreter's. PJRT's CPU device is never used but must be named.
    """
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    for name in PACKAGES:
        if not (folder / name).exists():
            package = Path(__file__).parents[3] / name
            try:
                (folder / name).symlink_to(package, target_is_directory=True)
            except OSError:  # a file system without links
                shutil.copytree(package, folder / name)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XLA_", "PJRT_", "PT_XLA_"))}
    path = os.pathsep.join(part for part in (str(folder), kept.get("PYTHONPATH", "")) if part)
    return {**kept, "PYTHONPATH": path, "PJRT_DEVICE": "CPU", "TF_CPP_MIN_LOG_LEVEL": "2"}
