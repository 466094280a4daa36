"""Operations shared by target and draft: RMSNorm, rotary embedding, paged attention.

Shapes: T rows, R requests with Q = T / R rows each, N query heads, G key/value heads, D head size, B blocks in a
request's block table, S block size; C = B * S is the context width in tokens.

Numerics follow Hugging Face's order, so that a bf16 target agrees with transformers as far as kernels allow: a residual
sum is rounded to the model's dtype before the norm reads it, the norm computes in float32 and rounds before it
multiplies by its weight.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aot.checkpoint.rope import Scaling, attention_factor, inverse_frequencies
from aot.models.parallel import all_reduce


def empty_parameter(*shape: int, dtype: torch.dtype) -> nn.Parameter:
    """A weight that is filled later, from a checkpoint or with random numbers."""
    return nn.Parameter(torch.empty(*shape, dtype=dtype), requires_grad=False)


class RMSNorm(nn.Module):
    """Root-mean-square norm over the last dimension, [T, H] -> [T, H].

    Args:
        real: of `size` channels the first `real` are the model's and the rest padding (aot/build/padding.py), which is
            left out of the mean and leaves as zeros, whatever came in; 0: all are the model's.
    """

    def __init__(self, size: int, eps: float, dtype: torch.dtype, real: int = 0) -> None:
        super().__init__()
        self.eps = eps
        self.padding = size - real if real else 0
        self.weight = empty_parameter(size, dtype=dtype)

    def forward(self, hidden: Tensor) -> Tensor:
        if self.padding:
            # Cut off and made anew, not multiplied by zero: NaN times zero is NaN
            return F.pad(self._norm(hidden[..., : -self.padding], self.weight[: -self.padding]), (0, self.padding))
        return self._norm(hidden, self.weight)

    def _norm(self, hidden: Tensor, weight: Tensor) -> Tensor:
        wide = hidden.float()
        normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return weight * normed.to(hidden.dtype)


class Linear(nn.Module):
    """y = x W^T, weight [out, in]; with `bias`, + bias [out], rounded once more: the product is the same GEMM.

    Args:
        ranks: above 1, each of so many ranks holds a part of the inputs and of the weight's columns. The products are
            summed over the ranks, and the bias, which all of them hold, is added once, to the sum.
    """

    def __init__(self, inputs: int, outputs: int, dtype: torch.dtype, bias: bool = False, *, ranks: int = 1) -> None:
        super().__init__()
        self.ranks = ranks
        self.weight = empty_parameter(outputs, inputs, dtype=dtype)
        self.bias = empty_parameter(outputs, dtype=dtype) if bias else None

    def forward(self, rows: Tensor) -> Tensor:
        made = F.linear(rows, self.weight)
        if self.ranks > 1:
            made = all_reduce(made, self.ranks)
        return made if self.bias is None else made + self.bias


class Table(nn.Module):
    """A table read by row: token embeddings, rotary angles, id maps. `weight` is [entries, width] or [entries]."""

    def __init__(self, *shape: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = empty_parameter(*shape, dtype=dtype)

    def forward(self, index: Tensor) -> Tensor:
        return self.weight[index.long()]


def rotary_table(
    positions: int, head_dim: int, theta: float, scaling: Scaling | None = None, *, length: int | None = None
) -> Tensor:
    """cos and sin of every position, [positions, D] float32: D/2 cosines, then D/2 sines.

    Args:
        scaling: as `aot.checkpoint.rope.read_rope` returns it. yarn's attention factor is in the table.
        length: how long a text may become, for a scaling that asks; `positions` where None.
    """
    longest = positions if length is None else length
    inverse = inverse_frequencies(head_dim, theta, scaling, length=longest, dtype=torch.float64)
    angles = torch.outer(torch.arange(positions, dtype=torch.float64), inverse)
    turned = torch.cat([angles.cos(), angles.sin()], dim=-1)
    return (turned * attention_factor(scaling)).float()


def rotate(heads: Tensor, angles: Tensor) -> Tensor:
    """Apply rotary embedding, NeoX halves.

    Args:
        heads: [T, heads, D] in the model's dtype.
        angles: [T, D] float32, rows of `rotary_table`.

    Returns:
        [T, heads, D]; the rotation is computed in float32 and rounded once.
    """
    half = heads.shape[-1] // 2
    cos, sin = angles[:, None, :half], angles[:, None, half:]
    first, second = heads[..., :half].float(), heads[..., half:].float()
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(heads.dtype)


def write_kv(pool: Tensor, slot_mapping: Tensor, rows: Tensor) -> None:
    """Write rows [T, G, D] into pool [blocks, S, G, D] at slots [T], in place."""
    pool.view(-1, *pool.shape[2:]).index_copy_(0, slot_mapping.long(), rows)


def finite(values: Tensor) -> Tensor:
    """Which of `values` are numbers and no infinities: by comparing with the largest, which NaN fails.

    No compiler or device has to carry NaN through a reduction for it, nor to know an operator of its own.
    """
    return values.float().abs() <= torch.finfo(torch.float32).max


def all_finite(values: Tensor) -> Tensor:
    """Whether each row of `values` [..., N] is free of NaN and infinities: [..., 1] float32, 1 or 0."""
    return finite(values).float().amin(dim=-1, keepdim=True)


def contain(key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Rows [T, G, D] for the KV pools, such that one that is not finite reaches those alone that attend to it.

    An entry that a row does not see has weight 0, and 0 times NaN is NaN: the row of one request would spoil another's
    that finds it behind its own context, in the null block or in a block used again. So where a token's keys or values
    hold anything that is not finite, its values become 0, which weigh nothing where they are hidden, and its keys NaN,
    which makes NaN of whoever sees them: minus infinity would be overlooked there.
    """
    # All heads at once: whoever sees one of them sees all, and a reduction costs more than what is in it
    sound = (finite(key) & finite(value)).flatten(1).float().amin(dim=-1)[:, None, None]
    # Infinity times 0, since a graph for a device should hold no NaN; times 1 changes no bit
    key = torch.where(sound > 0, key, float("inf")) * sound.to(key.dtype)
    return key, torch.where(sound > 0, value, 0.0)


