"""The product that a head ends in, summed in float32 and given out in float32, whatever dtype its factors have.

Logits are compared, and the best two of a real model are often closer than one step of bfloat16, which at 25 is an
eighth: rounded they tie, and the lowest id wins what it had not won. In an exported graph the product is one node,
`torch.ops.eagle3.mm_f32`, which a backend turns into one product that reads the weight as it is stored.
"""

from __future__ import annotations

import torch
from torch import Tensor

from aot.models.layers import Linear

# Columns that are widened at once in eager PyTorch: the head of a large vocabulary, widened, has gigabytes
CHUNK = 8192


@torch.library.custom_op("eagle3::mm_f32", mutates_args=(), schema="(Tensor rows, Tensor columns) -> Tensor")
def _mm_f32(rows: Tensor, columns: Tensor) -> Tensor:
    wide = rows.float()
    parts = (columns[:, start : start + CHUNK] for start in range(0, columns.shape[1], CHUNK))
    return torch.cat([wide @ part.float() for part in parts], dim=1)


@_mm_f32.register_fake
def _(rows: Tensor, columns: Tensor) -> Tensor:
    return rows.new_empty((rows.shape[0], columns.shape[1]), dtype=torch.float32)


@torch.library.custom_op("eagle3::linear_f32", mutates_args=(), schema="(Tensor rows, Tensor weight) -> Tensor")
def _linear_f32(rows: Tensor, weight: Tensor) -> Tensor:
    return _mm_f32(rows, weight.t())  # type: ignore[no-any-return]


@_linear_f32.register_fake
def _(rows: Tensor, weight: Tensor) -> Tensor:
    return rows.new_empty((rows.shape[0], weight.shape[0]), dtype=torch.float32)


class Head(Linear):
    """A language-model head: states [M, H] -> logits [M, V] float32; weight [V, H] in the model's dtype.

    Attributes:
        repeated: a graph asks it several times. Transposed in the graph, the weight would be frozen as a copy that is
            in no layout known to packing; Inductor drops that copy only where one product reads it.
    """

    repeated = False

    def forward(self, rows: Tensor) -> Tensor:
        if self.repeated:
            return torch.ops.eagle3.linear_f32(rows, self.weight)  # type: ignore[no-any-return]
        return torch.ops.eagle3.mm_f32(rows, self.weight.t())  # type: ignore[no-any-return]
