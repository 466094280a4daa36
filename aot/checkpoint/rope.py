"""Rotary position embedding: what a config says about it, and the inverse frequencies that follow.

transformers 4 writes `rope_theta` and `rope_scaling` (its type under `rope_type` or `type`); transformers 5
puts both into `rope_parameters`. A config that says nothing means theta 10000 without scaling, which is what
the trainers use. Target and draft each follow their own config, so their tables are separate.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from aot.checkpoint.fields import Fields
from runtime.bundle.errors import ConfigError

if TYPE_CHECKING:
    import torch

DEFAULT_THETA = 10000.0
LLAMA3_KEYS = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")


def read_rope(fields: Fields, *, supported: tuple[str, ...]) -> tuple[float, dict[str, Any] | None, bool]:
    """The base, the scaling and whether the config gave the base itself.

    Args:
        fields: the config.json.
        supported: rope types to accept, "default" among them; every other type is refused by name.

    Returns:
        (theta, scaling, theta_given). `scaling` is None for the default type, else
        `{"rope_type": "llama3", "factor": ..., ...}` with the numbers of `LLAMA3_KEYS`.
    """
    parameters, scaling = fields.mapping("rope_parameters"), fields.mapping("rope_scaling")
    theta_from = fields if fields.has("rope_theta") else parameters
    theta = theta_from.number("rope_theta", DEFAULT_THETA)
    described = scaling if scaling.raw else parameters
    kind = described.text("rope_type", described.text("type", "default"))
    if kind not in supported:
        raise ConfigError(
            f"rope type {kind!r} of {fields.where} is not supported yet",
            expected=" or ".join(supported),
            found=kind,
            repair="choose a model with a supported rope type",
        )
    partial = (fields if fields.has("partial_rotary_factor") else parameters).number("partial_rotary_factor", 1.0)
    if partial != 1.0:
        raise ConfigError(
            f"partial_rotary_factor of {fields.where} is not supported yet",
            expected="1.0",
            found=str(partial),
            repair="choose a model that rotates its whole heads",
        )
    if kind == "default":
        return theta, None, theta_from.has("rope_theta")
    return (
        theta,
        {"rope_type": kind, **{key: described.number(key) for key in LLAMA3_KEYS}},
        theta_from.has("rope_theta"),
    )


def inverse_frequencies(head_dim: int, theta: float, scaling: dict[str, Any] | None) -> torch.Tensor:
    """Inverse frequencies of one head, float32 [head_dim / 2], in radians per position.

    The angle of pair i at position p is p * inverse_frequencies[i]; pair i is (x[i], x[i + head_dim / 2]),
    the NeoX layout. "llama3" scaling keeps the short wavelengths, divides the long ones by `factor`, and
    blends those between `original / high_freq_factor` and `original / low_freq_factor` positions (Llama 3.1's
    published rule).
    """
    import torch

    frequencies = 1.0 / (theta ** (torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim))
    if scaling is None:
        return frequencies
    if scaling["rope_type"] != "llama3":
        raise ConfigError(f"rope type {scaling['rope_type']!r} is not supported yet", expected="default or llama3")
    factor, low, high = scaling["factor"], scaling["low_freq_factor"], scaling["high_freq_factor"]
    original = scaling["original_max_position_embeddings"]
    wavelengths = 2 * math.pi / frequencies
    # 1 for wavelengths that fit `high` times into the original context, 0 for those that fit fewer than `low`
    # times.
    kept = ((original / wavelengths - low) / (high - low)).clamp(0.0, 1.0)
    blended: torch.Tensor = (1 - kept) * frequencies / factor + kept * frequencies
    return blended
