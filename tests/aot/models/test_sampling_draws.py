"""Tokens drawn inside a graph: the sets that are kept, the draw, and what no input may bring about."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from aot.models.llama import argmax
from aot.models.sampling import Asked, draw, kept_weights
from runtime.sampling.distribution import distribution
from runtime.sampling.noise import Purpose, uniforms
from runtime.sampling.params import SamplingParams

STEPS = 1 << 24


def asked(params: list[SamplingParams], uniform: Tensor) -> Asked:
    """One request for each of `params`, whose rows share the uniforms in turn."""
    return Asked(
        torch.tensor([p.temperature for p in params]),
        torch.tensor([p.top_k for p in params], dtype=torch.int32),
        torch.tensor([p.top_p for p in params]),
        torch.tensor([p.min_p for p in params]),
        uniform,
    )


def drawn(logits: Tensor, params: SamplingParams, uniform: float) -> int:
    """The token of one row [V]."""
    return int(draw(logits[None], asked([params], torch.tensor([uniform])), argmax(logits[None])))


def kept(logits: Tensor, params: SamplingParams) -> list[int]:
    """The ids that can be drawn from one row [V]."""
    weights = kept_weights(logits[None], asked([params], torch.zeros(1)).of_rows())
    return torch.nonzero(weights.flatten()).flatten().tolist()


def plainly_kept(logits: Tensor, params: SamplingParams) -> list[int]:
    """The same by sorting, in float64."""
    chances = torch.softmax(logits.double() / params.temperature, dim=0)
    alive = chances >= params.min_p * chances.max()
    if params.top_k > 0:
        alive &= logits >= logits.sort(descending=True).values[min(params.top_k, len(logits)) - 1]
    if params.top_p < 1:
        rest = torch.where(alive, chances, 0.0)
        order = rest.argsort(descending=True)
        sums = rest[order].cumsum(0) / rest.sum()
        last = order[int((sums < params.top_p).sum())]
        alive &= logits >= logits[last]
    return torch.nonzero(alive).flatten().tolist()


# Chances are multiples of 1/64, so that no threshold below falls within rounding of a sum
EIGHT = torch.log(torch.tensor([4.0, 1.0, 16.0, 8.0, 16.0, 2.0, 16.0, 1.0]) / 64)


@pytest.mark.parametrize(
    ("changes", "ids"),
    [
        ({}, [0, 1, 2, 3, 4, 5, 6, 7]),
        ({"top_k": 1}, [2, 4, 6]),  # equal ones stay together
        ({"top_k": 3}, [2, 4, 6]),
        ({"top_k": 4}, [2, 3, 4, 6]),
        ({"top_k": 8}, [0, 1, 2, 3, 4, 5, 6, 7]),
        ({"top_k": 10**9}, [0, 1, 2, 3, 4, 5, 6, 7]),
        ({"top_k": -1}, [0, 1, 2, 3, 4, 5, 6, 7]),
        ({"top_p": 1e-9}, [2, 4, 6]),
        ({"top_p": 0.8}, [2, 3, 4, 6]),
        ({"top_p": 0.9}, [0, 2, 3, 4, 6]),
        ({"min_p": 0.2}, [0, 2, 3, 4, 6]),
        ({"min_p": 1.0}, [2, 4, 6]),
        # 52 of the 56 parts that top_k leaves are reached by the first three, 48, and the next, 56
        ({"top_k": 4, "top_p": 0.9}, [2, 3, 4, 6]),
        ({"top_k": 4, "top_p": 0.8}, [2, 4, 6]),
        ({"min_p": 0.4, "top_p": 0.8}, [2, 4, 6]),
        # Twice as cold, chances are squared: 16, 1, 256, 64, 256, 4, 256, 1 of 854
        ({"temperature": 0.5, "min_p": 0.2}, [2, 3, 4, 6]),
    ],
)
def test_the_tokens_that_are_kept(changes: dict[str, float], ids: list[int]) -> None:
    params = SamplingParams(**changes)  # type: ignore[arg-type]
    assert kept(EIGHT, params) == ids
    assert plainly_kept(EIGHT, params) == ids


def test_a_token_is_drawn_where_the_running_sum_passes_the_uniform() -> None:
    """64ths in id order: 4, 1, 16, 8, 16, 2, 16, 1."""
    ends = [4, 5, 21, 29, 45, 47, 63, 64]
    for token, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        inside = 0.5 / STEPS
        assert drawn(EIGHT, SamplingParams(), start / 64 + 64 * inside) == token
        assert drawn(EIGHT, SamplingParams(), end / 64 - 64 * inside) == token
    assert drawn(EIGHT, SamplingParams(top_k=3), 0.0) == 2
    assert drawn(EIGHT, SamplingParams(top_k=3), 1 - 1 / STEPS) == 6


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    vocab=st.sampled_from([1, 2, 63, 64, 255, 256, 257, 1000, 8193]),
    spread=st.sampled_from([0.1, 1.0, 4.0, 20.0]),
    temperature=st.sampled_from([1e-5, 0.3, 1.0, 2.0, 50.0]),
    top_k=st.sampled_from([0, 1, 2, 50, 300, 9000]),
    top_p=st.sampled_from([1e-6, 0.3, 0.9, 0.999, 1.0]),
    min_p=st.sampled_from([0.0, 0.01, 0.3, 1.0]),
    coarse=st.booleans(),
)
def test_it_draws_what_the_host_draws(
    seed: int, vocab: int, spread: float, temperature: float, top_k: int, top_p: float, min_p: float, coarse: bool
) -> None:
    """Any set of parameters; logits in steps of 1/4 give many ties. Sums in float32 may lie a millionth aside."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(3, vocab, generator=generator) * spread
    if coarse:
        logits = (logits * 4).round() / 4
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    uniform = torch.tensor([int(u * STEPS) / STEPS for u in uniforms(seed, 0, 3, Purpose.DRAW)])
    got = draw(logits, asked([params], uniform), argmax(logits))
    for row, token, u in zip(logits, got.tolist(), uniform.tolist(), strict=True):
        host = distribution(row.numpy(), row.numpy().max(), params)
        near = {host.draw(min(max(u + aside, 0.0), 1 - 1 / STEPS)) for aside in (0.0, -3e-6, 3e-6)}
        assert token in near


