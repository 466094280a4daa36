"""Graphs that draw tokens give the text that the host's sampler gives on logits: alone, in a batch, at any K, without
drafts; greedy requests keep plain decoding's.
"""

from __future__ import annotations

import dataclasses

import pytest

from runtime.bundle.errors import UsageError
from runtime.fused import draft_proposer
from runtime.proposer import NoProposer
from runtime.request import Request
from runtime.sampling.params import GREEDY, SamplingParams
from tests.runtime.loop.rig import NO_EOS, Shape, make_rig, oracle, prompt_of, text_of

SAMPLED = Shape(sampled=True, layers=4)
HOST = Shape(greedy_only=False, layers=4)
MIXED = (
    SamplingParams(temperature=1.0, seed=1),
    GREEDY,
    SamplingParams(temperature=0.7, top_k=5, seed=-7),
    SamplingParams(temperature=1.5, top_p=0.8, min_p=0.02, seed=2**70),
)


def requests(*asked: SamplingParams, max_tokens: int = 14) -> list[Request]:
    """One request for each, with prompts of different lengths, one of several chunks."""
    return [
        Request(str(i), prompt_of(3 + 9 * i, seed=i), max_tokens, sampling=params) for i, params in enumerate(asked)
    ]


def texts(shape: Shape, batch: list[Request], speculation: bool = True) -> list[tuple[int, ...]]:
    assert shape.eos == NO_EOS
    proposer = draft_proposer if speculation else NoProposer()
    return [output.token_ids for output in make_rig(shape).generate(*batch, proposer=proposer)]


@pytest.fixture(scope="module")
def right() -> list[tuple[int, ...]]:
    """What the host's sampler gives each request, alone and without drafts."""
    return [texts(HOST, [request], speculation=False)[0] for request in requests(*MIXED)]


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("fused", [False, True])
def test_a_mixed_batch_has_the_host_s_text(k: int, fused: bool, right: list[tuple[int, ...]]) -> None:
    shape = dataclasses.replace(SAMPLED, k=k, draft_fused=fused)
    assert texts(shape, requests(*MIXED)) == right
    assert texts(dataclasses.replace(HOST, k=k, draft_fused=fused), requests(*MIXED)) == right


def test_it_is_the_text_without_drafts_and_alone(right: list[tuple[int, ...]]) -> None:
    assert texts(SAMPLED, requests(*MIXED), speculation=False) == right
    assert [texts(SAMPLED, [request])[0] for request in requests(*MIXED)] == right


def test_a_graph_of_one_row_draws_the_same(right: list[tuple[int, ...]]) -> None:
    """target_decode, which plain decoding takes where greedy speculation need not be exact."""
    shape = dataclasses.replace(SAMPLED, exact_greedy=False)
    assert texts(shape, requests(*MIXED)) == right
    assert texts(shape, requests(*MIXED), speculation=False) == right


def test_another_seed_is_another_text_and_greedy_is_plain(right: list[tuple[int, ...]]) -> None:
    other = [dataclasses.replace(params, seed=99) for params in MIXED]
    changed = texts(SAMPLED, requests(*other))
    assert [ours == theirs for ours, theirs in zip(changed, right, strict=True)] == [False, True, False, False]
    rig = make_rig(SAMPLED)
    greedy = requests(*MIXED)[1]
    assert list(right[1]) == rig.plain(greedy.prompt_token_ids, greedy.max_tokens)


@pytest.mark.parametrize("pattern", [(0,), (1,), (2,), (3,), (0, 1, 2, 3), (3, 0)])
def test_drafts_are_accepted_while_they_are_what_is_drawn(
    pattern: tuple[int, ...], right: list[tuple[int, ...]]
) -> None:
    """A script that knows the drawn text accepts what it says, and the text stays what it is."""
    long = [texts(HOST, [request], speculation=False)[0] for request in requests(*MIXED, max_tokens=17)]
    batch = requests(*MIXED)
    known = {request.request_id: [*request.prompt_token_ids, *text] for request, text in zip(batch, long, strict=True)}
    outputs = make_rig(SAMPLED).generate(*batch, proposer=oracle(known, pattern))
    assert [output.token_ids for output in outputs] == right
    accepted = outputs[0].spec_decode.num_accepted_tokens_per_pos
    assert len(accepted) == 3
    assert (accepted[0] > 0) == any(pattern)
    if pattern == (3,):
        assert accepted[0] == accepted[1]


def test_what_needs_logits_is_refused_by_name() -> None:
    engine = make_rig(SAMPLED).engine()
    for field, value in (("presence_penalty", 0.5), ("logprobs", 2), ("logit_bias", {3: 1.0})):
        params = dataclasses.replace(MIXED[0], **{field: value})
        with pytest.raises(UsageError, match=field):
            engine.add_request(Request("r", (1, 2), sampling=params))


def test_greedy_requests_alone_are_plain() -> None:
    rig = make_rig(SAMPLED)
    batch = [Request(str(i), prompt_of(4 + i, seed=i), 12) for i in range(3)]
    for request, output in zip(batch, rig.generate(*batch), strict=True):
        assert [*request.prompt_token_ids, *output.token_ids] == text_of(rig, request, spare=0)
