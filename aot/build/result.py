"""How the compile of one unit went, whichever compiler ran; what reporters hear of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class UnitResult:
    """How one unit went. `log` is kept for failures too; peak_bytes is 0 where the system does not tell."""

    name: str
    key: str
    exit_code: int
    seconds: float
    peak_bytes: int
    log: Path
    cached: bool

    @property
    def ok(self) -> bool:
        return self.exit_code == 0
