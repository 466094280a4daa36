"""How a request ends: at its last token, at an end-of-sequence id inside an accepted run, at the model's length."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import torch

from runtime.graphs import GraphSet
from runtime.prefix import PrefixCaching
from runtime.proposer import EagleProposer, NoProposer, Proposer, ScriptedProposer
from runtime.request import Request
from runtime.sequence import Sequence
from tests.runtime.loop.rig import (
    MAX_LEN,
    VOCAB,
    K,
    Rig,
    Shape,
    Watch,
    make_rig,
    observe,
    oracle,
    prompt_of,
    text_of,
    with_eos,
)

PATTERNS = [(3,), (0,), (1, 2), (2, 3, 0)]


def distinct_start(rig: Rig) -> tuple[tuple[int, ...], list[int]]:
    """A prompt whose first nine generated tokens are all different, so that each can be made a stop of its own."""
    for seed in range(200):
        prompt = prompt_of(7, seed)
        text = rig.plain(prompt, 12)
        if len(set(text[:9])) == 9:
            return prompt, text
    raise LookupError("no prompt of this rig starts with nine different tokens")


# max_tokens


@pytest.mark.parametrize("max_tokens", range(1, 10))
@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_max_tokens_is_exact(max_tokens: int, pattern: tuple[int, ...]) -> None:
    """I7 (EAGLE's own eagenerate): neither an accepted run nor its bonus token goes past it."""
    rig = make_rig()
    request = Request("a", prompt_of(7), max_tokens=max_tokens)
    (output,) = rig.generate(request, proposer=oracle({"a": text_of(rig, request)}, pattern))
    assert list(output.token_ids) == rig.plain(request.prompt_token_ids, max_tokens)
    assert output.finish_reason == "length"


@pytest.mark.parametrize(("caching", "beside"), [("off", {}), ("exact", {"draft_initial_prefill": 3})])
def test_one_token_asks_the_draft_for_nothing(caching: PrefixCaching, beside: dict[str, int]) -> None:
    """E9 (local-inference-lab/vllm#439): max_tokens=1 is one target prefill, chunks included.

    Where prefixes are cached the draft's rows of the prompt are made for those who find it, and no chain.
    """
    rig = make_rig(Shape(prefill_tokens=(5,)))
    engine, ran = rig.engine(prefix_caching=caching), []
    observe(engine, lambda spec, inputs: ran.append(spec.kind))
    (output,) = engine.generate([Request("a", prompt_of(13), max_tokens=1)])
    assert list(output.token_ids) == rig.plain(prompt_of(13), 1)
    assert Counter(ran) == {"target_prefill": 3, **beside}


def test_two_tokens_leave_no_room_for_a_draft() -> None:
    """A verify pass commits one token more than it holds drafts, so the second token is a plain step."""
    rig = make_rig()
    engine, ran = rig.engine(prefix_caching="off"), []
    observe(engine, lambda spec, inputs: ran.append(spec.kind))
    engine.generate([Request("a", prompt_of(7), max_tokens=2)])
    assert Counter(ran) == {"target_prefill": 1, "target_verify": 1}


# End of sequence


@pytest.mark.parametrize("index", range(9))
@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_an_end_of_sequence_ends_the_text_wherever_it_stands(index: int, pattern: tuple[int, ...]) -> None:
    """I1 (transformers#47912): first token, inside an accepted run, its bonus token: nothing behind it comes out."""
    rig = make_rig()
    prompt, text = distinct_start(rig)
    stopping = with_eos(rig, text[index])
    (output,) = stopping.generate(
        Request("a", prompt, max_tokens=12), proposer=oracle({"a": [*prompt, *rig.plain(prompt, 16)]}, pattern)
    )
    assert list(output.token_ids) == text[: index + 1]
    assert output.finish_reason == "stop"


def test_any_of_several_end_of_sequence_ids_stops() -> None:
    rig = make_rig()
    prompt, text = distinct_start(rig)
    (output,) = with_eos(rig, text[6], text[4]).generate(Request("a", prompt, max_tokens=12))
    assert (list(output.token_ids), output.finish_reason) == (text[:5], "stop")


def test_an_end_of_sequence_as_the_last_allowed_token_is_a_stop() -> None:
    rig = make_rig()
    prompt, text = distinct_start(rig)
    (output,) = with_eos(rig, text[4]).generate(Request("a", prompt, max_tokens=5))
    assert (list(output.token_ids), output.finish_reason) == (text[:5], "stop")


def test_a_draft_that_proposes_the_end_ends_nothing() -> None:
    """I4 (openvino.genai#3293): the target rejects the end-of-sequence id that the draft proposed in every row."""
    rig = make_rig()
    prompt, text = distinct_start(rig)
    unused = next(token for token in range(VOCAB) if token not in text)
    for row in range(K):

        def script(sequence: Sequence, room: int, row: int = row) -> list[int]:
            right = text[len(sequence.token_ids) - len(prompt) :][:room]
            return [*right[:row], unused, *right[row + 1 :]][:room]

        request = Request("a", prompt, max_tokens=9)
        (output,) = with_eos(rig, unused).generate(request, proposer=ScriptedProposer(script, K))
        assert (list(output.token_ids), output.finish_reason) == (text[:9], "length")
        assert output.spec_decode.num_draft_tokens > output.spec_decode.num_accepted_tokens


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_ignore_eos_goes_on(pattern: tuple[int, ...]) -> None:
    """I5 (openvino.genai#3396): an end-of-sequence id at index 2, and eight tokens wanted."""
    rig = make_rig()
    prompt, text = distinct_start(rig)
    request = Request("a", prompt, max_tokens=8, ignore_eos=True)
    proposer = oracle({"a": [*prompt, *rig.plain(prompt, 12)]}, pattern)
    (output,) = with_eos(rig, text[2]).generate(request, proposer=proposer)
    assert (list(output.token_ids), output.finish_reason) == (text[:8], "length")


def test_a_stop_inside_an_accepted_run_frees_the_blocks_and_lets_the_others_go_on() -> None:
    rig = make_rig()
    prompt, text = distinct_start(rig)
    other = Request("b", prompt_of(5, 3), max_tokens=14, ignore_eos=True)
    stopping = Request("a", prompt, max_tokens=14)
    texts = {"a": [*prompt, *rig.plain(prompt, 20)], "b": text_of(rig, other)}
    engine = with_eos(rig, text[2]).engine(oracle(texts, (3,)))
    first, second = engine.generate([stopping, other])
    assert list(first.token_ids) == text[:3]
    assert list(second.token_ids) == rig.plain(other.prompt_token_ids, 14)
    assert engine.blocks.num_free == engine.blocks.num_blocks - 1


# The model's length

SHORT = Shape(max_model_len=32, context_tokens=(16, 32), prefill_tokens=(32,), kv_blocks=40)


@pytest.mark.parametrize("length", range(26, 32))
@pytest.mark.parametrize("draft", ["oracle", "eagle", "none"])
def test_a_text_ends_at_max_model_len_and_writes_nothing_past_it(length: int, draft: str) -> None:
    """E2 (vllm#22935): prompts of 26..31, max_model_len 32: plain decoding's text, the KV beside it untouched."""
    rig = make_rig(SHORT)
    prompt = prompt_of(length, length)
    proposers: dict[str, Proposer | Callable[[GraphSet], Proposer]] = {
        "oracle": oracle({"a": [*prompt, *rig.plain(prompt, 12)]}, (3,)),
        "eagle": EagleProposer,
        "none": NoProposer(),
    }
    engine = rig.engine(proposers[draft])
    canary = 7.5
    for pool in engine.graphs.pools.values():
        pool.fill_(canary)
    (output,) = engine.generate([Request("a", prompt, max_tokens=100)])
    assert list(output.token_ids) == rig.plain(prompt, 32 - length)
    assert output.finish_reason == "length"
    own = 32 // rig.shape.block_size
    for name, pool in engine.graphs.pools.items():
        # Blocks 1..8 are the request's, block 0 is the null block, all others are the canary
        assert torch.equal(pool[1 + own :], torch.full_like(pool[1 + own :], canary)), name
        # The last position is written by nobody: its token comes last and is never an input
        assert torch.equal(pool[own, -1], torch.full_like(pool[own, -1], canary)), name


@pytest.mark.parametrize("long_draft", ["oracle", "eagle"])
def test_one_request_near_the_limit_does_not_stop_the_others_speculation(long_draft: str) -> None:
    """E7 (vLLM's gate is the whole batch's): of 64 one has 10, one 60. That runs out of room, the other has K."""
    short = Request("short", prompt_of(10, 1), max_tokens=24)
    long = Request("long", prompt_of(60, 2), max_tokens=24)
    rig = make_rig(Shape(prefill_tokens=(64,)))
    texts = {request.request_id: text_of(rig, request) for request in (short, long)}
    engine = rig.engine(Watch().over(texts, (0,)) if long_draft == "oracle" else Watch().over())
    drafts: list[dict[str, int]] = []
    for request in (long, short):
        engine.add_request(request)
    while engine.has_unfinished():
        engine.step()
        drafts.append({s.request.request_id: len(s.drafts) for s in engine.running if not s.prefilling})
    outputs = {output.request_id: output for output in engine.take_finished()}
    assert list(outputs["long"].token_ids) == rig.plain(long.prompt_token_ids, 4)
    assert list(outputs["short"].token_ids) == rig.plain(short.prompt_token_ids, 24)
    # 64 - 61 - 1 = 2 drafts fit at once, then fewer
    room = [held["long"] for held in drafts if "long" in held]
    assert room == sorted(room, reverse=True)
    assert (room[0], room[-1]) == (2, 0)
    assert {held["short"] for held in drafts if len(held) == 2} == {K}


def test_the_longest_prompt_gives_one_token() -> None:
    rig = make_rig()
    prompt = prompt_of(MAX_LEN - 1, 1)
    (output,) = rig.generate(Request("a", prompt, max_tokens=5))
    assert (list(output.token_ids), output.finish_reason) == (rig.plain(prompt, 1), "length")
