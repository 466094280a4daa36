"""How the compile of one unit went, whichever compiler ran; what reporters hear of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from runtime.bundle.errors import Eagle3Error


@dataclass(frozen=True)
class UnitResult:
    """How one unit went. `log` is kept for failures too; peak_bytes is 0 where the system does not tell.

    problem: what is wrong with a unit that its worker did make.
    """

    name: str
    key: str
    exit_code: int
    seconds: float
    peak_bytes: int
    log: Path
    cached: bool
    problem: Eagle3Error | None = None

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and self.problem is None
