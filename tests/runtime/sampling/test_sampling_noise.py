"""Random numbers are a function of (seed, position, purpose), and of nothing else, on every host and numpy release."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.sampling.noise import Purpose, exponentials, uniforms
from tests.runtime.sampling.reference import philox4x64

SEEDS = st.one_of(st.integers(-5, 5), st.integers(-(2**200), 2**200))


def test_the_reference_is_philox() -> None:
    """The published known answer for a zero counter and key."""
    assert philox4x64(0, 0) == [0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**100), st.integers(0, 10**6), st.sampled_from(Purpose))
def test_uniforms_are_philox_of_seed_position_and_purpose(seed: int, position: int, purpose: Purpose) -> None:
    """Positions one after another are blocks one after another; numpy begins with the block after the counter."""
    bits = 24 if purpose is Purpose.DRAW else 53
    words = [philox4x64(position + place + 1 | int(purpose) << 128, 2 * seed)[0] for place in range(3)]
    expected = [(word >> 64 - bits) / 2**bits for word in words]
    assert uniforms(seed, position, 3, purpose) == expected


def test_exponentials_are_philox_words_cut_in_halves() -> None:
    words = philox4x64(1 | 9 << 64 | int(Purpose.RECOVER) << 128 | 1 << 192, 2 * 5)
    halves = [half for word in words for half in (word & 0xFFFFFFFF, word >> 32)]
    expected = [-np.log1p(-(half + 0.5) / 2**32) for half in halves]
    np.testing.assert_allclose(exponentials(5, 9, Purpose.RECOVER, 8), expected, rtol=1e-6)


@settings(max_examples=50, deadline=None)
@given(SEEDS, st.integers(0, 2**40), st.sampled_from(Purpose), st.integers(1, 9), st.integers(0, 8))
def test_a_number_does_not_depend_on_what_it_is_drawn_with(
    seed: int, position: int, purpose: Purpose, count: int, place: int
) -> None:
    place = min(place, count - 1)
    assert uniforms(seed, position, count, purpose)[place] == uniforms(seed, position + place, 1, purpose)[0]
    row = exponentials(seed, position, purpose, 17)
    assert (row[: count + 2] == exponentials(seed, position, purpose, count + 2)).all()


def test_seeds_positions_and_purposes_keep_apart() -> None:
    seeds = (0, 1, -1, 2, -2, 2**64, 2**64 + 1, 2**127 - 1, -(2**126), 2**128 - 1)
    numbers = {uniforms(seed, at, 1, purpose)[0] for seed in seeds for at in range(20) for purpose in Purpose}
    assert len(numbers) == len(seeds) * 20 * len(Purpose)
    rows = {exponentials(seed, at, purpose, 1)[0] for seed in seeds for at in range(20) for purpose in Purpose}
    assert len(rows) == len(seeds) * 20 * len(Purpose)


def test_the_numbers_are_uniform_and_exponential() -> None:
    drawn = np.array(uniforms(3, 0, 20000, Purpose.DRAW))
    assert drawn.min() >= 0
    assert drawn.max() < 1
    # Within four deviations of the mean and of the mean square
    assert abs(drawn.mean() - 1 / 2) < 4 * (1 / 12 / len(drawn)) ** 0.5
    assert abs((drawn**2).mean() - 1 / 3) < 4 * (4 / 45 / len(drawn)) ** 0.5
    row = exponentials(3, 0, Purpose.RECOVER, 20000)
    assert row.dtype == np.float32
    assert row.min() > 0
    assert np.isfinite(row).all()
    assert abs(row.mean() - 1) < 4 * (1 / len(row)) ** 0.5
    assert abs((row > 1).mean() - np.exp(-1)) < 4 * (0.2325 / len(row)) ** 0.5


@pytest.mark.parametrize("words", [[0], [2**64 - 1]])
def test_the_ends_of_the_range_are_finite_and_above_zero(words: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """No noise of 0 may let a token win whatever its probability, and none is infinite."""

    class Fixed:
        def __init__(self, key: int, counter: int) -> None: ...

        def random_raw(self, count: int) -> np.ndarray:
            return np.array(words * count, dtype=np.uint64)

    monkeypatch.setattr(np.random, "Philox", Fixed)
    row = exponentials(0, 0, Purpose.RECOVER, 4)
    assert (row > 0).all()
    assert np.isfinite(row).all()
    assert 0 <= uniforms(0, 0, 1, Purpose.DRAW)[0] < 1
