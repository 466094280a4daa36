"""N1: a request whose logits are not finite ends with an error, and nobody else notices, then or later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from aot.reference import target_greedy
from runtime.blocks import NULL_SLOT
from runtime.fused import draft_proposer
from runtime.prefix import PrefixCaching
from runtime.proposer import NoProposer, ScriptedProposer
from runtime.request import Request, RequestOutput
from runtime.schedule import KSchedule
from tests.runtime.loop.kv import kv_rows, same_bits
from tests.runtime.loop.poison import BAD, NAN, damaged, poisoned, without
from tests.runtime.loop.rig import K, Rig, Shape, Watch, make_rig, prompt_of, rig_of_pair

# On this seed the target agrees with some of the draft's own proposals
SEED = 25


def texts(outputs: Sequence[RequestOutput]) -> list[tuple[tuple[int, ...], str]]:
    return [(output.token_ids, output.finish_reason) for output in outputs]


def plain_end(rig: Rig, request: Request, bad: int = BAD) -> tuple[list[int], str]:
    """What the sound target's text says: its tokens up to and with the damaged one, whose row chooses none."""
    if bad in request.prompt_token_ids:
        return [], "error"
    text = target_greedy(rig.target_weights, rig.target, request.prompt_token_ids, request.max_tokens)
    if bad in text[:-1]:
        return text[: text.index(bad) + 1], "error"
    return text, "length"


SHAPES = {
    "separate": Shape(seed=SEED),
    "fused": Shape(seed=SEED, draft_fused=True),
    "one-row graph": Shape(seed=SEED, exact_greedy=False),
    "logits": Shape(seed=SEED, greedy_only=False),
    "drawing": Shape(seed=SEED, sampled=True),
    "drawing, fused": Shape(seed=SEED, sampled=True, draft_fused=True),
    "K schedule": Shape(seed=SEED, schedule=KSchedule.of([[1, 1, 3], [2, 2, 1], [3, 4, 0]], K)),
    "K = 1": Shape(seed=SEED, k=1),
}


@pytest.mark.parametrize("name", SHAPES)
def test_n1_the_others_text_is_what_it_was_and_the_request_alone_ends_with_an_error(name: str) -> None:
    """In a batch beside it, in the blocks that it gave back, and in padding that reads the null block it wrote to."""
    shape = SHAPES[name]
    sound, rig = make_rig(shape), poisoned(shape)
    good = [Request(f"good {i}", without(BAD, 6 + 5 * i, i), max_tokens=18) for i in range(3)]
    good = [one for one in good if BAD not in sound.plain(one.prompt_token_ids, 18)]
    assert len(good) > 1
    bad = Request("bad", (*without(BAD, 9, 8), BAD, *without(BAD, 4, 9)), max_tokens=18)
    expected = [(tuple(sound.plain(one.prompt_token_ids, 18)), "length") for one in good]
    for engine in (rig.engine(), rig.plain_engine()):
        first, *beside = engine.generate([bad, *good])
        assert (first.token_ids, first.finish_reason) == ((), "error")
        assert first.error is not None
        assert first.error.code == "logits_not_finite"
        assert texts(beside) == expected
        assert all(output.error is None for output in beside)
        for turn in range(2):
            again = [replace(one, request_id=f"{one.request_id} {turn}") for one in good]
            assert texts(engine.generate(again)) == expected
        values = [pool for half, pool in engine.graphs.pools.items() if half.endswith(".v")]
        assert all(bool(torch.isfinite(pool).all()) for pool in values)


@pytest.mark.parametrize("pattern", [None, (0,), (1,), (3,), (1, 3, 0, 2)], ids=str)
@pytest.mark.parametrize("name", SHAPES)
def test_n1_speculation_ends_where_plain_decoding_does(name: str, pattern: tuple[int, ...] | None) -> None:
    """The damaged token is one that the target itself chooses: its row gives no token, and drafts up to it stay."""
    shape = SHAPES[name]
    sound = make_rig(shape)
    prompts = [prompt_of(5 + 2 * i, 40 + i) for i in range(4)]
    bad = sound.plain(prompts[0], 12)[5]
    rig = poisoned(shape, bad)
    requests = [Request(str(i), prompt, max_tokens=14) for i, prompt in enumerate(prompts)]
    expected = [plain_end(sound, request, bad) for request in requests]
    assert "error" in [end for _, end in expected]
    known = {
        request.request_id: [*request.prompt_token_ids, *sound.plain(request.prompt_token_ids, 14 + K)]
        for request in requests
    }
    pattern = pattern and tuple(min(count, shape.k) for count in pattern)
    plain = rig.plain_engine().generate(requests)
    assert [(list(output.token_ids), output.finish_reason) for output in plain] == expected
    outputs = rig.engine(Watch().over(known if pattern else None, pattern or (K,))).generate(requests)
    assert texts(outputs) == texts(plain)
    alone = [rig.engine().generate([request])[0] for request in requests]
    assert texts(alone) == texts(plain)


