"""Hand-made trials, from which a table can be worked out on paper."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.request import RequestOutput, SpecDecodeStats, Timing
from runtime.tune.measure import Trial

TEXT = (5, 6, 7)
# Goodput in three repeats, by batch size and K: at one request three drafts pay, at four K = 1 ties with K = 3
RATES: dict[tuple[int, int | None], tuple[float, float, float]] = {
    (1, None): (100.0, 100.0, 101.0),
    (1, 0): (95.0, 96.0, 96.0),
    (1, 1): (149.0, 150.0, 151.0),
    (1, 3): (178.0, 180.0, 180.0),
    (4, None): (200.0, 200.0, 200.0),
    (4, 0): (190.0, 190.0, 190.0),
    (4, 1): (238.0, 240.0, 242.0),
    (4, 3): (236.0, 241.0, 246.0),
}


def trial(
    batch_size: int, k: int | None, rate: float, texts: Sequence[Sequence[int]] = (TEXT, TEXT), rows: int = 4
) -> Trial:
    """A trial of two seconds, half of it decoding, in which half of all steps accept one draft."""
    drafted = k or 0
    stats = SpecDecodeStats(10, 10 * drafted, 5, [5] + [0] * (drafted - 1)) if drafted else SpecDecodeStats()
    outputs = tuple(
        RequestOutput(str(index), (1, 2), tuple(text), "length", Timing(0.0, 1.0, 2.0), SpecDecodeStats())
        for index, text in enumerate(texts)
    )
    tokens = round(2 * rate)
    return Trial(batch_size, k, tokens, 2.0, tokens - 20, 1.0, rows, stats, outputs)


def trials(rows: int = 4) -> list[Trial]:
    """Every cell of RATES in three repeats, one repeat after another."""
    return [trial(size, k, rates[turn], rows=rows) for turn in range(3) for (size, k), rates in RATES.items()]
