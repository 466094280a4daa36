"""Seeded random weights for a target or a draft of which only the config is at hand.

They make toy pairs for tests, and the demo's draft until a trained one ships. Values are uniform with the
variance of the usual initialisation, drawn in whole steps of 2**-24, so a seed gives the same bytes on every
machine. Norm weights scatter around one and biases around zero, so that one that is left out or misplaced shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aot.checkpoint.draft import DraftConfig, draft_shapes
from aot.checkpoint.headers import Shapes
from aot.checkpoint.target import TargetConfig, target_shapes

if TYPE_CHECKING:
    import torch


def random_target_weights(config: TargetConfig, seed: int, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Weights of every tensor of `target_shapes(config)`, in `dtype`."""
    return _random(target_shapes(config), seed, dtype)


def random_draft_weights(config: DraftConfig, seed: int, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Weights of every tensor of `draft_shapes(config)` in `dtype`, and a `d2t` to random target ids.

    Draft ids are those of the target where the vocabularies are of one size.
    """
    import torch

    weights = _random(draft_shapes(config), seed, dtype)
    ids = torch.randperm(config.vocab_size, generator=torch.Generator().manual_seed(seed))
    chosen = ids[: config.draft_vocab_size].sort().values
    weights["d2t"] = chosen - torch.arange(config.draft_vocab_size)
    return weights


def _random(shapes: Shapes, seed: int, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    import torch

    generator = torch.Generator().manual_seed(seed)
    weights: dict[str, torch.Tensor] = {}
    for name, shape in shapes.items():
        uniform = torch.rand(shape, generator=generator) - 0.5
        if name.endswith(".bias"):
            weights[name] = (0.2 * uniform).to(dtype)
        elif len(shape) == 1:
            weights[name] = (1.0 + 0.2 * uniform).to(dtype)
        else:
            # A uniform value in [-0.5, 0.5) has variance 1/12; linears keep the variance of what they read.
            deviation = 1.0 if "embed_tokens" in name else shape[1] ** -0.5
            weights[name] = (uniform * (12.0**0.5 * deviation)).to(dtype)
    return weights
