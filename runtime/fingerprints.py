"""What a request's KV holds, as one number for each position and pool: to compare runs without keeping their KV."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from runtime.backends.device import DeviceTensor
from runtime.blocks import slot_of
from runtime.graphs import GraphSet
from runtime.sequence import Sequence


def target_pools(graphs: GraphSet) -> dict[str, Tensor]:
    """The KV pools that the opened graphs of the target use."""
    used = {
        name
        for (kind, *_), graph in graphs.loaded.items()
        if kind.startswith("target")
        for call in graph.spec.calls
        for name in call.inputs
    }
    return {name: pool for name, pool in graphs.pools.items() if name in used}


def fingerprints(pools: Mapping[str, Tensor], members: Seq[Sequence], block_size: int) -> list[Tensor]:
    """For each member a number for each computed position and pool, [num_computed, ranks * pools] int64.

    Two rows that differ in a bit have different numbers: the halves of a row are added up with odd weights, modulo
    2^64. A signed zero counts as zero, it changes no later result. Every pool is read once, a device's on all ranks.
    """
    if not members:
        return []
    slots = [
        [slot_of(member.block_ids, position, block_size) for position in range(member.num_computed)]
        for member in members
    ]
    columns: list[list[list[Tensor]]] = [[] for _ in members]  # member, rank, pool
    for pool in pools.values():
        parts = pool.parts() if isinstance(pool, DeviceTensor) else [pool]
        for found, places in zip(columns, slots, strict=True):
            found += [[] for _ in range(len(parts) - len(found))]
            for rank, part in enumerate(parts):
                found[rank].append(_fingerprint(part.flatten(0, 1)[places].flatten(1)))
    return [torch.stack([one for rank in found for one in rank], dim=1) for found in columns]


def _fingerprint(rows: Tensor) -> Tensor:
    halves = (rows + 0).contiguous().view(torch.int16).long()
    weights = torch.randint(1 << 62, (halves.shape[1],), generator=torch.Generator().manual_seed(0)) * 2 + 1
    return (halves * weights).sum(dim=1)
