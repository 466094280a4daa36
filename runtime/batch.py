"""The padded rows of one pass: what every graph takes as tokens, positions, slots and block table.

All padding is set anew on every call: token 0, position 0, the null slot, the null block. A padding row therefore
computes something harmless and writes where nobody reads.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
from torch import Tensor

from runtime.blocks import NULL_SLOT, slot_of
from runtime.sequence import Sequence


@dataclass(frozen=True)
class Bucket:
    """The shape that a pass runs in: R requests, rows each, and a block table of `blocks` columns."""

    requests: int
    rows_each: int
    blocks: int


def pad_rows(
    members: Seq[Sequence], tokens: Seq[Seq[int]], starts: Seq[int], bucket: Bucket, block_size: int
) -> dict[str, Tensor]:
    """Inputs tokens, positions, slot_mapping [R*rows] and block_table [R, blocks], all int32.

    Args:
        members: the requests of the pass, at most R; row group r belongs to members[r].
        tokens: for each member the tokens of its rows, at most `rows_each`.
        starts: for each member the position of its first row; the others follow one by one.
    """
    total = bucket.requests * bucket.rows_each
    ids, positions, slots = [0] * total, [0] * total, [NULL_SLOT] * total
    for index, (member, row_tokens, start) in enumerate(zip(members, tokens, starts, strict=True)):
        base = index * bucket.rows_each
        for offset, token in enumerate(row_tokens):
            ids[base + offset] = token
            positions[base + offset] = start + offset
            slots[base + offset] = slot_of(member.block_ids, start + offset, block_size)
    # One tensor for the three of a kind: making one costs more than all that is in it
    rows = torch.tensor((ids, positions, slots), dtype=torch.int32).unbind()
    return {
        "tokens": rows[0],
        "positions": rows[1],
        "slot_mapping": rows[2],
        "block_table": block_table(members, bucket),
    }


def block_table(members: Seq[Sequence], bucket: Bucket) -> Tensor:
    """The blocks of each request, [R, blocks] int32, cut or padded with the null block to the bucket's width."""
    table: list[list[int]] = []
    for member in members:
        row = member.block_ids[: bucket.blocks]
        table.append(row + [0] * (bucket.blocks - len(row)))
    table += [[0] * bucket.blocks] * (bucket.requests - len(members))
    return torch.tensor(table, dtype=torch.int32)
