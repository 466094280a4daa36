"""Padded sizes change no text and no feature, whatever stands in the padding."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from aot.build.padding import pad, pad_parts
from aot.build.scopes import scopes
from aot.checkpoint.random_weights import random_target_weights
from aot.checkpoint.target import target_config_from_json
from aot.graphs.geometry import Padding
from aot.models.layers import RMSNorm
from aot.verify.eager import EagerBackend
from runtime.proposer import NoProposer
from runtime.request import Request
from tests.aot.models.test_target_model import FIRST, decode, prefill
from tests.aot.toy_drafts import rig_of_variant
from tests.runtime.loop.rig import Rig, Shape, Watch, make_rig, oracle, prompt_of, rig_of_pair, text_of

CLOSE = {"atol": 1e-4, "rtol": 0.0}
HIDDEN, VOCAB = 32, 64
PLAIN = Shape(greedy_only=False)
PADDED = replace(PLAIN, target_padding=Padding(hidden=40, vocab=72))


def test_zeros_come_behind_the_entries_of_one_axis() -> None:
    assert pad(torch.tensor([[1.0, 2.0]]), 1, 4).tolist() == [[1, 2, 0, 0]]
    assert pad(torch.tensor([[1.0, 2.0]]), 0, 2).tolist() == [[1, 2], [0, 0]]
    assert pad(torch.ones(3), 0, 3).tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match="3 entries cannot be padded to 2"):
        pad(torch.ones(3), 0, 2)


def test_each_third_of_fc_is_padded_by_itself() -> None:
    """M6: H = 30 to 32, on both sides of fc. The states are padded with NaN that a `where` has replaced by zeros."""
    generator = torch.Generator().manual_seed(0)
    weight, states = torch.randn(30, 90, generator=generator), torch.randn(5, 90, generator=generator)
    padded = pad(pad_parts(weight, 1, 3, 32), 0, 32)
    assert padded.shape == (32, 96)
    for third in range(3):
        assert torch.equal(padded[:30, 32 * third : 32 * third + 30], weight[:, 30 * third : 30 * third + 30])
        assert not padded[:, 32 * third + 30 : 32 * third + 32].any()
    dirty = pad_parts(states, 1, 3, 32).unflatten(1, (3, 32))
    dirty[..., 30:] = torch.nan
    clean = torch.where(torch.arange(32) < 30, dirty, 0.0).flatten(1)
    made = F.linear(clean, padded)
    torch.testing.assert_close(made[:, :30], F.linear(states, weight), atol=1e-5, rtol=0)
    assert not made[:, 30:].any()


def test_a_norm_neither_counts_nor_passes_on_its_padding() -> None:
    whole, real = RMSNorm(8, 1e-5, torch.float32, real=6), RMSNorm(6, 1e-5, torch.float32)
    weight = torch.randn(6, generator=torch.Generator().manual_seed(0))
    real.weight.data = weight
    whole.weight.data = torch.cat([weight, torch.tensor([torch.nan, 5.0])])
    hidden = torch.randn(3, 6, generator=torch.Generator().manual_seed(1))
    made = whole(torch.cat([hidden, torch.full((3, 2), torch.nan)], dim=-1))
    assert torch.equal(made[:, :6], real(hidden))
    assert not made[:, 6:].any()


def spoiled(rig: Rig, fill: float) -> Rig:
    """The padded rig with `fill` in all of its padding that is not summed over."""
    held = dict(scopes(rig.geometry, rig.target_weights, rig.draft_weights))
    for name, scope in held.items():
        if not name.startswith("target."):
            continue
        for weight in ("embed_tokens.weight", "lm_head.weight"):
            if weight in scope:
                scope[weight][VOCAB:] = fill
        if "embed_tokens.weight" in scope:
            scope["embed_tokens.weight"][:, HIDDEN:] = fill
        for weight in ("self_attn.o_proj.weight", "mlp.down_proj.weight"):
            if weight in scope:
                scope[weight][HIDDEN:] = fill
        for weight, values in scope.items():
            if "norm" in weight:
                values[HIDDEN:] = fill
    return replace(rig, backend=EagerBackend(rig.backend._specs, held), _plain={})


FILLS = pytest.mark.parametrize("fill", [0.0, 1e4, torch.nan])


def passes(rig: Rig) -> list[Tensor]:
    """A prompt and a verify pass: tokens, features and logits of both."""
    graphs = rig.graphs()
    first = prefill(graphs, FIRST, prompt_of(9, 1))
    return [*first, *decode(graphs, "target_verify", [FIRST], [[7, 50, 21, 3]], [9])]


@FILLS
def test_padded_graphs_give_the_same_tokens_features_and_logits(fill: float) -> None:
    """M6, M7: every width of what leaves the graphs is the model's own."""
    plain, padded = passes(make_rig(PLAIN)), passes(spoiled(make_rig(PADDED), fill))
    rows = {0: 1, 1: 9, 2: 1, 3: 1, 4: 4, 5: 4}
    for index, (ours, right) in enumerate(zip(padded, plain, strict=True)):
        assert ours.shape == right.shape
        torch.testing.assert_close(ours[: rows[index]], right[: rows[index]], **CLOSE)


