"""Rotary position embedding: what a config says about it, and the inverse frequencies that follow.

transformers 4 writes `rope_theta` and `rope_scaling` (its type under `rope_type` or `type`); transformers 5
puts both into `rope_parameters`. A config that says nothing means theta 10000 without scaling, which is what
the trainers use. Target and draft each follow their own config, so their tables are separate.

Besides the plain form there are four scalings, all known to make longer texts out of fewer trained positions:

    linear    every frequency divided by `factor`
    dynamic   a larger base, the larger the longer the text; plain up to the trained length
    llama3    low frequencies divided by `factor`, high ones kept, a blend between
    yarn      the same with other bounds, and cosines and sines multiplied by an attention factor

Sources: arXiv:2309.00071 (yarn), Llama 3.1's published code, and for defaults and spelling transformers'
modeling_rope_utils.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from aot.checkpoint.fields import Fields, brief
from runtime.bundle.errors import ConfigError

if TYPE_CHECKING:
    import torch

DEFAULT_THETA = 10000.0
DEFAULT_POSITIONS = 2048
ROPE_TYPES = ("default", "linear", "dynamic", "llama3", "yarn")

# The keys of a scaling beside rope_type, as `read_rope` returns it
Scaling = dict[str, Any]


def read_rope(
    fields: Fields, *, supported: tuple[str, ...] = ROPE_TYPES, max_positions: int | None = None
) -> tuple[float, Scaling | None, bool]:
    """The base, the scaling and whether the config gave the base itself.

    Args:
        fields: the config.json.
        supported: rope types to accept, "default" among them; every other type is refused by name.
        max_positions: the model's max_position_embeddings, for scalings that do not state the trained length
            themselves; read from `fields` where None.

    Returns:
        (theta, scaling, theta_given). `scaling` is None for the default type, else `{"rope_type": ...}` and
        every number that its frequencies hang on, defaults filled in, so that nothing else needs to be known.

    Raises:
        ConfigError: the type is none of `supported`, heads are rotated in part or each layer in another way,
            or a number is missing or wrong.
    """
    parameters, scaling = fields.mapping("rope_parameters"), fields.mapping("rope_scaling")
    described = scaling if scaling.raw else parameters
    _refuse_by_layer(described)
    # As in transformers 5: what stands beside the type goes before what stands alone
    theta_from = next((place for place in (described, parameters) if place.has("rope_theta")), fields)
    theta = theta_from.number("rope_theta", DEFAULT_THETA)
    if theta <= 1:
        raise ConfigError(
            f"rope_theta of {theta_from.where} is not above 1, so no pair would turn slower than the first",
            expected="a base such as 10000",
            found=str(theta),
            repair="correct rope_theta",
        )
    kind = _kind(described)
    if kind not in supported:
        raise ConfigError(
            f"rope type {kind!r} of {fields.where} is not supported yet",
            expected=" or ".join(supported),
            found=kind,
            repair="choose a model with a supported rope type",
        )
    partial = (fields if fields.has("partial_rotary_factor") else described).number("partial_rotary_factor", 1.0)
    if partial != 1.0:
        raise ConfigError(
            f"partial_rotary_factor of {fields.where} is not supported yet",
            expected="1.0",
            found=str(partial),
            repair="choose a model that rotates its whole heads",
        )
    trained = max_positions or fields.integer("max_position_embeddings", DEFAULT_POSITIONS)
    return theta, _scaling(kind, described, fields, trained), theta_from.has("rope_theta")


def _kind(described: Fields) -> str:
    """The type, in the newer or the older spelling or both.

    Raises:
        ConfigError: they differ.
    """
    older = described.text("type", "default")
    kind = described.text("rope_type", older)
    # For text mrope is the plain form, and transformers writes both words
    if described.has("type") and older != kind and (older, kind) != ("mrope", "default"):
        raise ConfigError(
            f"the rope type stands in {described.where} twice, with different values",
            found=f"rope_type {brief(kind)} and type {brief(older)}",
            repair="remove the wrong one",
        )
    return kind


def _refuse_by_layer(described: Fields) -> None:
    nested = [key for key, value in described.raw.items() if isinstance(value, dict)]
    if nested:
        raise ConfigError(
            f"{described.where} differs by kind of layer, which is not supported yet",
            expected="one rope for all layers",
            found=", ".join(nested),
            repair="choose a model with one rope for all layers",
        )


def _scaling(kind: str, described: Fields, fields: Fields, max_positions: int) -> Scaling | None:
    """The scaling of `kind`, complete. `max_positions` is what a config that names no trained length means."""
    if kind == "default":
        return None
    stated = described.number("factor", 1.0)
    if stated < 1:
        raise ConfigError(
            f"factor of {described.where} is below 1, and a scaling of rope stretches",
            expected="at least 1",
            found=str(stated),
            repair="correct factor",
        )
    original_from = fields if fields.has("original_max_position_embeddings") else described
    original = original_from.integer("original_max_position_embeddings", max_positions)
    if kind == "linear":
        return {"rope_type": kind, "factor": described.number("factor")}
    if kind == "dynamic":
        # Its trained length is max_position_embeddings, whatever else is written
        return {
            "rope_type": kind,
            "factor": described.number("factor"),
            "original_max_position_embeddings": max_positions,
        }
    if kind == "llama3":
        numbers = {key: described.number(key) for key in ("factor", "low_freq_factor", "high_freq_factor")}
        if numbers["low_freq_factor"] >= numbers["high_freq_factor"]:
            raise ConfigError(
                f"low_freq_factor of {described.where} is not below its high_freq_factor",
                found=f"{numbers['low_freq_factor']} and {numbers['high_freq_factor']}",
                repair="correct the config",
            )
        return {"rope_type": kind, **numbers, "original_max_position_embeddings": original}
    factor = described.number("factor", max_positions / original)
    return {
        "rope_type": kind,
        "factor": factor,
        "original_max_position_embeddings": original,
        "beta_fast": described.number("beta_fast", 32.0),
        "beta_slow": described.number("beta_slow", 1.0),
        "truncate": described.flag("truncate", True),
        "attention_factor": described.number("attention_factor", _yarn_attention(described, factor)),
    }


def _yarn_attention(described: Fields, factor: float) -> float:
    """The attention factor of a yarn config that states none: the paper's 0.1 ln(factor) + 1, or the ratio of two
    such terms where the config weighs them (DeepSeek's mscale and mscale_all_dim)."""

    def term(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    if described.has("mscale") and described.has("mscale_all_dim"):
        return term(described.number("mscale")) / term(described.number("mscale_all_dim"))
    return term(1.0)


def reach(max_positions: int, scaling: Scaling | None) -> int:
    """How many positions a model is made for: "linear" and "yarn" stretch what it was trained on by their factor, and
    published configs often leave max_position_embeddings at the trained length.

    "dynamic" stretches too, but by turning the keys in the cache again as a text grows; a table is fixed, so such a
    model is good for its trained length here, where it is the plain form.
    """
    if scaling and scaling["rope_type"] == "linear":
        return int(max_positions * scaling["factor"])
    if scaling and scaling["rope_type"] == "yarn":
        return max(max_positions, int(scaling["original_max_position_embeddings"] * scaling["factor"]))
    return max_positions


def inverse_frequencies(
    head_dim: int,
    theta: float,
    scaling: Scaling | None,
    *,
    length: int = 0,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Inverse frequencies of one head, [head_dim / 2], in radians per position.

    The angle of pair i at position p is p * inverse_frequencies[i]; pair i is (x[i], x[i + head_dim / 2]),
    the NeoX layout.

    Args:
        scaling: as `read_rope` returns it.
        length: how long a text may become, in tokens; only "dynamic" asks. Up to its trained length it is the
            plain form, and beyond it the frequencies are those that transformers has for a text of `length`
            tokens, at all positions.
        dtype: to compute in and to return; float32 where None.
    """
    import torch

    dtype = dtype or torch.float32
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).to(dtype) / head_dim
    kind = scaling["rope_type"] if scaling else "default"
    # A single pair turns by 1 whatever the base is
    if scaling and kind == "dynamic" and head_dim > 2:
        original, factor = scaling["original_max_position_embeddings"], scaling["factor"]
        grown = factor * max(length, original) / original - (factor - 1)
        theta = theta * grown ** (head_dim / (head_dim - 2))
    frequencies: torch.Tensor = 1.0 / (theta**exponents)
    if scaling and kind == "linear":
        frequencies = frequencies / scaling["factor"]
    if scaling and kind in ("llama3", "yarn"):
        kept = (_llama3_kept if kind == "llama3" else _yarn_kept)(frequencies, theta, scaling)
        frequencies = (1 - kept) * frequencies / scaling["factor"] + kept * frequencies
    return frequencies


def attention_factor(scaling: Scaling | None) -> float:
    """What cosines and sines are multiplied by; 1 for every scaling but yarn."""
    return float(scaling["attention_factor"]) if scaling and scaling["rope_type"] == "yarn" else 1.0


def _llama3_kept(frequencies: torch.Tensor, theta: float, scaling: Scaling) -> torch.Tensor:
    """How much of each frequency is kept: 1 for wavelengths that fit `high` times into the trained length, 0 for
    those that fit fewer than `low` times."""
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    turns = scaling["original_max_position_embeddings"] * frequencies / (2 * math.pi)
    kept: torch.Tensor = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return kept


def _yarn_kept(frequencies: torch.Tensor, theta: float, scaling: Scaling) -> torch.Tensor:
    """How much of each frequency is kept: 1 for pairs that turn `beta_fast` times or more over the trained length, 0
    for those that turn `beta_slow` times or fewer, and along the pairs' index a straight line between."""
    import torch

    dim = 2 * len(frequencies)

    def pair_that_turns(times: float) -> float:
        length = scaling["original_max_position_embeddings"] / (times * 2 * math.pi)
        return dim * math.log(length) / (2 * math.log(theta))

    first, last = pair_that_turns(scaling["beta_fast"]), pair_that_turns(scaling["beta_slow"])
    if scaling["truncate"]:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, dim - 1)
    # Of no width, the line would divide by zero
    width = last - first or 0.001
    index = torch.arange(dim // 2, dtype=frequencies.dtype)
    kept: torch.Tensor = 1 - ((index - first) / width).clamp(0, 1)
    return kept