@pytest.mark.parametrize("vocab", [63, 64, 65, 8193, 151936])
def test_ids_stay_in_the_vocabulary(vocab: int) -> None:
    """H1 (vllm#53029): a thousand draws of the small sizes, with the largest and the smallest uniforms among them."""
    generator = torch.Generator().manual_seed(vocab)
    rows = 250 if vocab < 100 else 8
    for scale in (0.0, 1.0, 5.0, 100.0):
        logits = torch.randn(rows, vocab, generator=generator) * scale
        uniform = torch.randint(0, STEPS, (rows,), generator=generator) / STEPS
        uniform[:3] = torch.tensor([0.0, 1 - 1 / STEPS, 0.5])
        tokens = draw(logits, asked([SamplingParams(top_p=0.999)] * rows, uniform), argmax(logits))
        assert tokens.dtype == torch.int32
        assert bool(((tokens >= 0) & (tokens < vocab)).all())


@pytest.mark.parametrize("bad", [math.nan, -math.inf])
def test_what_is_no_number_is_never_drawn(bad: float) -> None:
    """H4: a graph's failure may not choose a token, nor a token outside the vocabulary when nothing else is left."""
    logits = torch.full((40, 300), bad)
    uniform = torch.arange(40) / 40
    assert draw(logits, asked([SamplingParams()] * 40, uniform), argmax(logits)).tolist() == [0] * 40
    logits[:, 7], logits[:, 270] = 1.0, 2.0
    for params in (SamplingParams(), SamplingParams(top_k=2), SamplingParams(top_p=0.9), SamplingParams(min_p=0.1)):
        tokens = draw(logits, asked([params] * 40, uniform), argmax(logits))
        assert set(tokens.tolist()) == {7, 270}


