"""The published EAGLE3 variants that our graphs do not have yet, each refused by name.

A draft that is run as something it is not still drafts, only nothing is accepted; so whatever this table or
the reader does not know is refused rather than ignored.
"""

from __future__ import annotations

from aot.checkpoint.fields import Fields
from aot.checkpoint.tensors import Shapes
from runtime.bundle.errors import ConfigError

AUX_IDS = "eagle_aux_hidden_state_layer_ids"

# Key -> (the value that means "without it", what the key asks for). A null or absent key asks for nothing.
_TOP_LEVEL: dict[str, tuple[object, str]] = {
    "speculators_model_type": (None, "the speculators format"),
    "num_hidden_layers": (1, "a draft of several layers"),
    "hidden_act": ("silu", "another activation"),
    "attention_bias": (False, "biases in the attention"),
    "qkv_bias": (False, "biases in the attention"),
    "bias": (False, "a bias in fc"),
    "mlp_bias": (False, "biases in the MLP"),
    "quantization_config": (None, "a quantised draft"),
    "logit_scale": (1.0, "scaled draft logits"),
    "mask_token_id": (None, "parallel drafting (P-EAGLE)"),
    "pard_token": (None, "parallel drafting (P-EAGLE)"),
    "ptd_token_id": (None, "parallel drafting (P-EAGLE)"),
}
# Found at the top level or under eagle_config, depending on the trainer.
_EITHER: dict[str, tuple[object, str]] = {
    "fc_norm": (False, "a norm on each auxiliary state"),
    "use_aux_norm": (False, "a norm on each auxiliary state"),
    "norm_before_fc": (False, "a norm before fc"),
    "norm_output": (False, "a recurrent state after the final norm"),
    "use_aux_hidden_state": (True, "a draft on the final hidden state, without fc"),
    "use_input_layernorm_in_first_layer": (True, "a draft layer without its input norm"),
    "use_last_layernorm": (True, "a draft without its final norm"),
    "use_mtp_layernorm": (False, "the MTP norms"),
    "parallel_draft_step": (1, "parallel drafting"),
}
_EAGLE_CONFIG_KEYS = {*_EITHER, AUX_IDS}


def _unsupported(what: str, where: str) -> ConfigError:
    return ConfigError(
        f"{where} asks for {what}, which is not supported yet",
        repair="choose a draft without it under speculative_config.model",
    )


def refuse_unsupported_config(config: Fields) -> None:
    """Refuse a config.json that asks for a variant which is not supported.

    Raises:
        ConfigError: naming the key, its value and what it asks for.
    """
    eagle = config.mapping("eagle_config")
    for table, places in ((_TOP_LEVEL, (config,)), (_EITHER, (config, eagle))):
        for key, (neutral, what) in table.items():
            for place in places:
                if place.has(key) and place.raw[key] != neutral:
                    raise _unsupported(f"{what} ({key}: {place.raw[key]!r})", place.where)
    if config.text("model_type", "llama") != "llama":
        raise _unsupported(f"a draft layer of the family {config.text('model_type')!r}", config.where)
    layer_types = config.raw.get("layer_types") or []
    windowed = config.has("sliding_window") and config.raw.get("use_sliding_window", True) is not False
    if windowed or "sliding_attention" in layer_types:
        raise _unsupported("a sliding window", config.where)
    unknown = sorted(key for key in eagle.raw if key not in _EAGLE_CONFIG_KEYS and eagle.has(key))
    if unknown:
        raise _unsupported(f"something unknown ({unknown[0]})", eagle.where)


def refuse_unsupported_tensors(shapes: Shapes) -> None:
    """Refuse tensors that belong to a variant which is not supported, under canonical names (`midlayer.`).

    Raises:
        ConfigError: naming the variant and one of its tensors.
    """
    for name in shapes:
        for part, what in (
            ("layers.", "a draft of several layers"),
            ("fc_norm", "a norm on each auxiliary state"),
            ("aux_norm", "a norm on each auxiliary state"),
            ("input_norm", "a norm before fc"),
            ("q_norm", "norms on queries and keys"),
            ("k_norm", "norms on queries and keys"),
            ("kv_a_proj_with_mqa", "latent attention (MLA)"),
            ("mask_hidden", "parallel drafting (P-EAGLE)"),
            ("parallel_draft_heads", "parallel drafting"),
            ("_scale", "a quantised draft"),
            (".qweight", "a quantised draft"),
        ):
            if part in name:
                raise _unsupported(f"{what} ({name})", "the draft checkpoint")
        if name.endswith(".bias"):
            raise _unsupported(f"biases ({name})", "the draft checkpoint")
    fc = shapes.get("fc.weight", ())
    if len(fc) == 2 and fc[1] == 2 * fc[0] and "midlayer.hidden_norm.weight" not in shapes:
        raise _unsupported("EAGLE-1 or EAGLE-2 (fc.weight of width 2H, no hidden_norm)", "the draft checkpoint")