@pytest.mark.parametrize("name", ["separate", "fused", "logits"])
def test_n1_a_rejected_draft_that_is_not_finite_changes_nothing(name: str) -> None:
    shape = SHAPES[name]
    sound, rig = make_rig(shape), poisoned(shape)
    request = Request("a", without(BAD, 8, 3), max_tokens=20)
    text = sound.plain(request.prompt_token_ids, 20 + K)
    assert BAD not in text

    def propose(sequence: Any, room: int) -> list[int]:
        known = text[len(sequence.token_ids) - 8 :][:room]
        return [*known[:1], BAD, *known[2:]][:room]

    (output,) = rig.engine(ScriptedProposer(propose, K)).generate([request])
    assert (list(output.token_ids), output.finish_reason) == (text[:20], "length")
    assert output.spec_decode.num_accepted_tokens > 0


@pytest.mark.parametrize("caching", ["exact", "full", "off"])
@pytest.mark.parametrize("fused", [False, True])
def test_n1_a_cached_prefix_gives_every_later_request_the_same_end(caching: PrefixCaching, fused: bool) -> None:
    shape = Shape(seed=SEED, draft_fused=fused, prefill_tokens=(4, 8))
    rig = poisoned(shape)
    head = (*without(BAD, 13, 1), BAD, *without(BAD, 18, 2))
    engine = rig.engine(prefix_caching=caching)
    for turn in range(3):
        (output,) = engine.generate([Request(str(turn), (*head, 1 + turn), max_tokens=6)])
        assert (output.token_ids, output.finish_reason) == ((), "error")
    assert (output.num_cached_tokens > 0) == (caching != "off")
    # The same beginning up to the damaged token, cached with it, serves a sound request
    good = Request("good", (*head[:13], *without(BAD, 9, 5)), max_tokens=8)
    (output,) = engine.generate([good])
    assert list(output.token_ids) == make_rig(shape).plain(good.prompt_token_ids, 8)


@pytest.mark.parametrize("fused", [False, True])
def test_n1_a_preempted_request_still_ends_where_it_would(fused: bool) -> None:
    shape = Shape(seed=SEED, draft_fused=fused)
    sound = make_rig(shape)
    prompts = [prompt_of(5 + 2 * i, 41 + i) for i in range(3)]
    bad = sound.plain(prompts[2], 11)[10]
    rig = poisoned(shape, bad)
    requests = [Request(str(i), prompt, max_tokens=22) for i, prompt in enumerate(prompts)]
    expected = [plain_end(sound, request, bad) for request in requests]
    assert [(len(text), end) for text, end in expected] == [(22, "length"), (1, "error"), (11, "error")]
    for proposer in (NoProposer(), draft_proposer):
        engine = rig.engine(proposer, kv_blocks=10)
        outputs = engine.generate(requests)
        assert outputs[2].num_preemptions
        assert [(list(output.token_ids), output.finish_reason) for output in outputs] == expected


def test_n1_a_token_that_ends_the_request_does_so_before_the_row_behind_it() -> None:
    """An end of sequence, or the last token allowed: plain decoding never runs the row that is not finite."""
    shape = Shape(seed=SEED)
    sound = make_rig(shape)
    prompt = prompt_of(5, 40)
    text = sound.plain(prompt, 8 + K)
    bad = text[5]
    first = text.index(bad)
    rig = poisoned(shape, bad)
    known = {"a": [*prompt, *text]}
    stop = replace(Request("a", prompt).sampling, stop_token_ids=(bad,))
    for request in (Request("a", prompt, max_tokens=first + 1), Request("a", prompt, max_tokens=8, sampling=stop)):
        for proposer in (Watch().over(known, (K,)), NoProposer()):
            (output,) = rig.engine(proposer).generate([request])
            assert list(output.token_ids) == text[: first + 1]
            assert output.finish_reason in ("length", "stop")


