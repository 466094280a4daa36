"""The KV rows of a request, read out of an engine's pools, and how far the draft's are from the reference."""

from __future__ import annotations

import torch
from torch import Tensor

from runtime.blocks import slot_of
from runtime.engine import Engine
from runtime.sequence import Sequence
from tests.runtime.loop.rig import K, Rig

# Rounding gives 3e-5 at most; another token or feature changes a row by more than 0.1
TOLERANCE = 1e-3


def kv_rows(engine: Engine, sequence: Sequence, rows: int | None = None) -> dict[str, Tensor]:
    """Rows 0..rows-1 of `sequence` in every pool, [rows, heads, head_dim]; by default all that are computed."""
    size = engine.blocks.block_size
    count = sequence.num_computed if rows is None else rows
    slots = [slot_of(sequence.block_ids, position, size) for position in range(count)]
    return {name: pool.flatten(0, 1)[slots].clone() for name, pool in engine.graphs.pools.items()}


def same_bits(one: dict[str, Tensor], other: dict[str, Tensor], rows: slice = slice(None)) -> bool:
    """Whether those rows have the same bits in every pool."""
    return all(torch.equal(one[name][rows], other[name][rows]) for name in one)


def worst_draft_row(rig: Rig, engine: Engine) -> float:
    """The largest difference of any running request's draft KV, as far as it goes, from a fresh pass over its text."""
    errors = [0.0]
    for sequence in engine.running:
        if not sequence.draft_room(K):
            continue
        # All but the last token of one that is caught up; less of a prompt, or of one that is computed again
        rows = sequence.num_computed
        assert rows == len(sequence.token_ids) - 1 or sequence.prefilling or sequence.num_preemptions
        if not rows:
            continue
        found = kv_rows(engine, sequence)
        # The row behind these is made of a token that the target has not chosen yet
        for half, expected in zip("kv", rig.draft_kv(sequence.token_ids[: rows + 1]), strict=True):
            errors.append((found[f"kv.{rig.target.num_layers}.{half}"] - expected).abs().max().item())
    return max(errors)
