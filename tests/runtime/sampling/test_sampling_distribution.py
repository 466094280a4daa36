"""What is kept by min-p, top-k and top-p and how it is drawn from, against the plain reference."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from runtime.sampling.distribution import Distribution, distribution
from runtime.sampling.params import SamplingParams
from runtime.sampling.thresholds import top_k_ids, top_p_ids
from tests.runtime.sampling.reference import first_exceeding, kept, probabilities

PARAMS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.05, 0.7, 1.0, 2.5]),
    top_k=st.sampled_from([-1, 0, 1, 2, 5, 40, 1000]),
    top_p=st.sampled_from([0.01, 0.3, 0.5, 0.9, 0.999, 1.0]),
    min_p=st.sampled_from([0.0, 0.001, 0.1, 0.5, 1.0]),
    seed=st.just(1),
)


def made(row: NDArray[np.float32], params: SamplingParams) -> Distribution:
    return distribution(row, row.max(), params)


def support(target: Distribution) -> set[int]:
    places = np.flatnonzero(target.weights)
    return set((places if target.ids is None else target.ids[places]).tolist())


def logits_of(seed: int, vocab_size: int, step: float) -> NDArray[np.float32]:
    """Normal noise, rounded to multiples of `step` so that there are ties; one id in nine cannot be chosen."""
    rng = np.random.default_rng(seed)
    row = np.round(rng.standard_normal(vocab_size) * 3 / step) * step
    row[1::9] = -np.inf
    return row.astype(np.float32)


@settings(max_examples=150, deadline=None)
@given(PARAMS, st.integers(0, 999), st.sampled_from([1, 7, 64, 300]), st.sampled_from([0.001, 1.0]))
def test_what_is_kept_and_how_probable_it_is(params: SamplingParams, seed: int, vocab_size: int, step: float) -> None:
    row = logits_of(seed, vocab_size, step)
    target = made(row, params)
    surely, perhaps = kept(torch.from_numpy(row), params)
    ids = support(target)
    # exp of what is far below the largest is 0, so such ids may be missing
    assert surely - ids <= {token for token in surely if (row[token] - row.max()) / params.temperature < -100}
    assert ids <= perhaps
    expected = probabilities(torch.from_numpy(row), params, ids)
    whole = target.weights.sum(dtype=np.float64)
    for place, weight in enumerate(target.weights):
        token = place if target.ids is None else int(target.ids[place])
        if token < vocab_size:
            assert weight / whole == pytest.approx(float(expected[token]), rel=1e-5, abs=1e-30)
        else:
            assert weight == 0


@settings(max_examples=100, deadline=None)
@given(PARAMS, st.integers(0, 99), st.floats(0, 1, exclude_max=True), st.sampled_from([1, 63, 257, 600]))
def test_the_draw_is_the_inverse_of_the_cumulative_distribution(
    params: SamplingParams, seed: int, uniform: float, vocab_size: int
) -> None:
    target = made(logits_of(seed, vocab_size, 0.5), params)
    drawn = target.draw(uniform)
    dense = [0.0] * vocab_size
    for place in np.flatnonzero(target.weights):
        dense[int(place if target.ids is None else target.ids[place])] = float(target.weights[place])
    assert dense[drawn] > 0
    # Blocks are summed in another order, so a goal within rounding of a step may fall on either side
    assert drawn in {
        first_exceeding(dense, max(0.0, min(u, 1 - 2**-53))) for u in (uniform - 1e-14, uniform, uniform + 1e-14)
    }


def test_the_ends_of_the_unit_interval_draw_ids_with_weight() -> None:
    row = np.full(1000, -np.inf, dtype=np.float32)
    row[[300, 301, 700]] = 0.0
    for params in (SamplingParams(), SamplingParams(top_k=3)):
        target = made(row, params)
        assert target.draw(0.0) == 300
        assert target.draw(1 - 2.0**-53) == 700
        assert target.draw(1 / 3 + 1e-9) == 301


def test_a_draw_from_a_long_row_hits_each_id_where_its_share_begins() -> None:
    """Block borders are no borders of the distribution: weights are powers of two, so every sum is exact."""
    rng = np.random.default_rng(5)
    weights = np.exp2(rng.integers(-3, 1, 1024)).astype(np.float32)
    target = Distribution(None, weights, 1024)
    ends = np.cumsum(weights.astype(np.float64))
    for token in (0, 1, 254, 255, 256, 257, 511, 512, 1023):
        start = (ends[token - 1] if token else 0.0) / ends[-1]
        assert target.draw(start + 1e-9) == token
        assert target.draw(ends[token] / ends[-1] - 1e-9) == token


def test_tokens_as_probable_as_the_last_one_kept_are_kept_too() -> None:
    row = np.array([0, 1, 2, 1, 0, 1, -5], dtype=np.float32)
    assert support(made(row, SamplingParams(top_k=2))) == {1, 2, 3, 5}
    assert support(made(row, SamplingParams(top_p=0.5))) == {1, 2, 3, 5}
    assert support(made(row, SamplingParams(min_p=float(np.exp(-1.0))))) == {1, 2, 3, 5}
    assert support(made(row, SamplingParams(top_p=1e-9))) == {2}
    assert support(made(row, SamplingParams(top_k=1, min_p=1.0, top_p=1e-9))) == {2}


def test_min_p_is_applied_before_top_p() -> None:
    """vLLM's order: top-p is of what min-p leaves. After it, {0, 1} would still be kept for 0.6 of the whole."""
    row = np.log(np.array([0.5, 0.2, 0.1, 0.1, 0.1], dtype=np.float32))
    assert support(made(row, SamplingParams(min_p=0.3, top_p=0.6))) == {0}
    assert support(made(row, SamplingParams(top_p=0.6))) == {0, 1}
    # And of what top-k leaves
    assert support(made(row, SamplingParams(top_k=2, top_p=0.7))) == {0}


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 99),
    st.sampled_from([0.01, 0.5, 4.0]),
    st.sampled_from([1, 5, 20, 50, 500, 4000, 9000]),
    st.floats(0.01, 0.999),
)
def test_long_rows_are_cut_as_a_sort_would_cut_them(seed: int, spread: float, k: int, top_p: float) -> None:
    """The ways around sorting: maxima of groups, and bands of probability."""
    rng = np.random.default_rng(seed)
    row = np.round(rng.standard_normal(8193) * spread, 2).astype(np.float32)
    row -= row.max()
    last = np.sort(row)[::-1][min(k, len(row)) - 1]
    assert (top_k_ids(row, k) == np.flatnonzero(row >= last)).all()
    weights = np.exp(row)
    ids = top_p_ids(row, weights, top_p)
    mass = weights.astype(np.float64)
    goal, least = top_p * mass.sum(), row[ids].min()
    assert (ids == np.flatnonzero(row >= least)).all()
    assert mass[ids].sum() >= goal * (1 - 1e-12)
    assert mass[row > least].sum() < goal * (1 + 1e-12)


