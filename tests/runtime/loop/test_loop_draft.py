"""The draft's rows: row i holds (feature i, token i+1) at position i, and true features replace its own guesses."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from aot.reference import target_forward
from runtime.bundle.manifest import Graph
from runtime.request import Request
from tests.runtime.loop.kv import TOLERANCE, worst_draft_row
from tests.runtime.loop.rig import K, Shape, Watch, make_rig, observe, prompt_of, text_of


@pytest.mark.parametrize("pattern", [(0,), (1,), (2,), (3,), (0, 3), (3, 0, 2, 1)], ids=str)
def test_draft_kv_is_that_of_true_features_after_every_step(pattern: tuple[int, ...]) -> None:
    """D1 (vllm#14649): whatever was accepted, rows 0..L-2 equal one fresh draft pass over the committed text."""
    rig = make_rig()
    requests = [Request(str(i), prompt_of(5 + 2 * i, i), max_tokens=16) for i in range(3)]
    texts = {request.request_id: text_of(rig, request) for request in requests}
    engine = rig.engine(Watch().over(texts, pattern))
    for request in requests:
        engine.add_request(request)
    while engine.has_unfinished():
        engine.step()
        assert worst_draft_row(rig, engine) < TOLERANCE


@pytest.mark.parametrize("pattern", [None, (0,), (3,), (1, 3, 0, 2)], ids=str)
def test_every_proposal_is_the_references_chain(pattern: tuple[int, ...] | None) -> None:
    """Whatever was accepted before, and also where the cutoff leaves fewer than K."""
    rig = make_rig(Shape(seed=25))
    requests = [Request(str(i), prompt_of(6 + i, i), max_tokens=13) for i in range(3)]
    texts = {request.request_id: text_of(rig, request) for request in requests}
    watch = Watch()
    outputs = rig.generate(*requests, proposer=watch.over(texts if pattern else None, pattern or (K,)))
    for request, output in zip(requests, outputs, strict=True):
        assert list(output.token_ids) == rig.plain(request.prompt_token_ids, 13)
    lengths = set()
    for _, committed, proposal in watch.proposed:
        assert proposal == rig.chain(committed, len(proposal))
        lengths.add(len(proposal))
    assert K in lengths
    assert len(watch.proposed) >= 3 * 3


def test_accepted_proposals_of_the_real_draft_are_followed_by_the_chain_too() -> None:
    """On this seed the target agrees with three drafts, so positions that the draft guessed become committed ones."""
    rig = make_rig(Shape(seed=25))
    request = Request("a", prompt_of(9, 3), max_tokens=24)
    watch = Watch()
    (output,) = rig.generate(request, proposer=watch.over())
    assert output.spec_decode.num_accepted_tokens_per_pos == [1, 1, 1]
    assert list(output.token_ids) == rig.plain(request.prompt_token_ids, 24)
    assert all(proposal == rig.chain(committed, len(proposal)) for _, committed, proposal in watch.proposed)


def test_the_rows_of_a_prompt_of_four() -> None:
    """D2 (vllm#6830): prompt [5, 6, 7, 8] and first token t: ids [6, 7, 8, t] at positions 0..3 with features 0..3."""
    rig = make_rig()
    prompt = (5, 6, 7, 8)
    (first,) = rig.plain(prompt, 1)
    engine, seen = rig.engine(), []

    def look(spec: Graph, inputs: Mapping[str, Tensor]) -> None:
        if spec.kind == "draft_initial_prefill":
            seen.append({name: tensor.clone() for name, tensor in inputs.items()})

    observe(engine, look)
    engine.add_request(Request("a", prompt, max_tokens=8))
    engine.step()
    (inputs,) = seen
    assert inputs["tokens"][:4].tolist() == [6, 7, 8, first]
    assert inputs["positions"][:4].tolist() == [0, 1, 2, 3]
    assert inputs["last_index"].tolist() == [3]
    _, features = target_forward(rig.target_weights, rig.target, prompt, rig.draft.aux_layers)
    torch.testing.assert_close(inputs["features"][:4], features, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("chunks", [(8,), (5,), (5, 8), (2,), (12,)], ids=str)
def test_a_prompt_in_chunks_leaves_the_kv_and_drafts_of_a_whole_one(chunks: tuple[int, ...]) -> None:
    """D6 (sglang#26329): the draft's last row of a chunk takes the prompt's next token, not a sampled one."""
    rig = make_rig(Shape(prefill_tokens=chunks))
    prompt = prompt_of(13, 3)
    watch = Watch()
    engine = rig.engine(watch.over())
    engine.add_request(Request("a", prompt, max_tokens=16))
    for _ in range(-(-13 // max(chunks))):
        assert engine.has_unfinished()
        assert all(sequence.drafts == sequence.output_token_ids == [] for sequence in engine.running)
        engine.step()
        assert worst_draft_row(rig, engine) < TOLERANCE
    (sequence,) = engine.running
    assert sequence.output_token_ids == rig.plain(prompt, 1)
    assert sequence.drafts == rig.chain(sequence.token_ids, K)
    while engine.has_unfinished():
        engine.step()
    assert list(engine.take_finished()[0].token_ids) == rig.plain(prompt, 16)


def test_a_chunk_that_is_not_the_last_fills_draft_kv_and_proposes_nothing() -> None:
    """D7 (vllm-rbln#554): chunks 8 and 5 run the draft's prefill twice, its recurrent passes for the last alone."""
    rig = make_rig(Shape(prefill_tokens=(5, 8)))
    engine, ran = rig.engine(), []
    prompt = prompt_of(13, 3)

    def look(spec: Graph, inputs: Mapping[str, Tensor]) -> None:
        ran.append((spec.name, inputs["tokens"].tolist()))

    observe(engine, look)
    engine.add_request(Request("a", prompt, max_tokens=16))
    assert engine.step() == []
    assert (engine.running[0].drafts, len(ran)) == ([], 2)
    engine.step()
    assert engine.totals.num_draft_tokens == 0
    assert [name for name, _ in ran] == [
        "target_prefill.t8.c32",
        "draft_initial.t8.c32",
        "target_prefill.t5.c32",
        "draft_initial.t5.c32",
        *["draft_recurrent.r1.c32"] * (K - 1),
    ]
    # Row 7 of the first chunk holds token 8 of the prompt
    assert ran[1][1] == list(prompt[1:9])
    assert ran[3][1] == [*prompt[9:13], *rig.plain(prompt, 1)]


@pytest.mark.parametrize("fused", [False, True], ids=["separate", "fused"])
@pytest.mark.parametrize("length", [8, 9, 10])
def test_a_prompt_that_lacks_one_token_proposes_nothing_yet(length: int, fused: bool) -> None:
    """D7 (vllm-rbln#554): chunks of four and a last one of one token, of two, of a whole one."""
    rig = make_rig(Shape(prefill_tokens=(4,), draft_fused=fused, layers=4))
    watch = Watch()
    (output,) = rig.generate(Request("a", prompt_of(length, 3), max_tokens=9), proposer=watch.over())
    assert list(output.token_ids) == rig.plain(prompt_of(length, 3), 9)
    assert {len(committed) for _, committed, _ in watch.proposed} == set(range(length + 1, length + 8))


def test_the_initial_pass_runs_even_where_every_draft_was_rejected() -> None:
    rig = make_rig()
    request = Request("a", prompt_of(7), max_tokens=9)
    engine, ran = rig.engine(Watch().over({"a": text_of(rig, request)}, (0,))), []
    observe(engine, lambda spec, inputs: ran.append(spec.kind))
    engine.generate([request])
    # One token a pass; the last two have no room for a draft
    assert ran.count("target_verify") == 8
    assert ran.count("draft_initial") == 6
