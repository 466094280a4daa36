"""The smallest K within the noise of the fastest, and the ranges of the schedule between what was measured."""

from __future__ import annotations

from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.tune.choose import MOST_NOISE, best_k, noise, schedule_of


@pytest.mark.parametrize(
    ("rates", "k"),
    [
        ({0: [100.0], 1: [150.0], 3: [180.0]}, 3),
        ({0: [100.0], 1: [90.0], 3: [70.0]}, 0),
        # A single run has no noise: a hundredth is a tie, two are none
        ({1: [99.5], 3: [100.0]}, 1),
        ({1: [98.0], 3: [100.0]}, 3),
        # 3 % of noise in one of them
        ({1: [95.0, 98.0, 101.0], 3: [100.0, 100.0, 100.0]}, 1),
        ({1: [97.9, 98.0, 98.1], 3: [100.0, 100.0, 100.0]}, 3),
        # However restless the machine, a tenth is no tie
        ({0: [50.0, 90.0, 140.0], 3: [99.0, 100.0, 101.0]}, 3),
        # Equal ones
        ({0: [1.0], 1: [2.0], 2: [2.0]}, 1),
        ({2: [5.0]}, 2),
    ],
)
def test_the_smallest_of_those_that_noise_does_not_tell_apart(rates: dict[int, list[float]], k: int) -> None:
    assert best_k(rates) == k


def test_noise_is_half_the_span_of_the_runs() -> None:
    assert noise([95.0, 100.0, 105.0]) == pytest.approx(0.05)
    assert noise([100.0]) == 0.0
    assert noise([0.0, 0.0]) == 0.0


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.integers(0, 9), st.lists(st.floats(1.0, 1e4), min_size=1, max_size=5), min_size=1))
def test_the_chosen_k_is_never_slower_than_the_fastest_by_more_than_the_margin(rates: dict[int, list[float]]) -> None:
    medians = {k: median(found) for k, found in rates.items()}
    assert medians[best_k(rates)] >= max(medians.values()) * (1 - MOST_NOISE) - 1e-9


@pytest.mark.parametrize(
    ("chosen", "ranges"),
    [
        ({1: 3}, [[1, 1, 3]]),
        ({1: 3, 2: 3, 4: 1, 8: 0}, [[1, 2, 3], [3, 4, 1], [5, 8, 0]]),
        ({1: 3, 4: 3}, [[1, 4, 3]]),
        # Sizes that were left out take the K of the next larger one
        ({4: 2, 16: 0}, [[1, 4, 2], [5, 16, 0]]),
        ({2: 1, 1: 3}, [[1, 1, 3], [2, 2, 1]]),
        ({1: 1, 2: 3, 4: 1}, [[1, 1, 1], [2, 2, 3], [3, 4, 1]]),
    ],
)
def test_ranges_end_at_measured_sizes(chosen: dict[int, int], ranges: list[list[int]]) -> None:
    schedule = schedule_of(chosen)
    assert schedule.to_json() == ranges
    assert {size: schedule.k_for(size) for size in chosen} == chosen
