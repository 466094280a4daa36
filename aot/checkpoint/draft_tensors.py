"""A draft's tensors: their names under one spelling, and the shapes that a config asks for.

Canonical names have the first layer as `midlayer.` and further ones as `layers.1.`, `layers.2.`; no leading
`model.`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from aot.checkpoint.draft_config import DraftConfig
from aot.checkpoint.headers import Shapes
from aot.checkpoint.tensors import check_shapes
from runtime.bundle.errors import ConfigError

EMBEDDING, HEAD = "embed_tokens.weight", "lm_head.weight"
Q_PROJ, K_PROJ = "midlayer.self_attn.q_proj.weight", "midlayer.self_attn.k_proj.weight"
Q_NORM = "midlayer.self_attn.q_norm.weight"

# Other trainers' names: SpecForge's older norms, and ModelOpt's, whose layer norms its two inputs outside.
_RENAMED = {
    "aux_norm_low.weight": "fc_norm.0.weight",
    "aux_norm_mid.weight": "fc_norm.1.weight",
    "aux_norm_high.weight": "fc_norm.2.weight",
    "hidden_norm.weight": "midlayer.hidden_norm.weight",
    "input_embeds_norm.weight": "midlayer.input_layernorm.weight",
    "eagle_lm_head.weight": "lm_head.weight",
}


def canonical_names(found: dict[str, Any]) -> dict[str, Any]:
    """`found` under canonical names, without the rotary buffers that older checkpoints carry.

    Raises:
        ConfigError: two tensors have the same canonical name.
    """
    renamed: dict[str, Any] = {}
    for name, value in found.items():
        plain = name.removeprefix("model.")
        plain = "midlayer." + plain.removeprefix("layers.0.") if plain.startswith("layers.0.") else plain
        plain = _RENAMED.get(plain, plain)
        if plain.endswith("rotary_emb.inv_freq"):
            continue
        if plain in renamed:
            raise ConfigError(
                f"the draft checkpoint holds {plain} under two names", repair="fetch the checkpoint again"
            )
        renamed[plain] = value
    return renamed


def layer_prefix(layer: int) -> str:
    """What the names of layer `layer`'s tensors begin with."""
    return "midlayer." if layer == 0 else f"layers.{layer}."


def layer_indices(found: Iterable[str]) -> set[int]:
    """The indices of the decoder layers among canonical names; the first layer is always one of them."""
    parts = [name.split(".") for name in found if name.startswith("layers.")]
    return {0} | {int(part[1]) for part in parts if len(part) > 1 and re.fullmatch("[0-9]{1,9}", part[1])}


def draft_shapes(config: DraftConfig) -> Shapes:
    """Every float tensor that a draft must have, with its shape, in the order of a forward pass.

    `embed_tokens.weight` [V, H] and `lm_head.weight` [Vd, H] are among them where the draft has its own; without
    them it shares the target's.
    """
    hidden, features = config.hidden_size, config.num_aux * config.target_hidden_size
    shapes: Shapes = {EMBEDDING: (config.vocab_size, hidden)} if config.own_embedding else {}
    if config.feature_norm == "joined":
        shapes["input_norm.weight"] = (features,)
    elif config.feature_norm == "each":
        shapes |= {f"fc_norm.{i}.weight": (config.target_hidden_size,) for i in range(config.num_aux)}
    if config.features == "auxiliary":
        shapes["fc.weight"] = (hidden, features)
    if config.fc_bias:
        shapes["fc.bias"] = (hidden,)
    for layer in range(config.num_layers):
        shapes |= _layer_shapes(config, layer)
    shapes["norm.weight"] = (hidden,)
    if config.own_head:
        shapes[HEAD] = (config.draft_vocab_size, hidden)
    return shapes


def _layer_shapes(config: DraftConfig, layer: int) -> Shapes:
    hidden, inner, prefix = config.hidden_size, config.intermediate_size, layer_prefix(layer)
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    # The first layer reads the embedding and the hidden state side by side
    inputs = hidden if layer else 2 * hidden
    attention, mlp = prefix + "self_attn.", prefix + "mlp."
    shapes: Shapes = {prefix + "input_layernorm.weight": (hidden,)}
    if layer == 0:
        shapes[prefix + "hidden_norm.weight"] = (hidden,)
    shapes |= {
        attention + "q_proj.weight": (queries, inputs),
        attention + "k_proj.weight": (keys, inputs),
        attention + "v_proj.weight": (keys, inputs),
    }
    if config.qkv_bias:
        sizes = {"q": queries, "k": keys, "v": keys}
        shapes |= {attention + f"{name}_proj.bias": (size,) for name, size in sizes.items()}
    if config.qk_norm:
        shapes |= {attention + f"{name}_norm.weight": (config.head_dim,) for name in "qk"}
    shapes[attention + "o_proj.weight"] = (hidden, queries)
    if config.o_bias:
        shapes[attention + "o_proj.bias"] = (hidden,)
    shapes |= {
        prefix + "post_attention_layernorm.weight": (hidden,),
        mlp + "gate_proj.weight": (inner, hidden),
        mlp + "up_proj.weight": (inner, hidden),
        mlp + "down_proj.weight": (hidden, inner),
    }
    if config.mlp_bias:
        sizes = {"gate": inner, "up": inner, "down": hidden}
        shapes |= {mlp + f"{name}_proj.bias": (size,) for name, size in sizes.items()}
    return shapes


def check_draft_shapes(found: Shapes, config: DraftConfig) -> None:
    """Refuse a draft whose tensors are not those of `config`, or that lacks a map or a table it needs.

    Args:
        found: every tensor of the checkpoint by its canonical name.

    Raises:
        ConfigError: naming what is missing, unknown or of the wrong shape.
    """
    width, fc = config.num_aux * config.target_hidden_size, found.get("fc.weight", ())
    if config.features == "auxiliary" and len(fc) == 2 and fc[1] != width and fc[1] % config.target_hidden_size:
        raise ConfigError(
            "fc.weight of the draft does not take whole states of this target",
            expected=f"a multiple of the target's hidden size, {config.target_hidden_size}",
            found=f"a width of {fc[1]}",
            repair="check that this draft was trained for this target",
        )
    optional: Shapes = {
        EMBEDDING: (config.vocab_size, config.hidden_size),
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