def test_infinite_logits_share_the_weight() -> None:
    logits = torch.tensor([1.0, math.inf, 3.0, math.inf])
    assert kept(logits, SamplingParams()) == [1, 3]
    assert [drawn(logits, SamplingParams(), u) for u in (0.0, 0.49, 0.51, 0.99)] == [1, 1, 3, 3]


@pytest.mark.parametrize("field", ["temperature", "top_p", "min_p", "uniforms"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1.0, 0.0, 1.0, 1e38, 1e-45])
def test_no_input_brings_about_an_id_that_is_none(field: str, value: float) -> None:
    """Whatever an input holds: an id of the vocabulary comes out, and the neighbouring request is left alone."""
    logits = torch.randn(2, 500, generator=torch.Generator().manual_seed(3))
    sane = asked([SamplingParams(top_k=20, top_p=0.9, min_p=0.01)] * 2, torch.tensor([0.3, 0.6]))
    changed = sane._replace(**{field: torch.tensor([value, float(getattr(sane, field)[1])])})
    first, second = draw(logits, changed, argmax(logits)).tolist()
    assert 0 <= first < 500
    assert second == draw(logits, sane, argmax(logits)).tolist()[1]


def test_greedy_rows_take_the_argmax() -> None:
    """Greedy and random requests in one pass, two rows each (H12)."""
    logits = torch.randn(6, 100, generator=torch.Generator().manual_seed(1))
    params = [
        SamplingParams(temperature=0.0, top_k=3),
        SamplingParams(temperature=3.0),
        SamplingParams(temperature=1e-6),
    ]
    tokens = draw(logits, asked(params, torch.full((6,), 0.999)), argmax(logits))
    best = logits.argmax(dim=1).tolist()
    assert tokens.tolist()[:2] + tokens.tolist()[4:] == best[:2] + best[4:]
    assert tokens.tolist()[2:4] == [drawn(row, params[1], 0.999) for row in logits[2:4]] != best[2:4]


def test_a_row_draws_the_same_in_any_company() -> None:
    """Bits of a row's sums do not depend on how many rows there are, nor on threads."""
    logits = torch.randn(16, 5000, generator=torch.Generator().manual_seed(2)) * 3
    rows = asked([SamplingParams(top_p=0.95)] * 16, torch.zeros(16))
    together = kept_weights(logits, rows)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for row in range(16):
            one = Asked(*(value[row : row + 1] for value in rows))
            assert torch.equal(kept_weights(logits[row : row + 1], one)[0], together[row])
    finally:
        torch.set_num_threads(before)


# 99.9 % of the chi-square distribution with 7 degrees of freedom
CHI_SQUARE_7 = 24.32


@pytest.mark.parametrize(("temperature", "top_k"), [(1.0, 0), (2.0, 0), (1.0, 5)])
def test_draws_follow_the_distribution(temperature: float, top_k: int) -> None:
    """H5: 20,000 draws over eight tokens with the numbers of one seed's positions."""
    logits = torch.tensor([0.5, -1.0, 1.5, 0.0, -0.3, 0.9, -2.0, 0.2])
    params = SamplingParams(temperature=temperature, top_k=top_k)
    runs = 20_000
    uniform = torch.tensor([int(u * STEPS) / STEPS for u in uniforms(11, 0, runs, Purpose.DRAW)])
    tokens = draw(logits.expand(runs, -1), asked([params] * runs, uniform), argmax(logits.expand(runs, -1)))
    alive = torch.zeros(8, dtype=torch.bool)
    alive[plainly_kept(logits, params)] = True
    expected = runs * torch.softmax(torch.where(alive, logits, -math.inf) / temperature, dim=0)
    seen = torch.bincount(tokens, minlength=8).float()
    assert bool((seen[~alive] == 0).all())
    assert float(((seen - expected) ** 2 / expected)[alive].sum()) < CHI_SQUARE_7
