"""The EAGLE3 draft: its config and its weights, whatever its trainer called them.

Published drafts differ in more than names, and a difference that is passed over silently costs acceptance
without any visible error. So the weights are the truth where config and weights can disagree, every guess is
recorded in `DraftConfig.sources`, and each known variant that our graphs lack is refused by name (see
draft_variants.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aot.checkpoint.aux_layers import read_aux_layers
from aot.checkpoint.draft_variants import refuse_unsupported_config, refuse_unsupported_tensors
from aot.checkpoint.fields import Fields, read_json
from aot.checkpoint.rope import read_rope
from aot.checkpoint.source import ModelSource
from aot.checkpoint.target import TargetConfig
from aot.checkpoint.tensors import Shapes, check_shapes, read_shapes, read_tensors
from aot.checkpoint.vocabulary_map import draft_to_target
from runtime.bundle.errors import ConfigError

if TYPE_CHECKING:
    import torch


Q_PROJ = "midlayer.self_attn.q_proj.weight"


@dataclass(frozen=True)
class DraftConfig:
    """The facts of a draft that decide its graphs.

    Attributes:
        vocab_size: the target's vocabulary; `draft_vocab_size` is the draft head's, at most as large.
        target_hidden_size: width of one auxiliary state; `fc` maps num_aux of them to hidden_size.
        aux_layers: residual-stream positions of the auxiliary states, ascending, each in [0, target layers].
        norm_before_residual: the residual of the draft layer is the normed hidden state, not the hidden
            state.
        sources: for each fact that a checkpoint may leave open, who decided it: config, weights, default or
            override.
    """

    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    draft_vocab_size: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: dict[str, Any] | None
    max_position_embeddings: int
    target_hidden_size: int
    num_aux: int
    aux_layers: tuple[int, ...]
    norm_before_residual: bool
    sources: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """`from_json(to_json())` equals self."""
        return {**dataclasses.asdict(self), "aux_layers": list(self.aux_layers)}

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> DraftConfig:
        """The config that `to_json` wrote."""
        return cls(**{**raw, "aux_layers": tuple(raw["aux_layers"])})


def read_draft_config(
    source: ModelSource, target: TargetConfig, *, aux_layers: Sequence[int] | None = None
) -> DraftConfig:
    """The config of the draft at `source`, checked against its tensors' shapes and against `target`.

    Args:
        aux_layers: residual-stream positions that override what the checkpoint says.

    Raises:
        ConfigError: it cannot be read, does not fit the target, or is a variant that is not supported yet.
    """
    if source.kind == "gguf":
        raise ConfigError(
            "a draft in GGUF is not supported yet",
            expected="a folder or hub id with config.json and safetensors",
            found=source.path.name,
            repair="give the original draft checkpoint as speculative_config.model",
        )
    config = Fields(read_json(source.path / "config.json"), f"{source.path.name}/config.json")
    refuse_unsupported_config(config)
    shapes = canonical_names(read_shapes(source.path))
    refuse_unsupported_tensors(shapes)
    return _read(config, target, shapes, aux_layers)


def draft_config_from_json(
    path_or_dict: Path | str | dict[str, Any],
    target: TargetConfig,
    *,
    aux_layers: Sequence[int] | None = None,
) -> DraftConfig:
    """The config of a draft of which only config.json is at hand (the YAML's `draft_config:`)."""
    if isinstance(path_or_dict, dict):
        config = Fields(path_or_dict, "draft_config")
    else:
        path = Path(path_or_dict)
        config = Fields(read_json(path, repair="correct draft_config; it names the draft's config.json"), path.name)
    refuse_unsupported_config(config)
    return _read(config, target, {}, aux_layers)


def _read(config: Fields, target: TargetConfig, shapes: Shapes, override: Sequence[int] | None) -> DraftConfig:
    sources: dict[str, str] = {}

    def decide(name: str, key: str, weight: str, axis: int, unit: int, default: int) -> int:
        """What config.json says, else the size of `weight` along `axis` over `unit`, else `default`."""
        if config.has(key):
            sources[name] = "config"
            return config.integer(key)
        if weight in shapes and len(shapes[weight]) > axis:
            sources[name] = "weights"
            return shapes[weight][axis] // unit
        sources[name] = "default"
        return default

    hidden_size, num_heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    num_kv_heads = config.integer("num_key_value_heads", num_heads)
    vocab_size = config.integer("vocab_size", target.vocab_size)
    _must_agree("vocab_size", vocab_size, target.vocab_size, config)
    target_hidden_size = config.integer("target_hidden_size", target.hidden_size)
    _must_agree("target_hidden_size", target_hidden_size, target.hidden_size, config)
    aux, sources["aux_layers"] = read_aux_layers(config, target.num_layers, override)
    head_dim = decide("head_dim", "head_dim", Q_PROJ, 0, num_heads, max(1, hidden_size // num_heads))
    draft_vocab_size = decide("draft_vocab_size", "draft_vocab_size", "lm_head.weight", 0, 1, vocab_size)
    theta, scaling, theta_given = read_rope(config, supported=("default",))
    sources["rope_theta"] = "config" if theta_given else "default"
    sources["norm_before_residual"] = "config" if config.has("norm_before_residual") else "default"
    if draft_vocab_size > vocab_size:
        raise ConfigError(
            f"draft_vocab_size of {config.where} is larger than the target's vocabulary",
            expected=f"at most {vocab_size}",
            found=str(draft_vocab_size),
            repair="check that this draft was trained for this target",
        )
    if num_heads % num_kv_heads or head_dim % 2:
        raise ConfigError(
            f"the attention heads of {config.where} do not fit together",
            expected="query heads a multiple of key-value heads, and an even head_dim",
            found=f"{num_heads}, {num_kv_heads} and {head_dim}",
            repair="correct the config",
        )
    draft = DraftConfig(
        hidden_size=hidden_size,
        intermediate_size=config.integer("intermediate_size"),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        vocab_size=vocab_size,
        draft_vocab_size=draft_vocab_size,
        rms_norm_eps=config.number("rms_norm_eps", 1e-6),
        rope_theta=theta,
        rope_scaling=scaling,
        max_position_embeddings=config.integer("max_position_embeddings", 2048),
        target_hidden_size=target_hidden_size,
        num_aux=len(aux),
        aux_layers=aux,
        norm_before_residual=config.flag("norm_before_residual", False),
        sources=sources,
    )
    if shapes:
        _check_draft_shapes(shapes, draft)
    return draft


def _must_agree(key: str, found: int, expected: int, config: Fields) -> None:
    if found != expected:
        raise ConfigError(
            f"{key} of the draft's {config.where} is not the target's",
            expected=str(expected),
            found=str(found),
            repair="check that this draft was trained for this target",
        )


def draft_shapes(config: DraftConfig) -> Shapes:
    """Every float tensor that a draft must have, with its shape, in the order of a forward pass.

    `embed_tokens.weight` [V, H] may be there too; without it the draft shares the target's.
    """
    hidden, inner = config.hidden_size, config.intermediate_size
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    return {
        "fc.weight": (hidden, config.num_aux * config.target_hidden_size),
        "midlayer.input_layernorm.weight": (hidden,),
        "midlayer.hidden_norm.weight": (hidden,),
        # The layer reads the embedding and the hidden state side by side, hence 2 * hidden.
        Q_PROJ: (queries, 2 * hidden),
        "midlayer.self_attn.k_proj.weight": (keys, 2 * hidden),
        "midlayer.self_attn.v_proj.weight": (keys, 2 * hidden),
        "midlayer.self_attn.o_proj.weight": (hidden, queries),
        "midlayer.post_attention_layernorm.weight": (hidden,),
        "midlayer.mlp.gate_proj.weight": (inner, hidden),
        "midlayer.mlp.up_proj.weight": (inner, hidden),
        "midlayer.mlp.down_proj.weight": (hidden, inner),
        "norm.weight": (hidden,),
        "lm_head.weight": (config.draft_vocab_size, hidden),
    }


def canonical_names(found: dict[str, Any]) -> dict[str, Any]:
    """`found` with the one layer called `midlayer.` and no leading `model.`."""
    renamed: dict[str, Any] = {}
    for name, value in found.items():
        plain = name.removeprefix("model.")
        plain = "midlayer." + plain.removeprefix("layers.0.") if plain.startswith("layers.0.") else plain
        if plain in renamed:
            raise ConfigError(
                f"the draft checkpoint holds {plain} under two names", repair="fetch the checkpoint again"
            )
        renamed[plain] = value
    return renamed


def _check_draft_shapes(found: dict[str, tuple[int, ...]], config: DraftConfig) -> None:
    """Refuse a draft whose tensors are not those of `config`, or that lacks a map or embedding it needs."""
    width = config.num_aux * config.target_hidden_size
    fc = found.get("fc.weight", ())
    if len(fc) == 2 and fc[1] != width and fc[1] % config.target_hidden_size == 0:
        raise ConfigError(
            f"fc.weight of the draft takes {fc[1] // config.target_hidden_size} auxiliary states, "
            f"and its config names {config.num_aux}",
            expected=f"fc.weight of width {width}",
            found=str(fc[1]),
            repair="state the auxiliary layers in the draft's config.json as aux_layers",
        )
    optional: Shapes = {
        "embed_tokens.weight": (config.vocab_size, config.hidden_size),
        "d2t": (config.draft_vocab_size,),
        "t2d": (config.vocab_size,),
    }
    present = {name: shape for name, shape in optional.items() if name in found}
    check_shapes(found, draft_shapes(config) | present, what="draft")
    if config.draft_vocab_size < config.vocab_size and "d2t" not in found and "t2d" not in found:
        raise ConfigError(
            "the draft has a reduced vocabulary and no map to the target's",
            expected=f"d2t with {config.draft_vocab_size} offsets",
            found="neither d2t nor t2d",
            repair="export the draft again with its d2t; without it its tokens are read as other tokens",
        )
    if config.hidden_size != config.target_hidden_size and "embed_tokens.weight" not in found:
        raise ConfigError(
            "the draft is not as wide as the target and has no embed_tokens.weight of its own",
            expected=f"embed_tokens.weight {[config.vocab_size, config.hidden_size]}",
            repair="export the draft again with its embedding table",
        )


def load_draft_weights(
    source: ModelSource, config: DraftConfig, target_config: TargetConfig, dtype: torch.dtype
) -> dict[str, torch.Tensor]:
    """The draft's weights by the names of `draft_shapes`, contiguous, on the CPU, cast to `dtype`.

    Beside them `d2t`, int64 [draft_vocab_size], offsets: draft id i is target id i + d2t[i] (all zero where
    the vocabularies are the same); and `embed_tokens.weight` where the checkpoint has its own.

    Raises:
        ConfigError: a tensor is missing, unknown, of the wrong shape or not finite, or the vocabulary map is
            not one.
    """
    found = canonical_names(read_tensors(source.path))
    shapes = {name: tuple(tensor.shape) for name, tensor in found.items()}
    refuse_unsupported_tensors(shapes)
    _check_draft_shapes(shapes, config)
    for name, tensor in found.items():
        # Some trainers save an embedding table that was filled with NaN to be replaced at load.
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise ConfigError(
                f"{name} of the draft checkpoint holds values that are not finite",
                repair="export the draft again; without embed_tokens.weight it shares the target's",
            )
    weights = {name: found[name].to(dtype).contiguous() for name in draft_shapes(config)}
    weights["d2t"] = draft_to_target(
        found.get("d2t"), found.get("t2d"), config.draft_vocab_size, target_config.vocab_size
    )
    if "embed_tokens.weight" in found:
        weights["embed_tokens.weight"] = found["embed_tokens.weight"].to(dtype).contiguous()
    return weights
