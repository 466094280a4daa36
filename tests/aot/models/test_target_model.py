"""The paged target is the dense one: logits, auxiliary states and tokens, and it is transformers' Llama."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from aot.build.scopes import scopes
from aot.reference import target_forward
from aot.verify.eager import EagerBackend
from runtime.batch import pad_rows
from runtime.bundle.manifest import GraphKind
from runtime.graphs import GraphSet
from runtime.proposer import NoProposer
from runtime.request import Request
from runtime.sequence import Sequence as Running
from tests.runtime.loop.rig import Rig, Shape, make_rig, prompt_of

CLOSE = {"atol": 1e-4, "rtol": 0.0}
SHAPE = Shape(greedy_only=False, exact_greedy=False)


def running(blocks: list[int]) -> Running:
    return Running(Request("a", (0,)), 0, [], blocks)


# Blocks in no order, and the two requests' interleaved
FIRST, SECOND = running([9, 3, 14, 5, 11, 2]), running([4, 13, 6, 10, 1, 8])


def prefill(graphs: GraphSet, member: Running, tokens: Sequence[int], start: int = 0) -> list[Tensor]:
    """One chunk: next token [1], features [T, A*H], logits [1, V]."""
    graph, bucket = graphs.prefill("target_prefill", len(tokens), start + len(tokens))
    inputs = pad_rows([member], [tokens], [start], bucket, 4)
    inputs["last_index"] = torch.tensor([len(tokens) - 1], dtype=torch.int32)
    return graph(inputs)


def decode(
    graphs: GraphSet, kind: GraphKind, members: list[Running], tokens: list[list[int]], starts: list[int]
) -> list[Tensor]:
    """One verify or decode pass: accepted [R, Q], features [R*Q, A*H], logits [R*Q, V]."""
    rows = 1 if kind == "target_decode" else 4
    graph, bucket = graphs.decode(kind, len(members), max(starts) + rows)
    inputs = pad_rows(members, tokens, starts, bucket, 4)
    counts = [len(run) - 1 for run in tokens] + [0] * (bucket.requests - len(members))
    inputs["num_draft_tokens"] = torch.tensor(counts, dtype=torch.int32)
    return graph(inputs)


def dense(rig: Rig, tokens: Sequence[int]) -> tuple[Tensor, Tensor]:
    return target_forward(rig.target_weights, rig.target, tokens, rig.draft.aux_layers)


@pytest.mark.parametrize("length", [1, 3, 4, 9, 16])
def test_a_prompt_gives_the_dense_models_logits_states_and_token(length: int) -> None:
    rig = make_rig(SHAPE)
    tokens = prompt_of(length, length)
    next_token, features, logits = prefill(rig.graphs(), FIRST, tokens)
    expected, states = dense(rig, tokens)
    torch.testing.assert_close(logits, expected[-1:], **CLOSE)
    torch.testing.assert_close(features[:length], states, **CLOSE)
    assert next_token.tolist() == [int(expected[-1].argmax())]
    assert (next_token.dtype, logits.dtype) == (torch.int32, torch.float32)


def test_a_prompt_in_chunks_gives_the_dense_models_states() -> None:
    rig = make_rig(replace(SHAPE, prefill_tokens=(5, 8)))
    graphs, tokens = rig.graphs(), prompt_of(18)
    rows, start = [], 0
    for size in (8, 5, 2, 3):
        next_token, features, _ = prefill(graphs, FIRST, tokens[start : start + size], start)
        rows.append(features[:size])
        start += size
        assert next_token.tolist() == [int(dense(rig, tokens[:start])[0][-1].argmax())]
    torch.testing.assert_close(torch.cat(rows), dense(rig, tokens)[1], **CLOSE)


def test_a_verify_pass_over_two_requests_gives_the_dense_models_rows() -> None:
    """Requests of different lengths and numbers of drafts, in a bucket with two places to spare."""
    rig = make_rig(SHAPE)
    graphs = rig.graphs()
    prompts, runs = [prompt_of(9, 1), prompt_of(14, 2)], [[7, 50, 21, 3], [12, 9]]
    for member, prompt in zip((FIRST, SECOND), prompts, strict=True):
        prefill(graphs, member, prompt)
    accepted, features, logits = decode(graphs, "target_verify", [FIRST, SECOND], runs, [9, 14])
    for r, (prompt, run) in enumerate(zip(prompts, runs, strict=True)):
        expected, states = dense(rig, [*prompt, *run])
        rows = slice(4 * r, 4 * r + len(run))
        torch.testing.assert_close(logits[rows], expected[len(prompt) :], **CLOSE)
        torch.testing.assert_close(features[rows], states[len(prompt) :], **CLOSE)
        # Random drafts: the target's own first token, and nothing behind it
        assert accepted[r].tolist() == [int(expected[len(prompt)].argmax()), -1, -1, -1]


def test_a_verify_pass_accepts_what_the_dense_model_would_write() -> None:
    rig = make_rig(SHAPE)
    prompt = prompt_of(9, 1)
    text = rig.plain(prompt, 5)
    for right in range(4):
        graphs = rig.graphs()
        prefill(graphs, FIRST, prompt)
        run = [*text[: 1 + right], *((token + 1) % 64 for token in text[1 + right : 4])]
        accepted, *_ = decode(graphs, "target_verify", [FIRST], [run], [9])
        assert accepted[0].tolist() == [*text[1 : 2 + right], *[-1] * (3 - right)]


def test_rejected_rows_are_overwritten_by_the_next_pass() -> None:
    """Wrong drafts leave KV behind their position; the next pass writes there before it reads."""
    rig = make_rig(SHAPE)
    graphs, prompt = rig.graphs(), prompt_of(9, 1)
    prefill(graphs, FIRST, prompt)
    decode(graphs, "target_verify", [FIRST], [[7, 50, 21, 3]], [9])
    _, features, logits = decode(graphs, "target_verify", [FIRST], [[8, 1, 2, 60]], [10])
    expected, states = dense(rig, [*prompt, 7, 8, 1, 2, 60])
    torch.testing.assert_close(logits[:4], expected[10:], **CLOSE)
    torch.testing.assert_close(features[:4], states[10:], **CLOSE)


def test_a_decode_pass_gives_the_dense_models_row() -> None:
    rig = make_rig(SHAPE)
    graphs, prompt = rig.graphs(), prompt_of(9, 1)
    prefill(graphs, SECOND, prompt)
    accepted, features, logits = decode(graphs, "target_decode", [SECOND], [[30]], [9])
    expected, states = dense(rig, [*prompt, 30])
    torch.testing.assert_close(logits[:1], expected[-1:], **CLOSE)
    torch.testing.assert_close(features[:1], states[-1:], **CLOSE)
    assert accepted.tolist()[0] == [int(expected[-1].argmax())]
    assert accepted.shape == (1, 1)


def test_what_padding_rows_hold_changes_no_other_row() -> None:
    """L6 (sglang#35588): other ids and positions in the padding rows, the same bits in the rest."""
    rig = make_rig(SHAPE)
    outputs = []
    for noise in (0, 33):
        graphs = rig.graphs()
        graph, bucket = graphs.prefill("target_prefill", 9, 9)
        inputs = pad_rows([FIRST], [prompt_of(9)], [0], bucket, 4)
        inputs["tokens"][9:] = noise
        inputs["positions"][9:] = noise // 11
        inputs["last_index"] = torch.tensor([8], dtype=torch.int32)
        token, features, logits = graph(inputs)
        outputs.append((token, features[:9], logits, graphs.pools["kv.7.v"][FIRST.block_ids]))
    for plain, noisy in zip(*outputs, strict=True):
        assert torch.equal(plain, noisy)


@pytest.mark.parametrize("tied", [False, True])
def test_the_text_is_transformers(tied: bool) -> None:
    """A random Llama of transformers through our graphs and loop: its logits, and its greedy text token for token."""
    rig, model = _llama(tied)
    for seed in range(3):
        prompt = prompt_of(7 + seed, seed)
        _, _, logits = prefill(rig.graphs(), FIRST, prompt)
        with torch.inference_mode():
            theirs = model(torch.tensor([prompt])).logits[0, -1:]
        torch.testing.assert_close(logits, theirs, **CLOSE)
        ids = torch.tensor([prompt])
        wanted = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=24,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
        (output,) = rig.generate(Request("a", prompt, max_tokens=24), proposer=NoProposer())
        assert list(output.token_ids) == wanted[0, len(prompt) :].tolist()


def _llama(tied: bool) -> tuple[Rig, Any]:
    """A rig whose target's weights are those of a random transformers model, and that model."""
    from transformers import LlamaConfig, LlamaForCausalLM

    rig = make_rig(SHAPE)
    t = rig.target
    torch.manual_seed(5)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=t.vocab_size,
            hidden_size=t.hidden_size,
            intermediate_size=t.intermediate_size,
            num_hidden_layers=t.num_layers,
            num_attention_heads=t.num_heads,
            num_key_value_heads=t.num_kv_heads,
            rms_norm_eps=t.rms_norm_eps,
            rope_parameters={"rope_type": "default", "rope_theta": t.rope_theta},
            tie_word_embeddings=tied,
            initializer_range=0.3,
        )
    ).eval()
    weights: Mapping[str, Tensor] = {
        name: tensor for name, tensor in model.state_dict().items() if not (tied and name == "lm_head.weight")
    }
    held = dict(scopes(rig.geometry, weights, rig.draft_weights))
    return replace(rig, backend=EagerBackend(rig.backend._specs, held), _plain={}), model
