"""The two console commands as a user starts them, measured from outside. Imports no torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / "configs" / "smollm2-135m.yaml"


class BenchError(Exception):
    """A command failed, or did not do what a measurement needs; the message holds what it printed."""


@dataclass(frozen=True)
class Measured:
    """One finished command: seconds from its start, peak resident bytes, and what it printed."""

    wall_s: float
    first_byte_s: float
    peak_bytes: int
    stdout: str
    stderr: str


def measure(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Measured:
    """Run a command of this environment ("eagle3-run") through `bench/launch.py`.

    Raises:
        BenchError: it left with an exit code other than 0, or printed nothing.
    """
    program = Path(sys.executable).with_name(command[0])
    launcher = [sys.executable, "-I", str(ROOT / "bench" / "launch.py"), str(program), *command[1:]]
    launched = subprocess.run(
        launcher, cwd=ROOT, env={**os.environ, **(environment or {})}, stdout=subprocess.PIPE, check=True
    )
    told: dict[str, Any] = json.loads(launched.stdout)
    if told["exit_code"] != 0 or told["first_byte_s"] is None:
        raise BenchError(f"{' '.join(command)} left with {told['exit_code']}: {told['stderr']}{told['stdout']}")
    return Measured(told["wall_s"], told["first_byte_s"], told["peak_bytes"], told["stdout"], told["stderr"])


def build(
    output: Path, overrides: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> tuple[dict[str, Any], Measured]:
    """Run eagle3-build on the demo's YAML; returns its own account (`--json`) and the outside view."""
    changes = [part for override in overrides for part in ("--set", override)]
    command = ["eagle3-build", "--config", str(CONFIG), "--output", str(output), "--json", *changes]
    measured = measure(command, environment)
    account: dict[str, Any] = json.loads(measured.stdout)
    return account, measured
