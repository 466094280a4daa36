"""A measured figure beside the target it must reach, and the table that shows them.

A figure is reached, missed, or has no target and stands there to explain another one.
"""

from __future__ import annotations

import operator
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

Bound = Literal["at least", "at most"]
HOLDS: dict[Bound, Callable[[float, float], bool]] = {"at least": operator.ge, "at most": operator.le}


@dataclass(frozen=True)
class Figure:
    """One line of the table.

    Attributes:
        part: the part of the benchmark that measured it ("decode").
        name: what was measured.
        value: a median over repeats where there were several.
        unit: "x", "tokens/s", "ms", "s", "%", "MB" (10**6 bytes) or "GB/s".
        bound, target: what issue and README promise; both absent where nothing is promised.
        detail: what the value was made from, and how far single repeats lay apart.
    """

    part: str
    name: str
    value: float
    unit: str
    bound: Bound | None = None
    target: float | None = None
    detail: str = ""

    @property
    def reached(self) -> bool | None:
        """Whether the target holds; None without a target."""
        if self.bound is None or self.target is None:
            return None
        return HOLDS[self.bound](self.value, self.target)

    def to_json(self) -> dict[str, object]:
        """The figure as `--json` writes it."""
        return {
            "part": self.part,
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "bound": self.bound,
            "target": self.target,
            "reached": self.reached,
            "detail": self.detail,
        }


def spread(values: Sequence[float], digits: int = 2) -> str:
    """ "13.91 to 14.40 over 5": the range of repeats, so that a reader sees the noise."""
    return f"{min(values):.{digits}f} to {max(values):.{digits}f} over {len(values)}"


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """The ratio of each interleaved pair: both of a pair saw the same noise."""
    return [one / other for one, other in zip(above, below, strict=True)]


def median_ratio(above: Sequence[float], below: Sequence[float]) -> float:
    """The median of the pairs' ratios."""
    return statistics.median(ratios(above, below))


def table(figures: Sequence[Figure]) -> list[str]:
    """The figures as lines of a Markdown table with columns padded to one width."""
    rows = [("part", "figure", "measured", "target", "reached", "detail")]
    for figure in figures:
        target = "" if figure.target is None else f"{figure.bound} {_number(figure.target)} {figure.unit}"
        verdict = {True: "yes", False: "NO", None: ""}[figure.reached]
        measured = f"{_number(figure.value)} {figure.unit}"
        rows.append((figure.part, figure.name, measured, target, verdict, figure.detail))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return lines


def _number(value: float) -> str:
    """Three significant digits, whole numbers from 100 on."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
