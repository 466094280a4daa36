"""B7: tables and heads as long as the manifest says, in every layout that a right bundle has."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from aot.backends.aoti.packing import apply, layouts
from runtime.bundle.extents import extent_problems
from runtime.bundle.manifest import Constant, Manifest
from runtime.bundle.open import read_manifest


def with_constant(manifest: Manifest, unit: str, weight: str, layout: str, shape: tuple[int, ...]) -> Manifest:
    """`manifest` in which the units whose names begin with `unit` take `weight` in this layout and shape."""

    def changed(constant: Constant) -> Constant:
        return replace(constant, layout=layout, shape=shape) if constant.weight == weight else constant

    units = [
        replace(one, constants=tuple(map(changed, one.constants))) if one.name.startswith(unit) else one
        for one in manifest.units
    ]
    return replace(manifest, units=tuple(units))


def of_ranks(manifest: Manifest, ranks: int) -> Manifest:
    return replace(manifest, requires=replace(manifest.requires, backend="neuron", ranks=ranks))


@pytest.fixture
def manifest(toy_template: Path) -> Manifest:
    return read_manifest(toy_template)


@pytest.mark.parametrize("layout", layouts())
def test_b7_packed_heads_fit_their_vocabulary_and_no_other(manifest: Manifest, layout: str) -> None:
    vocab, hidden = manifest.target.vocab_size, manifest.target.hidden_size
    shape = tuple(apply(layout, torch.zeros(vocab, hidden)).shape)
    assert not list(extent_problems(with_constant(manifest, "target_verify_head", "lm_head.weight", layout, shape)))
    shape = tuple(apply(layout, torch.zeros(vocab + 128, hidden)).shape)
    (found,) = extent_problems(with_constant(manifest, "target_verify_head", "lm_head.weight", layout, shape))
    assert "target.vocab_size" in found.what


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("padding", [0, 7])
def test_b7_shards_and_padding_fit(manifest: Manifest, ranks: int, padding: int) -> None:
    vocab, hidden = manifest.target.vocab_size, manifest.target.hidden_size
    shared = of_ranks(manifest, ranks)
    for unit, weight in (("target_embed", "embed_tokens"), ("target", "lm_head"), ("draft", "embed_tokens")):
        shape = (math.ceil((vocab + padding) / ranks), hidden + padding)
        shared = with_constant(shared, unit, f"{weight}.weight", "shard", shape)
    assert not list(extent_problems(shared))
    short = with_constant(shared, "target_embed", "embed_tokens.weight", "shard", (vocab // ranks - 1, hidden))
    (found,) = extent_problems(short)
    assert "target.embed.embed_tokens.weight" in found.what


def test_b7_a_rotary_table_is_never_padded(manifest: Manifest) -> None:
    positions, width = manifest.limits.max_model_len, manifest.kv_cache.groups[1].head_dim
    for shape in ((positions + 1, width), (positions - 1, width), (positions, width + 2), (positions,), ()):
        (found,) = extent_problems(with_constant(of_ranks(manifest, 2), "draft", "rotary.weight", "plain", shape))
        assert "limits.max_model_len" in found.what
