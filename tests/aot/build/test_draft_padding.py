"""A draft in padded sizes proposes what it proposes without, whatever stands in the padding."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from aot.build.padding import pad_draft_scope
from aot.build.scopes import draft_scope, scopes
from aot.graphs.geometry import Padding
from aot.verify.eager import EagerBackend
from runtime.request import Request
from tests.aot.toy_drafts import rig_of_variant
from tests.runtime.loop.rig import Rig, Watch, prompt_of, rig_of_pair

HIDDEN, VOCAB = 32, 16
PADDING = Padding(hidden=40, vocab=21)
NAMES = [
    "specforge",
    "two layers",
    "biases",
    "final state",
    "norm output",
    "norm before residual",
    "norm of each state",
]


def padded_rig(name: str) -> Rig:
    plain = rig_of_variant(name)
    models = (plain.target, plain.target_weights, plain.draft, plain.draft_weights)
    return rig_of_pair(*models, replace(plain.shape, draft_padding=PADDING))


def spoiled(rig: Rig, fill: float) -> Rig:
    """The padded rig with `fill` in all of the draft's padding that is not summed over."""
    held = dict(scopes(rig.geometry, rig.target_weights, rig.draft_weights))
    for name, weight in held["draft"].items():
        if name == "lm_head.weight":
            weight[VOCAB:] = fill
        elif name == "embed_tokens.weight":
            weight[:, HIDDEN:] = fill
        elif ("norm" in name and len(weight) == 40) or any(part in name for part in ("o_proj", "down_proj", "fc.")):
            weight[HIDDEN:] = fill
    return replace(rig, backend=EagerBackend(rig.backend._specs, held), _plain={})


def proposals(rig: Rig) -> list[object]:
    watch = Watch()
    (output,) = rig.generate(Request("a", prompt_of(11, 3), max_tokens=20), proposer=watch.over())
    return [list(output.token_ids), watch.proposed]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("fill", [0.0, 1e4, torch.nan])
def test_padding_changes_no_proposal(name: str, fill: float) -> None:
    """M6, M7, H1: huge or no numbers in padded channels, and in head rows that stand for no token."""
    assert proposals(spoiled(padded_rig(name), fill)) == proposals(rig_of_variant(name))


def test_each_half_of_what_the_first_layer_reads_is_padded_by_itself() -> None:
    """M6: as the thirds of fc would be, were features padded."""
    rig = padded_rig("two layers")
    plain = draft_scope(rig.geometry, rig.target_weights, rig.draft_weights)
    padded = pad_draft_scope(plain, rig.geometry)
    first, second = padded["self_attn.qkv_proj.weight"], padded["layers.1.self_attn.qkv_proj.weight"]
    assert (first.shape, second.shape) == ((64, 80), (64, 40))
    for half in range(2):
        own = plain["self_attn.qkv_proj.weight"][:, 32 * half : 32 * half + 32]
        assert torch.equal(first[:, 40 * half : 40 * half + 32], own)
        assert not first[:, 40 * half + 32 : 40 * half + 40].any()
    assert torch.equal(second[:, :32], plain["layers.1.self_attn.qkv_proj.weight"])
    assert padded["fc.weight"].shape == (40, 96)
    # M7: the map has an entry for each token and none for padding
    assert (padded["lm_head.weight"].shape, padded["target_ids.weight"].shape) == ((21, 40), (16,))


def test_without_padding_nothing_is_said_or_changed() -> None:
    rig = rig_of_variant("two layers")
    for unit in rig.table.units:
        assert not any(name.startswith("real_") for name in unit.arguments)
    scope = draft_scope(rig.geometry, rig.target_weights, rig.draft_weights)
    assert all(padded is scope[name] for name, padded in pad_draft_scope(scope, rig.geometry).items())