@pytest.mark.parametrize("temperature", [1e-5, 1e-3, 1e30, 1e300])
def test_extreme_temperatures_and_logits_keep_probabilities_finite(temperature: float) -> None:
    row = np.array([3e38, -3e38, 1.0, -np.inf], dtype=np.float32)
    target = made(row, SamplingParams(temperature=temperature))
    assert np.isfinite(target.weights).all()
    assert target.weights[0] == 1
    assert target.weights[3] == 0
    infinite = np.array([np.inf, 5.0, np.inf, -np.inf], dtype=np.float32)
    target = made(infinite, SamplingParams(temperature=temperature))
    assert target.weights[:4].tolist() == [1, 0, 1, 0]


def test_a_race_without_rivals_has_no_winner() -> None:
    target = made(np.array([0.0, -np.inf, -np.inf], dtype=np.float32), SamplingParams())
    noise = np.ones(3, dtype=np.float32)
    assert target.race(noise, without=0) is None
    assert target.race(noise, without=1) == 0
    assert Distribution.certain(2, 3).race(noise, without=2) is None
    assert target.accepts(0, 1 - 2.0**-53)
    assert not target.accepts(1, 0.0)
    assert not target.accepts(-1, 0.0)
    assert not target.accepts(3, 0.0)


def test_a_seed_is_no_part_of_a_distribution() -> None:
    row = logits_of(1, 100, 0.01)
    params = SamplingParams(top_p=0.8, seed=1)
    first, second = made(row, params), made(row, replace(params, seed=2))
    assert (first.weights == second.weights).all()
