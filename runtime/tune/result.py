"""What was measured, the schedule that follows from it, and its JSON.

`--json` prints one object. Its keys are part of the contract:

    facts         those of `runtime.bench.facts` that apply, and batch_sizes, repeat
    results       for each batch size, ascending: batch_size, plain (a cell), cells (one for each K, ascending), best
    schedule      [[first, last, K], ...], for num_speculative_tokens_per_batch_size
    differences   prompt, batch_size, num_speculative_tokens (null for plain decoding), token: where a text left that of
                  plain decoding of the smallest batch; empty when it should

A cell: num_speculative_tokens (null for plain decoding), goodput and decode_tokens_per_s (medians over the repeats),
noise (of goodput, see `runtime.tune.choose`), mean_acceptance_length, rows (of a request in most passes).
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from runtime.bench.facts import Facts
from runtime.check import first_difference
from runtime.request import SpecDecodeStats
from runtime.schedule import KSchedule
from runtime.tune.choose import best_k, noise, schedule_of
from runtime.tune.measure import Trial

_NOT_OURS = ("concurrency", "warmup")


@dataclass(frozen=True)
class Cell:
    """One batch size at one K, over all repeats.

    Attributes:
        k: None for plain decoding.
        rates: goodput of each repeat, tokens a second end to end.
        decode_rate: median rate of the verify passes alone.
        rows: of a request in most verify passes.
    """

    batch_size: int
    k: int | None
    rates: tuple[float, ...]
    decode_rate: float
    stats: SpecDecodeStats
    rows: int

    @classmethod
    def of(cls, trials: Sequence[Trial]) -> Cell:
        """From the trials of one batch size and K."""
        first, stats = trials[0], SpecDecodeStats()
        for trial in trials:
            stats.merge(trial.stats)
        decode_rate = statistics.median(trial.decode_rate for trial in trials)
        rates = tuple(trial.goodput for trial in trials)
        return cls(first.batch_size, first.k, rates, decode_rate, stats, first.rows)

    @property
    def goodput(self) -> float:
        return statistics.median(self.rates)

    @property
    def spare_rows(self) -> bool:
        """Whether passes ran with more rows than the K needs, for want of graphs with fewer."""
        return self.k is not None and self.rows > 1 + self.k

    def to_json(self) -> dict[str, object]:
        return {
            "num_speculative_tokens": self.k,
            "goodput": round(self.goodput, 2),
            "decode_tokens_per_s": round(self.decode_rate, 2),
            "noise": round(noise(self.rates), 4),
            "mean_acceptance_length": round(self.stats.mean_acceptance_length, 4),
            "rows": self.rows,
        }


@dataclass(frozen=True)
class Difference:
    """A trial's text that is not that of plain decoding: which prompt's, and the index of its first other token."""

    prompt: int
    batch_size: int
    k: int | None
    token: int


@dataclass(frozen=True)
class Result:
    """All figures of one run.

    Attributes:
        names: what each prompt is called.
        cells: by batch size and K, both ascending, plain decoding first.
    """

    facts: Facts
    names: tuple[str, ...]
    repeat: int
    cells: Mapping[int, Mapping[int | None, Cell]]
    differences: tuple[Difference, ...]

    @classmethod
    def of(cls, facts: Facts, names: Sequence[str], repeat: int, trials: Sequence[Trial]) -> Result:
        """From every trial; plain decoding must be among them at the smallest batch size."""
        sizes = sorted({trial.batch_size for trial in trials})
        counts: list[int | None] = [None, *sorted({trial.k for trial in trials if trial.k is not None})]
        cells = {
            size: {k: Cell.of([t for t in trials if (t.batch_size, t.k) == (size, k)]) for k in counts}
            for size in sizes
        }
        return cls(facts, tuple(names), repeat, cells, _differences(trials, sizes[0]))

    @property
    def counts(self) -> tuple[int, ...]:
        """The K that were measured, ascending."""
        return tuple(k for k in next(iter(self.cells.values())) if k is not None)

    @cached_property
    def best(self) -> dict[int, int]:
        """The K of each batch size."""
        return {
            size: best_k({k: cell.rates for k, cell in row.items() if k is not None})
            for size, row in self.cells.items()
        }

    @property
    def schedule(self) -> KSchedule:
        return schedule_of(self.best)

    def acceptance_length(self, k: int) -> float:
        """Tokens a drafted step at this K, over all batch sizes."""
        stats = SpecDecodeStats()
        for row in self.cells.values():
            stats.merge(row[k].stats)
        return stats.mean_acceptance_length

    def to_json(self) -> dict[str, object]:
        facts = {name: value for name, value in self.facts.to_json().items() if name not in _NOT_OURS}
        return {
            "facts": {**facts, "batch_sizes": list(self.cells), "repeat": self.repeat},
            "results": [
                {
                    "batch_size": size,
                    "plain": row[None].to_json(),
                    "cells": [cell.to_json() for k, cell in row.items() if k is not None],
                    "best": self.best[size],
                }
                for size, row in self.cells.items()
            ],
            "schedule": self.schedule.to_json(),
            "differences": [
                {
                    "prompt": self.names[difference.prompt],
                    "batch_size": difference.batch_size,
                    "num_speculative_tokens": difference.k,
                    "token": difference.token,
                }
                for difference in self.differences
            ],
        }


def _differences(trials: Sequence[Trial], smallest: int) -> tuple[Difference, ...]:
    """Where the texts of any trial leave those of plain decoding; one for each prompt, batch size and K."""
    reference = next(trial for trial in trials if (trial.batch_size, trial.k) == (smallest, None))
    found: dict[tuple[int, int, int | None], Difference] = {}
    for trial in trials:
        for prompt, (right, other) in enumerate(zip(reference.outputs, trial.outputs, strict=True)):
            at = first_difference(right, other)
            if at is not None:
                found.setdefault((prompt, trial.batch_size, trial.k), Difference(prompt, trial.batch_size, trial.k, at))
    return tuple(found.values())
