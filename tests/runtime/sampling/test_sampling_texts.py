"""Texts of a toy model: the same with and without drafts, alone and in any batch, with 1 and 2 threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from runtime.sampling.counts import TokenCounts
from runtime.sampling.params import GREEDY, SamplingParams, TokenLogprobs
from runtime.sampling.sampler import Rejection, SampledRows, Sampler

V, WIDTH, LENGTH = 23, 4, 14
TABLES = torch.randn(2, V, V, generator=torch.Generator().manual_seed(7)) * 2
PROMPT = (3, 1, 4)
# H12: a batch that mixes greedy and random requests
MIXED = (
    GREEDY,
    SamplingParams(seed=5),
    SamplingParams(temperature=0.7, top_k=3, seed=6),
    SamplingParams(top_p=0.5, seed=7, logprobs=2),
)


def model(history: Sequence[int]) -> Tensor:
    """Logits after the last two tokens."""
    return TABLES[0, history[-1]] + TABLES[1, history[-2]]


@dataclass
class Running:
    """One request of a simulated engine. Its drafter guesses right as often as `script` says."""

    params: SamplingParams
    k: int
    script: Sequence[bool] = (True, False, True, True)
    tokens: list[int] = field(default_factory=lambda: list(PROMPT))
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    counts: TokenCounts = field(default_factory=TokenCounts)

    def drafts(self) -> list[int]:
        drafts: list[int] = []
        for place in range(self.k):
            likely = int(model([*self.tokens, *drafts]).argmax())
            right = self.script[(len(self.tokens) + place) % len(self.script)]
            drafts.append(likely if right else (likely + 1) % V)
        return drafts


def run(members: Sequence[Running], mode: Rejection, length: int = LENGTH, slots: Sequence[int] = ()) -> None:
    """Passes over all members, each in its slot of a padded pass, until all are long enough."""
    sampler, slots = Sampler(V, mode), slots or range(len(members))
    while any(len(member.tokens) < len(PROMPT) + length for member in members):
        logits = torch.full((WIDTH * (1 + max(slots)), V + 5), float("nan"))
        rows = []
        for member, slot in zip(members, slots, strict=True):
            drafts = member.drafts()
            for place in range(1 + len(drafts)):
                logits[slot * WIDTH + place, :V] = model([*member.tokens, *drafts[:place]])
            rows.append(
                SampledRows(
                    member.params, member.tokens, len(PROMPT), drafts, slot * WIDTH, frozenset({2}), member.counts
                )
            )
        for member, choice in zip(members, sampler.choose(rows, logits), strict=True):
            member.tokens = member.tokens + choice.token_ids
            member.logprobs += choice.logprobs or []
            assert len(choice.logprobs or choice.token_ids) == len(choice.token_ids)


def text(params: SamplingParams, k: int = 0, mode: Rejection = "coupled") -> list[int]:
    """What the request generates alone."""
    member = Running(params, k)
    run([member], mode)
    return member.tokens[len(PROMPT) : len(PROMPT) + LENGTH]


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


PARAMS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.5, 1.0, 1.5]),
    top_k=st.sampled_from([0, 3, 10]),
    top_p=st.sampled_from([0.6, 1.0]),
    min_p=st.sampled_from([0.0, 0.05]),
    presence_penalty=st.sampled_from([0.0, 1.0]),
    frequency_penalty=st.sampled_from([0.0, 2.0, -1.0]),
    repetition_penalty=st.sampled_from([1.0, 1.4]),
    logit_bias=st.dictionaries(st.integers(0, V - 1), st.sampled_from([-100.0, 4.0]), max_size=2),
    bad_words_token_ids=st.sampled_from([(), ((5,), (3, 7)), ((9, 9, 9),)]),
    min_tokens=st.sampled_from([0, 6]),
    seed=st.integers(-(2**70), 2**70),
    logprobs=st.sampled_from([None, 0, 3]),
)


@settings(max_examples=40, deadline=None)
@given(PARAMS, st.integers(1, 3), st.lists(st.booleans(), min_size=1, max_size=6), PARAMS, st.integers(0, 3))
def test_coupled_text_depends_on_logits_seed_and_position_alone(
    params: SamplingParams, k: int, script: list[bool], other: SamplingParams, slot: int
) -> None:
    """H6 (vllm#6038): without drafts and with any, right or wrong, alone and beside others, in any slot."""
    plain = Running(params, 0)
    run([plain], "coupled")
    drafted = Running(params, k, script)
    run([drafted, Running(other, 3)], "coupled", slots=[slot, 5 - slot])
    end = len(PROMPT) + LENGTH
    assert drafted.tokens[:end] == plain.tokens[:end]
    # J3 (vllm#29216), J5 (llama.cpp#27972): one entry for each token, the one it has without drafts
    assert drafted.logprobs[:LENGTH] == plain.logprobs[:LENGTH]
    if params.logprobs is not None:
        assert len(drafted.logprobs) == len(drafted.tokens) - len(PROMPT)
        assert all(one.logprob != 0 for one in drafted.logprobs)


@pytest.mark.parametrize("mode", ["coupled", "standard"])
def test_a_seed_gives_one_text(mode: Rejection) -> None:
    """H6: twice the same, another seed another text; standard text may depend on K, never on its neighbours."""
    params = SamplingParams(seed=1)
    for k in (0, 1, 3):
        assert text(params, k, mode) == text(params, k, mode)
    assert text(params, 3, mode) != text(replace(params, seed=2), 3, mode)
    if mode == "coupled":
        assert text(params, 0) == text(params, 1) == text(params, 3)


@pytest.mark.parametrize("mode", ["coupled", "standard"])
def test_each_request_of_a_mixed_batch_is_as_it_is_alone(mode: Rejection) -> None:
    """H12: greedy and random requests in one call, in two orders, and in slots with gaps between."""
    for order, slots in (((0, 1, 2, 3), (0, 1, 2, 3)), ((3, 1, 0, 2), (7, 2, 4, 0))):
        members = [Running(MIXED[index], 3) for index in order]
        run(members, mode, slots=slots)
        for index, member in zip(order, members, strict=True):
            assert member.tokens[len(PROMPT) :][:LENGTH] == text(MIXED[index], 3, mode)


def test_greedy_without_processors_is_argmax() -> None:
    """The graph's own choice: the lowest of the largest logits, whatever is drafted."""
    tokens = list(PROMPT)
    for _ in range(LENGTH):
        tokens.append(int(model(tokens).argmax()))
    assert text(GREEDY, 0) == text(GREEDY, 3) == text(GREEDY, 3, "standard") == tokens[len(PROMPT) :]
    ties = torch.zeros(1, V)
    ties[0, [4, 9]] = 1.0
    assert Sampler(V).choose([SampledRows(GREEDY, PROMPT, 3, (), 0, frozenset())], ties)[0].token_ids == [4]


def test_a_bias_bans_on_every_verify_row() -> None:
    """H8 (vllm#42744): the token that greedy decoding picks at step 2 never appears, with drafts as without."""
    banned = text(GREEDY)[2]
    params = replace(GREEDY, logit_bias={banned: -100.0})
    plain = text(params)
    assert banned not in plain
    # Most of the drafts are what the model would say without the bias
    assert text(params, 3) == text(params, 1) == plain


def test_frequency_penalty_is_of_every_verify_row() -> None:
    """H9 (vllm#18902)."""
    params = replace(GREEDY, frequency_penalty=2.0)
    assert text(params) != text(GREEDY)
    assert text(params, 3) == text(params, 1) == text(params)


def test_min_tokens_and_bad_words_hold_inside_an_accepted_run() -> None:
    """An end before min_tokens, and a word that one draft begins and the next one ends."""
    word = tuple(text(GREEDY)[3:5])
    params = replace(GREEDY, bad_words_token_ids=(word,))
    plain = text(params)
    assert all(pair != word for pair in pairwise(plain))
    assert text(params, 3) == plain
    ending = replace(GREEDY, min_tokens=5, logit_bias={2: 100.0})
    assert text(ending, 0) == text(ending, 3)
    assert 2 not in text(ending)[:5]
    assert text(ending)[5] == 2


@pytest.mark.parametrize("mode", ["coupled", "standard"])
def test_bits_of_a_row_are_the_same_in_any_batch_and_number_of_threads(mode: Rejection) -> None:
    """At a real size, where a reduction over several rows would be split another way than over one."""
    size, requests = 49152, 16
    logits = torch.randn(requests, size, generator=torch.Generator().manual_seed(3)) * 2
    kinds = (
        SamplingParams(logprobs=5),
        SamplingParams(top_p=0.9, logprobs=1),
        SamplingParams(temperature=0.8, top_k=50, repetition_penalty=1.2, logprobs=0),
        replace(GREEDY, logprobs=20),
    )
    sampler = Sampler(size, mode)
    rows = [SampledRows(replace(kinds[i % 4], seed=i), list(PROMPT), 3, (), i, frozenset({1})) for i in range(requests)]
    with threads(2):
        together = sampler.choose(rows, logits)
    for count in (1, 2):
        with threads(count):
            for index, row in enumerate(rows):
                alone = sampler.choose([replace(row, first_row=0)], logits[index : index + 1].clone())[0]
                assert alone == together[index]