def paged_attention(
    query: Tensor, key_pool: Tensor, value_pool: Tensor, block_table: Tensor, positions: Tensor, window: int = 0
) -> Tensor:
    """Causal attention of each row over its request's context.

    A row at position p sees the context's entries 0..p, or with a window of W only the last W of them. Every row sees
    at least one (its own), so no softmax is empty, and padding rows, at position 0, see entry 0 of whatever block their
    table names.

    Args:
        query: [T, N, D].
        key_pool, value_pool: [blocks, S, G, D], this pass's rows already written.
        block_table: [R, B] int32; entries past a request's length name any block, the null block 0 by convention.
        positions: [T] int32.
        window: tokens that a row sees, itself among them; 0 means all. As transformers counts a sliding window.

    Returns:
        [T, N * D] in the model's dtype. Scores and softmax are float32.
    """
    rows, heads, head_dim = query.shape
    requests, blocks = block_table.shape
    block_size, kv_heads = key_pool.shape[1], key_pool.shape[2]
    per_request, group, context = rows // requests, heads // kv_heads, blocks * block_size
    # (R, C, G, D): the context of each request, in order of position
    keys = key_pool[block_table.long()].view(requests, context, kv_heads, head_dim)
    values = value_pool[block_table.long()].view(requests, context, kv_heads, head_dim)
    # One product per (request, kv head): all rows of the request times all query heads of the group at once
    grouped = query.view(requests, per_request, kv_heads, group, head_dim).permute(0, 2, 1, 3, 4)
    grouped = grouped.reshape(requests * kv_heads, per_request * group, head_dim)
    by_head = keys.permute(0, 2, 1, 3).reshape(requests * kv_heads, context, head_dim)
    scores = torch.bmm(grouped, by_head.transpose(1, 2))
    scores = scores.float().view(requests, kv_heads, per_request, group, context) * head_dim**-0.5
    entries = torch.arange(context, device=positions.device, dtype=torch.int32)
    hidden = entries[None, None, :] > positions.view(requests, per_request, 1)
    if window:
        hidden = hidden | (entries[None, None, :] <= positions.view(requests, per_request, 1) - window)
    scores = scores.masked_fill(hidden[:, None, :, None, :], float("-inf"))
    weights = torch.softmax(scores, dim=-1).to(query.dtype).view(requests * kv_heads, per_request * group, context)
    mixed = torch.bmm(weights, values.permute(0, 2, 1, 3).reshape(requests * kv_heads, context, head_dim))
    mixed = mixed.view(requests, kv_heads, per_request, group, head_dim).permute(0, 2, 1, 3, 4)
    return mixed.reshape(rows, heads * head_dim)


