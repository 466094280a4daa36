"""Log probabilities are those of the raw logits, ranks count what is likelier, ties go by id."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.sampling.logprobs import token_logprobs
from runtime.sampling.params import GREEDY, SamplingParams
from runtime.sampling.sampler import SampledRows, Sampler
from tests.runtime.sampling.reference import likeliest


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 999), st.sampled_from([5, 64, 3000]), st.sampled_from([0.01, 1.0]), st.integers(0, 20))
def test_logprobs_of_a_row(seed: int, vocab_size: int, step: float, num_top: int) -> None:
    rng = np.random.default_rng(seed)
    row = (np.round(rng.standard_normal(vocab_size) * 4 / step) * step).astype(np.float32)
    row[0] = -np.inf
    chosen = int(rng.integers(1, vocab_size))
    found = token_logprobs(row, chosen, num_top)
    expected = torch.log_softmax(torch.from_numpy(row).double(), dim=-1)
    assert found.token_id == chosen
    assert found.logprob == pytest.approx(float(expected[chosen]), rel=1e-5, abs=1e-5)
    assert found.rank == 1 + int((row > row[chosen]).sum())
    assert [token for token, _ in found.top] == likeliest(torch.from_numpy(row), num_top)
    for token, logprob in found.top:
        assert logprob == pytest.approx(float(expected[token]), rel=1e-5, abs=1e-5)


def test_ties_share_the_better_rank_and_go_by_id() -> None:
    row = np.array([1, 3, 2, 3, 3, 2], dtype=np.float32)
    assert token_logprobs(row, 4, 0).rank == 1
    assert token_logprobs(row, 5, 0).rank == 4
    assert token_logprobs(row, 0, 0).rank == 6
    assert [token for token, _ in token_logprobs(row, 0, 4).top] == [1, 3, 4, 2]
    assert token_logprobs(row, 0, 0).top == ()


def test_what_has_no_probability_and_infinite_logits() -> None:
    row = np.array([0, -np.inf], dtype=np.float32)
    assert token_logprobs(row, 1, 2).logprob == -math.inf
    assert token_logprobs(row, 0, 2).top == ((0, 0.0), (1, -math.inf))
    nothing = np.full(3, -np.inf, dtype=np.float32)
    assert token_logprobs(nothing, 0, 1).logprob == -math.inf
    endless = np.array([np.inf, 0, np.inf], dtype=np.float32)
    assert token_logprobs(endless, 2, 1).logprob == pytest.approx(math.log(0.5))


@pytest.mark.parametrize("temperature", [0.0, 2.0])
def test_they_are_of_the_logits_before_processors_and_temperature(temperature: float) -> None:
    logits = torch.tensor([[0.5, 2.0, -1.0, 0.0]])
    params = SamplingParams(
        temperature=temperature, seed=1, logit_bias={3: 100.0}, frequency_penalty=1.0, top_k=1, logprobs=2
    )
    choice = Sampler(4).choose([SampledRows(params, [0, 1, 1], 1, (), 0, frozenset())], logits)[0]
    assert choice.token_ids == [3]
    assert choice.logprobs is not None
    expected = torch.log_softmax(logits[0], dim=-1)
    assert choice.logprobs[0].logprob == pytest.approx(float(expected[3]), abs=1e-6)
    assert choice.logprobs[0].rank == 3
    assert [token for token, _ in choice.logprobs[0].top] == [1, 0]


@pytest.mark.parametrize("accepted", [0, 1, 2, 3])
def test_one_for_each_token_for_every_accept_pattern(accepted: int) -> None:
    """J3 (vllm#29216) and J5 (llama.cpp#27972): of the row that chose the token, and never exactly 0."""
    logits = torch.randn(4, 64, generator=torch.Generator().manual_seed(accepted))
    best = logits.argmax(dim=-1).tolist()
    drafts = [token if place < accepted else (token + 1) % 64 for place, token in enumerate(best[:3])]
    request = SampledRows(replace(GREEDY, logprobs=3), [1], 1, drafts, 0, frozenset())
    choice = Sampler(64).choose([request], logits)[0]
    assert choice.token_ids == best[: accepted + 1]
    assert choice.logprobs is not None
    assert len(choice.logprobs) == len(choice.token_ids)
    expected = torch.log_softmax(logits, dim=-1)
    for place, one in enumerate(choice.logprobs):
        assert one.token_id == choice.token_ids[place]
        assert one.logprob == pytest.approx(float(expected[place, one.token_id]), abs=1e-5)
        assert one.logprob != 0
        assert one.rank == 1
    assert Sampler(64).choose([replace(request, params=GREEDY)], logits)[0].logprobs is None
