"""Draws have the right distribution whichever way drafts are rejected, and stay inside the vocabulary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import Tensor

from runtime.bundle.signs import NOT_FINITE
from runtime.sampling.noise import Purpose, exponentials, uniforms
from runtime.sampling.params import GREEDY, SamplingParams
from runtime.sampling.sampler import Choice, Rejection, SampledRows, Sampler
from tests.runtime.sampling.reference import chi_square, kept, probabilities

V, RUNS = 8, 20_000
# 99.9 % quantiles of chi-square, by degrees of freedom
QUANTILE = {3: 16.266, 6: 22.458, 7: 24.322, 15: 37.697}
PLAIN = SamplingParams()
MODES: tuple[Rejection, ...] = ("coupled", "standard")


def two_rows() -> Tensor:
    """Logits of a row with a draft and of the row after it, unlike each other and far from uniform."""
    return torch.tensor([[0.3, -1.0, 1.2, 0.0, 2.0, -0.4, 0.9, 0.1], [1.5, 0.2, -0.7, 0.8, -1.2, 0.0, 0.4, 1.1]])


def verify(
    mode: Rejection, params: SamplingParams, logits: Tensor, drafts: Sequence[int], runs: int, first_seed: int = 0
) -> list[Choice]:
    """Passes over the same logits, each with its own seed and position."""
    requests = [
        SampledRows(replace(params, seed=first_seed + run // 50), range(3 + run % 50), 3, drafts, 0, frozenset())
        for run in range(runs)
    ]
    return Sampler(logits.shape[1], mode).choose(requests, logits)


def counted(tokens: Sequence[int], size: int = V) -> list[int]:
    counts = Counter(tokens)
    return [counts[token] for token in range(size)]


@pytest.mark.parametrize("mode", MODES)
def test_verified_tokens_have_the_targets_distribution(mode: Rejection) -> None:
    """H5 (sglang#31214): position 0, the token recovered after a rejection, and the bonus token; T=1, 20k passes."""
    logits, draft = two_rows(), 2
    target, after = torch.softmax(logits.double(), dim=-1).tolist()
    choices = verify(mode, PLAIN, logits, [draft], RUNS)
    first = [choice.token_ids[0] for choice in choices]
    assert chi_square(counted(first), target) < QUANTILE[7]
    accepted = [choice for choice in choices if choice.token_ids[0] == draft]
    # A draft is accepted as often as it is probable, within three deviations
    share, p = len(accepted) / RUNS, target[draft]
    assert abs(share - p) < 3 * (p * (1 - p) / RUNS) ** 0.5
    rest = [0.0 if token == draft else value / (1 - p) for token, value in enumerate(target)]
    assert chi_square(counted([token for token in first if token != draft]), rest) < QUANTILE[6]
    assert all(len(choice.token_ids) == (2 if choice.token_ids[0] == draft else 1) for choice in choices)
    assert chi_square(counted([choice.token_ids[1] for choice in accepted]), after) < QUANTILE[7]


@pytest.mark.parametrize("mode", MODES)
def test_temperature_and_truncation_are_of_the_draw_and_of_the_acceptance(mode: Rejection) -> None:
    params = SamplingParams(temperature=0.6, top_k=5, top_p=0.97)
    logits = two_rows()
    ids, _ = kept(logits[0], params)
    target = probabilities(logits[0], params, ids).tolist()
    runs = 6000
    choices = verify(mode, params, logits, [6], runs)
    assert ids == {0, 2, 4, 6}
    assert chi_square(counted([choice.token_ids[0] for choice in choices]), target) < QUANTILE[3]
    share = sum(len(choice.token_ids) == 2 for choice in choices) / runs
    assert abs(share - target[6]) < 3 * (target[6] * (1 - target[6]) / runs) ** 0.5
    # A draft that was cut off is never accepted
    assert all(choice.token_ids[0] in ids for choice in verify(mode, params, logits, [1], 200))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("k", [1, 2])
def test_texts_have_the_distribution_of_plain_sampling(mode: Rejection, k: int) -> None:
    """Two tokens of a Markov chain over four, committed by one pass or by several."""
    size, runs = 4, 2500
    table = torch.tensor([[0.0, 1, -1, 0.5], [1, 0, 0, -2], [0.3, 0.3, 2, 0], [-1, 0.7, 0, 1]])
    chain = torch.softmax(table.double(), dim=-1)
    sampler = Sampler(size, mode)
    seen: Counter[tuple[int, int]] = Counter()
    for seed in range(runs):
        tokens = [0]
        while len(tokens) < 3:
            drafts = [(tokens[-1] + 2) % size, 1][:k]
            logits = table[[tokens[-1], *drafts]]
            request = SampledRows(replace(PLAIN, seed=seed), tokens, 1, drafts, 0, frozenset())
            tokens = tokens + sampler.choose([request], logits)[0].token_ids
        seen[tokens[1], tokens[2]] += 1
    pairs = list(product(range(size), repeat=2))
    expected = [float(chain[0, one] * chain[one, two]) for one, two in pairs]
    assert chi_square([seen[pair] for pair in pairs], expected) < QUANTILE[15]


@pytest.mark.parametrize("vocab_size", [63, 64, 65, 8193, 151936])
@pytest.mark.parametrize("mode", MODES)
def test_no_id_reaches_the_vocabulary(vocab_size: int, mode: Rejection) -> None:
    """H1 (vllm#44744): columns past the vocabulary hold what would win, and are never chosen."""
    runs = 1000 if vocab_size < 9000 or mode == "coupled" else 100
    logits = torch.randn(2, vocab_size + 64, generator=torch.Generator().manual_seed(1))
    logits[:, vocab_size:] = 1e30
    logits[0, vocab_size - 1] = 4.0
    sampler = Sampler(vocab_size, mode)
    kinds = (PLAIN, SamplingParams(top_k=3), SamplingParams(top_p=0.9), replace(GREEDY, logprobs=3))
    for run in range(runs):
        params = replace(kinds[run % len(kinds) if vocab_size < 9000 else 0], seed=run)
        request = SampledRows(params, [1, 2], 1, [vocab_size - 1], 0, frozenset())
        choice = sampler.choose([request], logits)[0]
        assert all(0 <= token < vocab_size for token in choice.token_ids)
        assert all(0 <= token < vocab_size for one in choice.logprobs or () for token, _ in one.top)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("params", [PLAIN, SamplingParams(top_k=2), GREEDY])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_n1_a_row_that_is_not_finite_gives_a_sign_and_the_rows_before_it_tokens(
    bad: float, params: SamplingParams, mode: Rejection
) -> None:
    """H3 (vllm#42722) and H4 (vllm#41834): whatever the drafts are; a row that nobody reaches is not judged."""
    logits = torch.full((3, 4), -90.0)
    logits[0, 1] = logits[1, 2] = logits[2, 0] = 90.0
    for place in range(3):
        broken = logits.clone()
        broken[place, 3] = bad
        for seed, drafts in product(range(5), [(), (1,), (1, 2), (0, 2), (-1, 7), (1, 3)]):
            request = SampledRows(replace(params, seed=seed, logprobs=1), [1], 1, drafts, 0, frozenset())
            choice = Sampler(4, mode).choose([request], broken)[0]
            sound = Sampler(4, mode).choose([request], logits)[0]
            if place < len(sound.token_ids):
                assert choice.token_ids == [*sound.token_ids[:place], NOT_FINITE]
                assert choice.logprobs == (sound.logprobs or [])[:place]
            else:
                assert choice == sound


def test_n2_a_request_whose_choice_fails_leaves_the_others_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
    good = SampledRows(replace(PLAIN, seed=1), [1], 1, (), 0, frozenset())
    # No seed, which the engine would have given
    broken = SampledRows(PLAIN, [1], 1, (), 1, frozenset())
    first, second = Sampler(4).choose([good, broken], logits)
    assert first == Sampler(4).choose([good], logits)[0]
    assert (second.token_ids, first.error) == ([NOT_FINITE], None)
    assert isinstance(second.error, AssertionError)


def test_a_draft_that_has_all_probability_is_always_accepted() -> None:
    """Also where rounding would leave the rest with nothing to recover from."""
    logits = torch.full((2, 8193), -200.0)
    logits[:, 77] = 0.0
    for mode in MODES:
        choices = verify(mode, PLAIN, logits, [77], 100)
        assert all(choice.token_ids == [77, 77] for choice in choices)


def test_standard_numbers_are_those_of_the_tokens_own_position() -> None:
    """Accept below p(draft); else, and for the bonus, the largest p / noise of the position that is drawn."""
    logits = 2 * torch.randn(3, 64, generator=torch.Generator().manual_seed(2))
    weights = torch.exp(logits - logits.max(dim=-1, keepdim=True).values).numpy()
    drafts, start, lengths = logits.argmax(dim=-1).tolist()[:2], 5, set()
    for seed in range(200):
        expected: list[int] = []
        for place, draft in enumerate((*drafts, None)):
            scores = weights[place] / exponentials(seed, start + place, Purpose.RECOVER, 64)
            if draft is not None:
                if uniforms(seed, start + place, 1, Purpose.ACCEPT)[0] * weights[place].sum() < weights[place][draft]:
                    expected.append(draft)
                    continue
                scores[draft] = 0
            expected.append(int(scores.argmax()))
            break
        request = SampledRows(replace(PLAIN, seed=seed), range(start), 1, drafts, 0, frozenset())
        assert Sampler(64, "standard").choose([request], logits)[0].token_ids == expected
        lengths.add(len(expected))
    assert lengths == {1, 2, 3}
