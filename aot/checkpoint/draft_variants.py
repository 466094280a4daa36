"""What published EAGLE3 drafts have and our graphs do not, each refused by name.

A draft that is run as something it is not still drafts, only nothing is accepted; so whatever this table or
the reader does not know is refused rather than ignored.
"""

from __future__ import annotations

from aot.checkpoint.draft_format import DraftFields, unsupported
from aot.checkpoint.fields import brief
from aot.checkpoint.headers import Shapes

AUX_IDS = "eagle_aux_hidden_state_layer_ids"
# Every name under which trainers write those ids, at the top level and under eagle_config alike
ID_KEYS = (AUX_IDS, "layer_ids", "target_layer_ids")

# Key -> (the value that means "without it", what the key asks for). A null or absent key asks for nothing.
_TOP_LEVEL: dict[str, tuple[object, str]] = {
    "hidden_act": ("silu", "another activation"),
    "quantization_config": (None, "a quantised draft"),
    "mask_token_id": (None, "parallel drafting (P-EAGLE)"),
    "pard_token": (None, "parallel drafting (P-EAGLE)"),
    "ptd_token_id": (None, "parallel drafting (P-EAGLE)"),
    "kv_lora_rank": (None, "latent attention (MLA)"),
    "num_experts": (None, "a draft of experts"),
    "num_local_experts": (None, "a draft of experts"),
}
# Found at the top level or under eagle_config, depending on the trainer.
_EITHER: dict[str, tuple[object, str]] = {
    "use_input_layernorm_in_first_layer": (True, "a draft layer without its input norm"),
    "use_last_layernorm": (True, "a draft without its final norm"),
    "use_mtp_layernorm": (False, "the MTP norms"),
    "next_layer_regular": (True, "further layers that read the embedding again"),
    "parallel_draft_step": (1, "parallel drafting"),
}
_READ_UNDER_EAGLE = {
    *ID_KEYS,
    "fc_norm",
    "norm_before_fc",
    "norm_before_residual",
    "norm_output",
    "num_aux_hidden_states",
    "use_aux_hidden_state",
    "use_aux_norm",
}

_TENSORS: tuple[tuple[str, str], ...] = (
    ("kv_a_proj_with_mqa", "latent attention (MLA)"),
    ("mask_hidden", "parallel drafting (P-EAGLE)"),
    ("parallel_draft_heads", "parallel drafting"),
    (".mlp.experts.", "a draft of experts"),
    ("_scale", "a quantised draft"),
    (".qweight", "a quantised draft"),
    (".qzeros", "a quantised draft"),
    ("enorm", "the MTP norms"),
    ("hnorm", "the MTP norms"),
)


def refuse_unsupported_config(fields: DraftFields) -> None:
    """Refuse a config.json that asks for a variant which is not supported.

    Raises:
        ConfigError: naming the key, its value and what it asks for.
    """
    top, eagle = fields.top, fields.eagle
    for table, places in ((_TOP_LEVEL, (top,)), (_EITHER, (top, eagle))):
        for key, (neutral, what) in table.items():
            for place in places:
                if place.has(key) and place.raw[key] != neutral:
                    raise unsupported(f"{what} ({key}: {brief(place.raw[key])})", place.where)
    known = {*_EITHER, *_READ_UNDER_EAGLE}
    unknown = sorted(key for key in eagle.raw if key not in known and eagle.has(key))
    if unknown:
        raise unsupported(f"something unknown ({unknown[0]})", eagle.where)


def refuse_unsupported_tensors(shapes: Shapes) -> None:
    """Refuse tensors that belong to a variant which is not supported, under canonical names (`midlayer.`).

    Raises:
        ConfigError: naming the variant and one of its tensors.
    """
    where = "the draft checkpoint"
    for name in shapes:
        for part, what in _TENSORS:
            if part in name:
                raise unsupported(f"{what} ({name})", where)
        if name.startswith("layers.") and name.endswith(".hidden_norm.weight"):
            # vLLM norms them by input_layernorm, SGLang by hidden_norm; the file does not say which it was trained for
            raise unsupported(f"further layers with a hidden_norm of their own, SGLang's form ({name})", where)
    fc, queries = shapes.get("fc.weight", ()), shapes.get("midlayer.self_attn.q_proj.weight", ())
    if len(fc) == 2 and fc[1] == 2 * fc[0] and queries[1:] == fc[:1] and "midlayer.hidden_norm.weight" not in shapes:
        raise unsupported("EAGLE-1 or EAGLE-2 (fc.weight of width 2H, no hidden_norm)", where)
