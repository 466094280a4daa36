"""Drawing tokens inside a graph: temperature, min-p, top-k, top-p and one uniform number for each row.

A row's token is drawn by inverse distribution function: the first id, in id order, at which the sum of weights exceeds
the uniform times their total. So a token depends on the row's logits and its uniform alone, drafts are accepted while
they equal what was drawn (`rejection: coupled`), and greedy rejection (aot/models/llama.py) does that as it is. The
host's sampler, runtime/sampling/, draws the same tokens from the same numbers; sums here are float32, so the two may
part where the uniform falls within rounding of a boundary between two tokens.

Written for devices without sort, loops or a running sum: a set of most probable tokens is a threshold, which is found
bit by bit, all that are as probable as the last one kept included, and the running sum goes over blocks.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

# As the host has it (runtime/sampling/params.py): colder than this is greedy
GREEDY_BELOW = 1e-5
# Tokens in one block of the running sum
BLOCK = 256
# Logits that lie this far below the best one, after temperature, have no weight: e**-80 of it
FLOOR = -80.0
# A power of two below the least weight, and the factors that reach any power of two from there up to 1 and above
_LEAST, _POWERS, _FRACTION_BITS = 2.0**-116, (64, 32, 16, 8, 4, 2, 1), 23


class Asked(NamedTuple):
    """What a pass's R requests ask of sampling, and the uniforms of its M = R * (1+K) rows; inputs of a sampled head.

    temperature [R] float32: greedy below 1e-5. top_k [R] int32: 0 or less keeps all. top_p, min_p [R] float32: 1 and 0
    keep all. uniforms [M] float32 in [0, 1): multiples of 2**-24, so that the host has the same numbers.
    """

    temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    min_p: Tensor
    uniforms: Tensor

    def of_rows(self) -> Asked:
        """The same with a value for each row in place of each request, all [M]."""
        each = self.uniforms.shape[0] // self.temperature.shape[0]
        requests = (self.temperature, self.top_k, self.top_p, self.min_p)
        return Asked(*(value[:, None].expand(-1, each).reshape(-1) for value in requests), self.uniforms)


def draw(logits: Tensor, asked: Asked, greedy: Tensor) -> Tensor:
    """The token of each row, [M] int32, for logits [M, V] of any float dtype.

    Rows whose request is greedy take `greedy` [M] int32. Whatever the inputs hold, ids are in [0, V); a row without any
    weight gives 0. Tokens whose logit is NaN or minus infinity are never drawn where another can be.
    """
    rows = asked.of_rows()
    weights = kept_weights(logits, rows)
    return torch.where(rows.temperature >= GREEDY_BELOW, inverse(weights, rows.uniforms), greedy)


def kept_weights(logits: Tensor, rows: Asked) -> Tensor:
    """Each token's weight in blocks, [M, V/block, block] float32; 0 for what is cut off. The best token has about 1.

    Args:
        rows: for each row, see `Asked.of_rows`.
    """
    weights = in_blocks(token_weights(logits, rows.temperature))
    best = weights.amax(dim=-1).amax(dim=-1)
    count = threshold(weights, torch.ones_like(weights), rows.top_k.float())
    least = torch.maximum(
        torch.where(rows.top_k > 0, torch.minimum(count, best), 0.0),
        torch.where(rows.min_p > 0, rows.min_p.clamp(max=1.0), 0.0) * best,
    )
    weights = torch.where(weights >= least[:, None, None], weights, 0.0)
    nucleus = threshold(weights, weights, rows.top_p * total(weights))
    least = torch.where(rows.top_p < 1, torch.minimum(nucleus, best), 0.0)
    return torch.where(weights >= least[:, None, None], weights, 0.0)


def token_weights(logits: Tensor, temperature: Tensor) -> Tensor:
    """exp((logit - best logit) / temperature), [M, V] float32, in [0, 1]."""
    values = logits.float()
    number = values > float("-inf")  # and no NaN
    values = torch.where(number, values, torch.finfo(torch.float32).min).clamp(max=torch.finfo(torch.float32).max)
    # The difference first: after a division both would have lost digits
    far = values - values.amax(dim=-1, keepdim=True)
    scaled = far / torch.where(temperature >= GREEDY_BELOW, temperature, 1.0)[:, None]
    live = number & (scaled >= FLOOR)
    return torch.where(live, torch.exp(torch.where(live, scaled, 0.0)), 0.0)


def in_blocks(weights: Tensor) -> Tensor:
    """[M, V] -> [M, ceil(V/block), block], the last block filled with zeros; one block where V is small."""
    rows, vocab = weights.shape
    block = min(BLOCK, vocab)
    blocks = -(-vocab // block)
    if missing := blocks * block - vocab:
        weights = torch.cat([weights, weights.new_zeros(rows, missing)], dim=1)
    return weights.view(rows, blocks, block)


def total(weights: Tensor) -> Tensor:
    """Sum of each row, [M, N, B] -> [M]: over blocks first, which keeps float32's error small."""
    return weights.sum(dim=-1).sum(dim=-1)