@FILLS
def test_the_text_is_the_same_and_no_padded_token_is_ever_chosen(fill: float) -> None:
    """H1, M7: with huge weights in the head's padded rows their logits would win every time."""
    plain, padded = make_rig(PLAIN), spoiled(make_rig(PADDED), fill)
    request = Request("a", prompt_of(11, 3), max_tokens=30)
    expected = plain.plain(request.prompt_token_ids, 30)
    text = text_of(plain, request)
    for proposer in (NoProposer(), oracle({"a": text}, (0, 1, 2, 3))):
        (output,) = padded.generate(request, proposer=proposer)
        assert list(output.token_ids) == expected
    (drafted,) = padded.generate(request)
    assert list(drafted.token_ids) == expected


def test_a_geometry_without_padding_says_nothing_of_it() -> None:
    """So the units of every build so far keep their description, and with it their place in the cache."""
    for unit in make_rig(PLAIN).table.units:
        assert not any(name.startswith("real_") for name in unit.arguments)
    sizes = {
        (unit.kind, name): value
        for unit in make_rig(PADDED).table.units
        for name, value in unit.arguments.items()
        if unit.kind.startswith("target_") and name in ("hidden", "vocab", "real_hidden", "real_vocab")
    }
    assert {value for (_, name), value in sizes.items() if name == "hidden"} == {40}
    assert {value for (_, name), value in sizes.items() if name == "vocab"} == {72}
    assert {value for (_, name), value in sizes.items() if name == "real_hidden"} == {HIDDEN}
    assert {value for (_, name), value in sizes.items() if name == "real_vocab"} == {VOCAB}


def test_a_biased_output_projection_is_padded_too() -> None:
    raw = {"model_type": "llama", "attention_bias": True, "hidden_size": 32, "intermediate_size": 48}
    raw |= {"num_hidden_layers": 8, "num_attention_heads": 4, "vocab_size": VOCAB}
    target = target_config_from_json(raw)
    plain = make_rig(PADDED)
    geometry = replace(plain.geometry, target=target)
    weights = random_target_weights(target, 0, torch.float32)
    layer = dict(scopes(geometry, weights, plain.draft_weights))["target.layers.0"]
    assert layer["self_attn.o_proj.bias"].shape == (40,)
    assert layer["self_attn.qkv_proj.bias"].shape == (96,)


def test_a_draft_on_the_final_state_reads_it_unpadded() -> None:
    plain = rig_of_variant("final state")
    shape = replace(plain.shape, target_padding=Padding(hidden=40, vocab=72))
    models = (plain.target, plain.target_weights, plain.draft, plain.draft_weights)
    padded = spoiled(rig_of_pair(*models, shape), torch.nan)
    request = Request("a", prompt_of(11, 3), max_tokens=20)
    watched = []
    for rig in (plain, padded):
        watch = Watch()
        (output,) = rig.generate(request, proposer=watch.over())
        watched.append((output.token_ids, watch.proposed))
    assert watched[0] == watched[1]
    assert watched[0][1]
