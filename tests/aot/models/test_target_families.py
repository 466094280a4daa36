"""Every family is transformers' own model: over the reference, through the graphs and loop, and in training's loop."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from torch import Tensor

from aot.checkpoint.families.registry import FAMILIES
from aot.models.layers import rotary_table
from aot.reference import target_forward
from runtime.proposer import NoProposer
from runtime.request import Request
from tests.aot.models.family_models import CASES, WINDOW, rig_of_model, save_model
from tests.aot.models.test_target_model import FIRST, SECOND, decode, prefill
from tests.runtime.loop.rig import Rig, Shape, oracle, prompt_of, rig_of, text_of
from training.target import BatchTarget

# Logits reach 7, states 40
CLOSE = {"atol": 1e-4, "rtol": 0.0}
CLOSE_STATES = {"atol": 5e-4, "rtol": 0.0}
SHAPE = Shape(greedy_only=False, prefill_tokens=(5, 16))
DRAFT_CALL = ("draft_recurrent.r1", "draft")
EACH = pytest.mark.parametrize("name", CASES)


@cache
def pair(name: str, dtype: str = "float32") -> tuple[Rig, Any]:
    """The case's rig and the transformers model that it came from."""
    with TemporaryDirectory() as folder:
        model = save_model(name, Path(folder))
        return rig_of_model(Path(folder), replace(SHAPE, dtype=dtype)), model


@torch.inference_mode()
def theirs(model: Any, rig: Rig, tokens: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """transformers' logits [T, V], and the states that enter the draft's auxiliary layers, [T, A*H]."""
    output = model(torch.tensor([tokens]), output_hidden_states=True)
    return output.logits[0], torch.cat([output.hidden_states[i][0] for i in rig.draft.aux_layers], dim=-1)


def test_every_family_has_a_case() -> None:
    assert {family for family, _ in CASES.values()} == {
        family.architecture.removesuffix("ForCausalLM") for family in FAMILIES.values()
    }


@EACH
def test_the_reference_is_transformers(name: str) -> None:
    rig, model = pair(name)
    tokens = prompt_of(20, 1)
    logits, features = target_forward(rig.target_weights, rig.target, tokens, rig.draft.aux_layers)
    expected, states = theirs(model, rig, tokens)
    torch.testing.assert_close(logits, expected, **CLOSE)
    torch.testing.assert_close(features, states, **CLOSE_STATES)


@EACH
def test_a_prompt_in_chunks_and_a_verify_pass_are_transformers(name: str) -> None:
    """Logits and auxiliary states over the paged pool, for two requests that begin at other positions."""
    rig, model = pair(name)
    graphs = rig.graphs()
    prompts = {FIRST.block_ids[0]: prompt_of(18, 1), SECOND.block_ids[0]: prompt_of(9, 2)}
    runs = [[7, 50, 21, 3], [12, 9]]
    for member in (FIRST, SECOND):
        prompt = prompts[member.block_ids[0]]
        start, rows = 0, []
        while start < len(prompt):
            chunk = prompt[start : start + 7]
            _, features, logits = prefill(graphs, member, chunk, start)
            rows.append(features[: len(chunk)])
            start += len(chunk)
        expected, states = theirs(model, rig, prompt)
        torch.testing.assert_close(torch.cat(rows), states, **CLOSE_STATES)
        torch.testing.assert_close(logits, expected[-1:], **CLOSE)
    _, features, logits = decode(graphs, "target_verify", [FIRST, SECOND], runs, [18, 9])
    for row, (prompt, run) in enumerate(zip(prompts.values(), runs, strict=True)):
        expected, states = theirs(model, rig, (*prompt, *run))
        rows_of = slice(4 * row, 4 * row + len(run))
        torch.testing.assert_close(logits[rows_of], expected[len(prompt) :], **CLOSE)
        torch.testing.assert_close(features[rows_of], states[len(prompt) :], **CLOSE_STATES)


def generated(model: Any, prompt: tuple[int, ...], n: int) -> list[int]:
    """The `n` greedy tokens of transformers' generate."""
    ids = torch.tensor([prompt])
    options = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    text: Tensor = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=n, **options)
    return text[0, len(prompt) :].tolist()


@EACH
def test_the_text_is_transformers_whatever_is_accepted(name: str) -> None:
    """G5: plain decoding, the random draft, and scripted ones that are right 0 to 3 times in every order of change."""
    rig, model = pair(name)
    prompt = prompt_of(11, 3)
    request = Request("a", prompt, max_tokens=24)
    expected = generated(model, prompt, 24)
    assert len(set(expected)) > 4, "a text that repeats itself would hide a lost row"
    (plain,) = rig.generate(request, proposer=NoProposer())
    assert list(plain.token_ids) == expected
    (drafted,) = rig.generate(request)
    assert list(drafted.token_ids) == expected
    text = text_of(rig, request)
    for pattern in ((0, 1, 2, 3), (3, 0, 3, 1), (2, 0, 1, 3, 2)):
        (forced,) = rig.generate(request, proposer=oracle({"a": text}, pattern))
        assert list(forced.token_ids) == expected, pattern