def test_n1_shared_draft_rows_are_not_overwritten_by_a_fused_chain_that_has_no_token() -> None:
    """Without a last row its chain would begin at position 0, in blocks that others share."""
    shape = Shape(seed=SEED, draft_fused=True, prefill_tokens=(4, 8))
    rig = poisoned(shape)
    head = without(BAD, 24, 1)
    engine = rig.engine()
    engine.add_request(Request("good", (*head, 1), max_tokens=30))
    for _ in range(6):
        engine.step()
    (good,) = engine.running
    before = kv_rows(engine, good, 16)
    engine.add_request(Request("bad", (*head, BAD), max_tokens=30))
    while len(engine.running) + len(engine.waiting) > 1 and engine.has_unfinished():
        engine.step()
    (bad,) = engine.take_finished()
    assert (bad.finish_reason, bad.num_cached_tokens) == ("error", 16)
    assert same_bits(before, kv_rows(engine, good, 16))


@pytest.mark.parametrize("value", [NAN, float("inf"), -float("inf")])
@pytest.mark.parametrize("where", ["self_attn.k_proj", "self_attn.v_proj"])
def test_n1_one_head_s_key_or_value_that_is_not_finite(where: str, value: float) -> None:
    """In one layer and head alone: an infinite key would only have weighed nothing, and nobody would have been told."""
    shape = Shape(seed=SEED, layers=3)
    rig = damaged(make_rig(shape), f"model.layers.1.{where}.weight", 9, value)
    for engine in (rig.engine(), rig.plain_engine()):
        (output,) = engine.generate([Request("a", prompt_of(6, 1), max_tokens=4)])
        assert (output.token_ids, output.finish_reason) == ((), "error")


def test_n1_finite_float16_weights_that_overflow() -> None:
    """An embedding row of the largest numbers, to which a layer adds; the others' bits do not change."""
    shape = Shape(seed=SEED, dtype="float16", layers=4)
    toy = make_rig(shape)
    weights = dict(toy.target_weights)
    weights["model.layers.0.mlp.down_proj.weight"] = weights["model.layers.0.mlp.down_proj.weight"] * 200
    sound = rig_of_pair(toy.target, weights, toy.draft, toy.draft_weights, shape)
    table = weights["model.embed_tokens.weight"].clone()
    table[BAD] = 65504 * table[BAD].sign()
    large = {**weights, "model.embed_tokens.weight": table}
    assert all(bool(torch.isfinite(tensor).all()) for tensor in large.values())
    rig = rig_of_pair(toy.target, large, toy.draft, toy.draft_weights, shape)
    good = [Request(f"good {i}", without(BAD, 7 + i, i), max_tokens=12) for i in range(4)]
    reference = {output.request_id: output for one in good for output in sound.plain_engine().generate([one])}
    good = [one for one in good if BAD not in reference[one.request_id].token_ids]
    assert len(good) > 1
    expected = texts([reference[one.request_id] for one in good])
    for engine in (rig.engine(), rig.plain_engine()):
        bad, *others = engine.generate([Request("bad", (3, BAD, 5), max_tokens=12), *good])
        assert (bad.token_ids, bad.finish_reason) == ((), "error")
        assert texts(others) == expected
        assert texts(engine.generate([replace(one, request_id=f"{one.request_id} again") for one in good])) == expected


def test_n1_the_null_block_s_rows_are_seen_by_nobody() -> None:
    """Token 0 fills padding rows: damaged, every pass writes it to the null block."""
    shape = Shape(seed=SEED)
    sound, rig = make_rig(shape), poisoned(shape, bad=0)
    requests = [Request(str(i), without(0, 5 + i, i), max_tokens=10) for i in range(12)]
    plain = {request.request_id: sound.plain(request.prompt_token_ids, 10) for request in requests}
    requests = [request for request in requests if 0 not in plain[request.request_id]][:3]
    assert len(requests) == 3
    engine = rig.engine()
    outputs = engine.generate(requests)
    assert [list(output.token_ids) for output in outputs] == [plain[request.request_id] for request in requests]
    key: Tensor = engine.graphs.pools["kv.0.k"]
    assert not torch.isfinite(key.flatten(0, 1)[NULL_SLOT]).all()
