"""From checkpoint names to scopes: the weights that each call of a graph takes, fused as the models fuse them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from aot.build.padding import pad_target_scope
from aot.graphs.geometry import Geometry
from aot.models.layers import rotary_table

# What a scope holds: weight name -> tensor
Scope = dict[str, Tensor]

# A decoder layer's modules in aot/models, each with the checkpoint's modules that it is made of
_LAYER = {
    "input_layernorm": ("input_layernorm",),
    "self_attn.qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attn.q_norm": ("self_attn.q_norm",),
    "self_attn.k_norm": ("self_attn.k_norm",),
    "self_attn.o_proj": ("self_attn.o_proj",),
    "post_attention_layernorm": ("post_attention_layernorm",),
    "mlp.gate_up_proj": ("mlp.gate_proj", "mlp.up_proj"),
    "mlp.down_proj": ("mlp.down_proj",),
}


def scopes(
    geometry: Geometry, target: Mapping[str, Tensor], draft: Mapping[str, Tensor]
) -> Iterator[tuple[str, Scope]]:
    """All scopes of a build, one at a time, so that no more than one layer is held twice; the target's are padded where
    its graphs are.

    Args:
        target: Hugging Face's names, `lm_head.weight` absent when tied.
        draft: canonical EAGLE3 names, `embed_tokens.weight` absent when it shares the target's.
    """
    t, d = geometry.target, geometry.draft
    embedding = target["model.embed_tokens.weight"]
    angles = rotary_table(geometry.max_model_len, t.head_dim, t.rope_theta, t.rope_scaling)
    embed = {"embed_tokens.weight": embedding, "rotary.weight": angles}
    yield "target.embed", pad_target_scope(embed, geometry)
    for i in range(t.num_layers):
        yield f"target.layers.{i}", pad_target_scope(decoder_layer(target, f"model.layers.{i}."), geometry)
    head = {"norm.weight": target["model.norm.weight"], "lm_head.weight": target.get("lm_head.weight", embedding)}
    yield "target.head", pad_target_scope(head, geometry)
    layer = decoder_layer(draft, "midlayer.")
    ids = torch.arange(d.draft_vocab_size, dtype=torch.int64) + draft["d2t"].to(torch.int64)
    yield (
        "draft",
        {
            **layer,
            "embed_tokens.weight": draft.get("embed_tokens.weight", embedding),
            "rotary.weight": rotary_table(geometry.max_model_len, d.head_dim, d.rope_theta, d.rope_scaling),
            "hidden_norm.weight": draft["midlayer.hidden_norm.weight"],
            "fc.weight": draft["fc.weight"],
            "norm.weight": draft["norm.weight"],
            "lm_head.weight": draft["lm_head.weight"],
            "target_ids.weight": ids.to(torch.int32),
        },
    )


def decoder_layer(weights: Mapping[str, Tensor], prefix: str) -> Scope:
    """One decoder layer's scope, query, key and value fused, gate and up fused.

    Biases and the norms of queries and keys are taken where `weights` has them: which ones a model has was settled
    when its checkpoint was read.

    Args:
        weights: by checkpoint names.
        prefix: of the layer's names, such as "model.layers.7.".
    """
    scope: Scope = {}
    for name, parts in _LAYER.items():
        for kind in ("weight", "bias"):
            found = [weights[key] for part in parts if (key := f"{prefix}{part}.{kind}") in weights]
            if found:
                scope[f"{name}.{kind}"] = torch.cat(found) if len(parts) > 1 else found[0]
    return scope