class Attention(nn.Module):
    """Grouped-query attention with a fused QKV projection over a paged KV pool.

    Args:
        inputs, hidden: widths of what the layer reads and writes.
        qkv_bias, o_bias: biases of the projections.
        qk_norm_eps: above 0, queries and keys are normed over each head before they are rotated (Qwen3), with
            weights `q_norm.weight` and `k_norm.weight`, [D] each.
        window: as in `paged_attention`.
        ranks: above 1, `heads` and `kv_heads` are those of one rank, and what it reads and writes is whole on all.
    """

    def __init__(
        self,
        inputs: int,
        hidden: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        *,
        qkv_bias: bool = False,
        o_bias: bool = False,
        qk_norm_eps: float = 0.0,
        window: int = 0,
        ranks: int = 1,
    ) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim, self.window = heads, kv_heads, head_dim, window
        self.qkv_proj = Linear(inputs, (heads + 2 * kv_heads) * head_dim, dtype, qkv_bias)
        self.q_norm = RMSNorm(head_dim, qk_norm_eps, dtype) if qk_norm_eps else None
        self.k_norm = RMSNorm(head_dim, qk_norm_eps, dtype) if qk_norm_eps else None
        self.o_proj = Linear(heads * head_dim, hidden, dtype, o_bias, ranks=ranks)

    def forward(
        self,
        rows: Tensor,
        angles: Tensor,
        positions: Tensor,
        slot_mapping: Tensor,
        block_table: Tensor,
        key_pool: Tensor,
        value_pool: Tensor,
    ) -> Tensor:
        count, split = rows.shape[0], self.heads * self.head_dim
        width = self.kv_heads * self.head_dim
        fused = self.qkv_proj(rows)
        # Slices, not split: list-split is mis-lowered by one of the target compilers
        query = fused[:, :split].view(count, self.heads, self.head_dim)
        key = fused[:, split : split + width].view(count, self.kv_heads, self.head_dim)
        value = fused[:, split + width :].view(count, self.kv_heads, self.head_dim)
        if self.q_norm is not None and self.k_norm is not None:
            query, key = self.q_norm(query), self.k_norm(key)
        key, value = contain(rotate(key, angles), value)
        write_kv(key_pool, slot_mapping, key)
        write_kv(value_pool, slot_mapping, value)
        query = rotate(query, angles)
        mixed = paged_attention(query, key_pool, value_pool, block_table, positions, self.window)
        return self.o_proj(mixed)  # type: ignore[no-any-return]


class MLP(nn.Module):
    """SwiGLU with gate and up fused, [T, H] -> [T, H]; with `bias`, all three projections have one.

    With `ranks` above 1, `intermediate` is one rank's part.
    """

    def __init__(
        self, hidden: int, intermediate: int, dtype: torch.dtype, bias: bool = False, *, ranks: int = 1
    ) -> None:
        super().__init__()
        self.intermediate = intermediate
        self.gate_up_proj = Linear(hidden, 2 * intermediate, dtype, bias)
        self.down_proj = Linear(intermediate, hidden, dtype, bias, ranks=ranks)

    def forward(self, rows: Tensor) -> Tensor:
        fused = self.gate_up_proj(rows)
        return self.down_proj(F.silu(fused[:, : self.intermediate]) * fused[:, self.intermediate :])  # type: ignore[no-any-return]
