"""Weights whose shapes are numbers of the manifest: embedding tables, the target's head, tables of rotary angles.

A table is read by token or by position, so a vocabulary or a length beyond its rows is a read beyond its end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from runtime.bundle.errors import Eagle3Error
from runtime.bundle.manifest import Constant, Manifest
from runtime.bundle.sizes import problem
from runtime.bundle.stored import SHARD

# A packed layout holds whole blocks of rows, and channels in groups of up to four, filled up with zeros
_MOST_PAIRED = 4


@dataclass(frozen=True)
class _Extent:
    """The shape that a weight has over all ranks. `padded`: a device may want more rows and channels of it."""

    fields: str
    shape: tuple[int, int]
    padded: bool


def extent_problems(manifest: Manifest) -> Iterator[Eagle3Error]:
    """Every weight that has another shape than the manifest's sizes say."""
    units = {unit.name: unit for unit in manifest.units}
    extents = _extents(manifest)
    told: set[tuple[str, str]] = set()
    for unit, scope in sorted({(call.unit, call.scope) for graph in manifest.graphs for call in graph.calls}):
        for constant in units[unit].constants:
            name = f"{scope}.{constant.weight}" if scope else constant.weight
            if name not in extents or (name, constant.layout) in told:
                continue
            extent = extents[name]
            if not _fits(manifest, constant, extent):
                told.add((name, constant.layout))
                found = f"{list(constant.shape)} in layout {constant.layout}"
                what = f"The weight {name} has another shape than {extent.fields} say"
                yield problem(what, list(extent.shape), found)


def _extents(manifest: Manifest) -> dict[str, _Extent]:
    """The extents by the weights' full names; a draft's head has a vocabulary that its unit alone reads."""
    extents = {}
    models = (("target", "target.embed", manifest.target), ("draft", "draft", manifest.draft))
    for (role, scope, model), group in zip(models, manifest.kv_cache.groups, strict=True):
        fields = f"{role}.vocab_size and {role}.hidden_size"
        extents[f"{scope}.embed_tokens.weight"] = _Extent(fields, (model.vocab_size, model.hidden_size), True)
        fields = f"limits.max_model_len and kv_cache.groups of the {role}, head_dim"
        extents[f"{scope}.rotary.weight"] = _Extent(fields, (manifest.limits.max_model_len, group.head_dim), False)
    extents["target.head.lm_head.weight"] = extents["target.embed.embed_tokens.weight"]
    return extents


def _fits(manifest: Manifest, constant: Constant, extent: _Extent) -> bool:
    shape, spare = constant.shape, (0.0, 0.0)
    if len(shape) == 3 and constant.layout.startswith("block"):
        blocks, channels, width = shape
        shape, spare = (blocks * width, channels), (width - 1, _MOST_PAIRED - 1)
    elif shape and constant.layout == SHARD:
        shape = (shape[0] * manifest.requires.ranks, *shape[1:])
    if extent.padded and manifest.requires.backend != "aoti":
        spare = (math.inf, math.inf)
    return len(shape) == 2 and all(
        0 <= size - least <= most for size, least, most in zip(shape, extent.shape, spare, strict=True)
    )