def threshold(weights: Tensor, amounts: Tensor, wanted: Tensor) -> Tensor:
    """The largest t of float32 for which the amounts of all weights >= t reach `wanted`, [M].

    Where none do, a number below every weight that is not 0. Found as a float is written: its power of two, then its 23
    bits of fraction, one sum each, all of them exact steps.

    Args:
        weights, amounts: [M, N, B], weights at most about 1.
        wanted: [M], above 0.
    """

    def raised(least: Tensor, tried: Tensor) -> Tensor:
        enough = total(torch.where(weights >= tried[:, None, None], amounts, 0.0)) >= wanted
        return torch.where(enough, tried, least)

    found = torch.full_like(wanted, _LEAST)
    for power in _POWERS:
        found = raised(found, found * 2.0**power)
    unit = found
    for place in range(1, _FRACTION_BITS + 1):
        found = raised(found, found + unit * 2.0**-place)
    return found


def inverse(weights: Tensor, uniforms: Tensor) -> Tensor:
    """The first token at which the running sum of [M, N, B] weights exceeds uniform * total, [M] int32.

    Only tokens with a weight are drawn. Where rounding leaves none, the last of them; where there is none at all, 0.
    """
    rows, blocks, block = weights.shape
    sums = weights.sum(dim=-1)
    ends = running_sum(sums)
    aim = uniforms * ends[:, -1]
    chosen = first(ends > aim[:, None], sums > 0)
    number = torch.arange(blocks, device=weights.device, dtype=torch.int32)
    before = torch.where(number[None, :] == chosen[:, None] - 1, ends, 0.0).sum(dim=-1)
    row = torch.arange(rows, device=weights.device, dtype=torch.int32)
    inside = weights.view(rows * blocks, block)[(row * blocks + chosen).long()]
    reached = before[:, None] + running_sum(inside) > aim[:, None]
    return chosen * block + first(reached, inside > 0)


def running_sum(values: Tensor) -> Tensor:
    """Sums of values [M, N] up to and with each, in log2(N) additions of shifted copies: the same bits everywhere."""
    rows, length = values.shape
    shift = 1
    while shift < length:
        values = values + torch.cat([values.new_zeros(rows, shift), values[:, :-shift]], dim=1)
        shift *= 2
    return values


def first(reached: Tensor, real: Tensor) -> Tensor:
    """The first index that is both, [M, N] each -> [M] int32; else the last real one; else 0."""
    length = real.shape[1]
    index = torch.arange(length, device=real.device, dtype=torch.int32)[None, :]
    earliest = torch.where(reached & real, index, length).amin(dim=1)
    latest = torch.where(real, index, 0).amax(dim=1)
    return torch.where(earliest < length, earliest, latest)
