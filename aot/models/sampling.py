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
# Tokens this far behind the best one, see `distances`, have no weight: it would be e**-80 of the best one's
FAR = 80.0
# Where the search for a distance starts, a power of two that is as good as 0, and how it goes on
_LEAST, _POWERS, _FRACTION_BITS = 2.0**-100, (64, 32, 16, 8, 4, 2, 1), 23


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

        def repeated(value: Tensor) -> Tensor:
            return value[:, None].expand(-1, each).reshape(-1)

        asked = (self.temperature, self.top_k, self.top_p, self.min_p)
        temperature, top_k, top_p, min_p = (repeated(value) for value in asked)
        return Asked(temperature, top_k, top_p, min_p, self.uniforms)


def draw(logits: Tensor, asked: Asked, greedy: Tensor) -> Tensor:
    """The token of each row, [M] int32, for logits [M, V] of any float dtype.

    Rows whose request is greedy take `greedy` [M] int32. Whatever the inputs hold, ids are in [0, V); a row without any
    weight gives 0. Tokens whose logit is NaN or minus infinity are never drawn where another can be.
    """
    rows = asked.of_rows()
    weights = kept_weights(logits, rows)
    return torch.where(rows.temperature >= GREEDY_BELOW, inverse(weights, rows.uniforms), greedy)


def kept_weights(logits: Tensor, rows: Asked) -> Tensor:
    """Each token's weight in blocks, [M, N, B] float32; 1 for the best token, 0 for what is cut off.

    Args:
        rows: for each row, see `Asked.of_rows`.
    """
    apart = in_blocks(distances(logits, rows.temperature))
    weights = torch.where(apart <= FAR, torch.exp(-apart), 0.0)
    everything = rows.top_p.new_full(rows.top_p.shape, FAR)
    each = apart.new_full(apart.shape, 1.0)
    furthest = torch.minimum(
        torch.where(rows.top_k > 0, furthest_kept(apart, each, rows.top_k.float()), everything),
        torch.where(rows.min_p > 0, -torch.log(torch.where(rows.min_p < 1, rows.min_p, 1.0)), everything),
    )
    weights = torch.where(apart <= furthest[:, None, None], weights, 0.0)
    nucleus = furthest_kept(apart, weights, rows.top_p * total(weights))
    furthest = torch.where(rows.top_p < 1, nucleus, everything)
    return torch.where(apart <= furthest[:, None, None], weights, 0.0)


def distances(logits: Tensor, temperature: Tensor) -> Tensor:
    """How far each logit is behind the row's best one, over the temperature: [M, V] float32, at least 0.

    Above `FAR` for tokens that may not be drawn: those whose logit is NaN or minus infinity.
    """
    largest = torch.finfo(torch.float32).max
    values = logits.float()
    possible = values > float("-inf")  # which NaN is not
    values = torch.where(possible, torch.where(values > largest, largest, values), -largest)
    # The difference first: after a division both would have lost digits
    behind = values.amax(dim=-1, keepdim=True) - values
    apart = behind / torch.where(temperature >= GREEDY_BELOW, temperature, 1.0)[:, None]
    # An infinite temperature makes 0 of all of them but infinity, which is NaN
    return torch.where(possible & (apart <= FAR), apart, 2 * FAR)


def in_blocks(apart: Tensor) -> Tensor:
    """Distances [M, V] -> [M, N, B], the last block filled with tokens that may not be drawn; N is 1 for a small V."""
    rows, vocab = apart.shape
    block = min(BLOCK, vocab)
    blocks = -(-vocab // block)
    if missing := blocks * block - vocab:
        apart = torch.cat([apart, apart.new_full((rows, missing), 2 * FAR)], dim=1)
    return apart.view(rows, blocks, block)


def total(weights: Tensor) -> Tensor:
    """Sum of each row, [M, N, B] -> [M]: over blocks first, which keeps float32's error small."""
    return weights.sum(dim=-1).sum(dim=-1)


def furthest_kept(apart: Tensor, amounts: Tensor, wanted: Tensor) -> Tensor:
    """The least distance within which the amounts reach `wanted`, [M]; some distance beyond all where they never do.

    It is the largest number below which they do not, found as a float is written: its power of two, then its 23 bits
    of fraction. Every step is exact.

    Args:
        apart, amounts: [M, N, B]; amounts are at least 0.
        wanted: [M].
    """

    def raised(least: Tensor, tried: Tensor) -> Tensor:
        missing = total(torch.where(apart < tried[:, None, None], amounts, 0.0)) < wanted
        return torch.where(missing, tried, least)

    found = raised(wanted.new_zeros(wanted.shape), wanted.new_full(wanted.shape, _LEAST))
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
    # What is left of the aim, and not the whole sum: small numbers keep digits that large ones lose
    reached = running_sum(inside) > (aim - before)[:, None]
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
