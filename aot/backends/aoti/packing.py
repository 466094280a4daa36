"""Packed weight layouts: told from one compiled constant, made for every layer.

Inductor's CPU GEMM template freezes a linear's weight W [N, K] into the layout that its micro-kernel reads: columns of
W^T in blocks of `width`, [N / width, K, width], the last block padded with zeros; and, for kernels that multiply pairs
of bf16 (AMX, VNNI), each `pair` of rows of a block interleaved. A unit is compiled once with random weights, so its
packed constants are recognised here by their bits, and the same rearrangement is then applied to the real weights of
every layer. Nothing is assumed: a constant that no layout reproduces bit for bit is refused by `recognise`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

PLAIN = "plain"
WIDTHS = (16, 32, 48, 64, 80, 96, 128)
PAIRS = (1, 2, 4)


def layouts() -> Iterator[str]:
    """Names of the layouts known here: `plain`, `block32`, `block32_pair2`, ..."""
    yield PLAIN
    for width in WIDTHS:
        for pair in PAIRS:
            yield f"block{width}" + (f"_pair{pair}" if pair > 1 else "")


def apply(layout: str, weight: Tensor) -> Tensor:
    """`weight` rearranged to `layout`, contiguous.

    Args:
        layout: one of `layouts()`.
        weight: [N, K] for packed layouts, any shape for `plain`.

    Returns:
        [ceil(N / width), K, width] for packed layouts (interleaving keeps that shape).
    """
    if layout == PLAIN:
        return weight.contiguous()
    width, _, pair_text = layout.removeprefix("block").partition("_pair")
    return _blocks(weight, int(width), int(pair_text or 1))


def _blocks(weight: Tensor, width: int, pair: int) -> Tensor:
    outputs, inputs = weight.shape
    padded = F.pad(weight.t(), (0, -outputs % width))  # (K, N rounded up)
    blocks = padded.view(inputs, -1, width).permute(1, 0, 2).contiguous()  # (N / width, K, width)
    if pair == 1:
        return blocks
    if inputs % pair:
        blocks = F.pad(blocks, (0, 0, 0, -inputs % pair))
    rows = blocks.shape[1]
    interleaved = blocks.view(-1, rows // pair, pair, width).transpose(2, 3)
    return interleaved.contiguous().view(-1, rows, width)


def recognise(constant: Tensor, weights: Mapping[str, Tensor]) -> tuple[str, str] | None:
    """The (weight name, layout) whose bits are exactly `constant`'s, or None."""
    for name, weight in weights.items():
        if same_bits(constant, weight):
            return name, PLAIN
    for name, weight in weights.items():
        if weight.dim() != 2 or weight.dtype != constant.dtype or constant.dim() != 3:
            continue
        width, rows = constant.shape[2], constant.shape[1]
        if width * constant.shape[0] - weight.shape[0] not in range(width) or rows < weight.shape[1]:
            continue
        for layout in layouts():
            if layout.partition("_")[0] == f"block{width}" and same_bits(constant, apply(layout, weight)):
                return name, layout
    return None


def same_bits(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors have the same dtype, shape and bits; NaNs and signed zeros are told apart."""
    if first.dtype != second.dtype or first.shape != second.shape:
        return False
    return torch.equal(first.contiguous().view(torch.uint8), second.contiguous().view(torch.uint8))
