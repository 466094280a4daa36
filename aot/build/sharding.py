"""Each rank's part of the weights: heads, channels of the MLP and rows of the vocabulary are spread over the ranks.

A layer that makes what the ranks share out gives each one its rows (queries, keys and values; gate and up; the head and
`fc`), and the layer behind it, which reads that, its columns (`o_proj`, `down_proj`). Three rules:

1. A weight that was fused of several is cut part by part: each rank's queries, keys and values lie behind one another.
2. Where ranks outnumber the KV heads, several hold the same head: the one that their query heads read.
3. Where a size is no multiple of the ranks, zeros stand behind the last entries. A zero row of gate and up makes a zero
   that meets a zero column of `down_proj`; rows of the vocabulary without a token are masked in the graphs.

Everything else is whole on every rank: norms, rotary tables, the draft's ids, and the biases of `o_proj` and
`down_proj`, which are added once, to the sum.

Source: the weight loaders of vLLM Neuron's EAGLE3 design; whole KV heads for several ranks are vLLM's rule too.
"""

from __future__ import annotations

import torch
from torch import Tensor

from aot.build.padding import pad
from aot.graphs.geometry import Geometry

_QKV, _GATE_UP = "self_attn.qkv_proj", "mlp.gate_up_proj"
# Layers of which each rank has rows of the weight and entries of the bias, cut in one piece
_ROWS = ("embed_tokens", "lm_head", "fc")
# Layers of which each rank has columns of the weight, and the whole bias
_COLUMNS = ("self_attn.o_proj.weight", "mlp.down_proj.weight")


def is_sharded(scope: str, name: str) -> bool:
    """Whether each of several ranks has a part of its own of weight `name` of `scope`."""
    plain = _plain(scope, name)
    return plain in _COLUMNS or plain.rpartition(".")[0] in (_QKV, _GATE_UP, *_ROWS)


def shard(scope: str, name: str, weight: Tensor, rank: int, geometry: Geometry) -> Tensor:
    """The part of a weight that `rank` holds; one that is not sharded, and any with one rank, is returned as it is.

    Args:
        scope, name: as `aot.build.scopes.scopes` gives them: "target.layers.7" and "self_attn.qkv_proj.weight".
        weight: as it is there, padded where the graphs are.
        rank: 0 to geometry.ranks - 1.
    """
    if geometry.ranks == 1 or not is_sharded(scope, name):
        return weight
    model = geometry.draft if scope == "draft" else geometry.target
    layer, kind = _plain(scope, name).rpartition(".")[::2]
    if layer == _QKV:
        return _heads(weight, model.num_heads, model.num_kv_heads, model.head_dim, rank, geometry.ranks)
    if layer == _GATE_UP:
        return torch.cat([_part(half, 0, rank, geometry.ranks) for half in weight.chunk(2)])
    return _part(weight, 1 if f"{layer}.{kind}" in _COLUMNS else 0, rank, geometry.ranks)


def shard_scope(scope: str, weights: dict[str, Tensor], rank: int, geometry: Geometry) -> dict[str, Tensor]:
    """All weights of a scope as `rank` holds them."""
    return {name: shard(scope, name, weight, rank, geometry) for name, weight in weights.items()}


def _plain(scope: str, name: str) -> str:
    """A weight's name without the number of a further draft layer."""
    return name.split(".", 2)[2] if scope == "draft" and name.startswith("layers.") else name


def _part(weight: Tensor, axis: int, rank: int, ranks: int) -> Tensor:
    """The `rank`-th of `ranks` equal stretches along `axis`, with zeros behind the weight's end."""
    entries = weight.shape[axis]
    size = -(-entries // ranks)
    first = min(rank * size, entries)
    return pad(weight.narrow(axis, first, min(size, entries - first)), axis, size).contiguous()


def _heads(weight: Tensor, heads: int, kv_heads: int, head_dim: int, rank: int, ranks: int) -> Tensor:
    """The rank's queries and the keys and values that they read, of [(N + 2G) * D, inputs] or a bias as long."""
    queries = heads // ranks
    keys = max(1, kv_heads // ranks)
    # Ranks in turn share a KV head where there are more of them than heads
    first = rank * kv_heads // ranks
    parts = ((rank * queries, queries), (heads + first, keys), (heads + kv_heads + first, keys))
    return torch.cat([weight.narrow(0, start * head_dim, count * head_dim) for start, count in parts])
