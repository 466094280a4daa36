"""The K of each batch size, and a schedule of them.

The best K has the highest median goodput, end to end. A smaller K whose median is within the noise of it wins: it costs
the same here, and wastes less where acceptance is lower than on these prompts. The noise of a figure is half the
distance of its fastest and its slowest run, as a share of the median; between two figures the larger one counts, at
least LEAST_NOISE and at most MOST_NOISE, so that a restless machine cannot make everything a tie.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from runtime.schedule import KSchedule

LEAST_NOISE, MOST_NOISE = 0.01, 0.05


def noise(rates: Sequence[float]) -> float:
    """Half the distance of the extremes, as a share of the median; 0 for a single run."""
    median = statistics.median(rates)
    return (max(rates) - min(rates)) / 2 / median if median else 0.0


def best_k(rates: Mapping[int, Sequence[float]]) -> int:
    """The K to use, given each K's goodput in every repeat."""
    medians = {k: statistics.median(found) for k, found in rates.items()}
    fastest = max(medians, key=lambda k: (medians[k], -k))
    for k in sorted(rates):
        margin = min(MOST_NOISE, max(LEAST_NOISE, noise(rates[k]), noise(rates[fastest])))
        if medians[k] >= medians[fastest] * (1 - margin):
            return k
    return fastest


def schedule_of(chosen: Mapping[int, int]) -> KSchedule:
    """The schedule that gives each measured batch size its K.

    A size between two measured ones takes the K of the larger one, whose bucket it is likely to run in. Neighbours with
    one K become one range.

    Args:
        chosen: K by batch size.
    """
    ranges: list[list[int]] = []
    first = 1
    for size, k in sorted(chosen.items()):
        if ranges and ranges[-1][2] == k:
            ranges[-1][1] = size
        else:
            ranges.append([first, size, k])
        first = size + 1
    return KSchedule.of(ranges)