@EACH
def test_in_bf16_the_same_weights_say_nearly_the_same(name: str) -> None:
    """16-bit weights of the same checkpoint: finite, near the float32 logits, and exact against itself."""
    rig, model = pair(name, "bfloat16")
    tokens = prompt_of(40, 4)
    expected, _ = theirs(model, rig, tokens)
    logits, features = target_forward(rig.target_weights, rig.target, tokens, rig.draft.aux_layers)
    assert features.dtype == torch.bfloat16
    assert bool(logits.isfinite().all())
    assert (logits - expected).std() < 0.2 * expected.std()
    assert (logits.argmax(-1) == expected.argmax(-1)).float().mean() > 0.75
    request = Request("a", tokens[:11], max_tokens=24)
    (plain,) = rig.generate(request, proposer=NoProposer())
    text = [*request.prompt_token_ids, *plain.token_ids, 0, 0, 0]
    for pattern in ((0, 1, 2, 3), (3, 0, 3, 1)):
        (forced,) = rig.generate(request, proposer=oracle({"a": text}, pattern))
        assert forced.token_ids == plain.token_ids


@EACH
def test_trainings_loop_gives_the_references_text_and_states(name: str) -> None:
    rig, _ = pair(name)
    prompts = [prompt_of(4, 7), prompt_of(9, 8)]
    target = BatchTarget(rig.target, rig.target_weights, rig.draft.aux_layers, 32)
    answers = target.answer(prompts, [0.0, 0.0], 12, (), torch.Generator())
    for prompt, answer in zip(prompts, answers, strict=True):
        tokens = answer.tokens.tolist()
        assert tokens == [*prompt, *rig.plain(prompt, 12)]
        _, features = target_forward(rig.target_weights, rig.target, tokens[:-1], rig.draft.aux_layers)
        torch.testing.assert_close(answer.features, features, **CLOSE_STATES)


def test_target_and_draft_turn_by_their_own_tables() -> None:
    """F3: a scaling of the target's leaves the draft's table plain; it has none in its config."""
    rig, _ = pair("llama 3.1")
    tables = [rig.backend.module(*call).rotary.weight for call in (("target_embed.t4", "target.embed"), DRAFT_CALL)]
    assert torch.equal(tables[0], rotary_table(64, 8, 100.0, rig.target.rope_scaling))
    assert torch.equal(tables[1], rotary_table(64, 8, 10000.0))
    assert not torch.equal(tables[0], rotary_table(64, 8, 100.0))


# Windows


def test_layers_that_differ_in_their_window_are_units_of_their_own() -> None:
    rig, _ = pair("qwen3, windows")
    graph = next(graph for graph in rig.table.graphs if graph.name == "target_verify.r1.c64")
    layers = [call.unit for call in graph.calls if call.scope.startswith("target.layers.")]
    assert layers == [f"target_layer.r1x4.w{WINDOW}", "target_layer.r1x4"] * 4


def test_a_window_as_long_as_any_text_is_none() -> None:
    rig, _ = pair("mistral")
    wide = rig_with_window(rig, 64)
    assert {unit.name for unit in wide.table.units if unit.kind == "target_layer"} == {
        "target_layer.r1x5",
        "target_layer.r1x16",
        "target_layer.r1x4",
        "target_layer.r4x4",
    }
    narrow = rig_with_window(rig, 63)
    assert all(unit.name.endswith(".w63") for unit in narrow.table.units if unit.kind == "target_layer")


def rig_with_window(rig: Rig, window: int) -> Rig:
    return rig_of(replace(rig.target, windows=(window,) * 8), rig.target_weights, rig.shape)


def test_a_row_sees_no_token_before_its_window() -> None:
    """Eight layers of a window of 6 reach 8 * 5 tokens back; what lies before must not change a bit."""
    rig, _ = pair("mistral")
    tokens = prompt_of(60, 5)
    logits, _ = target_forward(rig.target_weights, rig.target, tokens)
    changed, _ = target_forward(rig.target_weights, rig.target, [(tokens[0] + 1) % 64, *tokens[1:]])
    reach = 8 * (WINDOW - 1)
    different = (logits != changed).any(-1)
    assert bool(different[: reach + 1].all())
    assert not bool(different[reach + 1 :].any())
