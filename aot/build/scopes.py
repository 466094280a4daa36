"""From checkpoint names to scopes: the weights that each call of a graph takes, fused as the models fuse them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from aot.graphs.geometry import Geometry
from aot.models.layers import rotary_table

# What a scope holds: weight name -> tensor
Scope = dict[str, Tensor]


def scopes(
    geometry: Geometry, target: Mapping[str, Tensor], draft: Mapping[str, Tensor]
) -> Iterator[tuple[str, Scope]]:
    """All scopes of a build, one at a time, so that no more than one layer is held twice.

    Args:
        target: Hugging Face's names, `lm_head.weight` absent when tied.
        draft: canonical EAGLE3 names, `embed_tokens.weight` absent when it shares the target's.
    """
    t, d = geometry.target, geometry.draft
    embedding = target["model.embed_tokens.weight"]
    angles = rotary_table(geometry.max_model_len, t.head_dim, t.rope_theta)
    yield "target.embed", {"embed_tokens.weight": embedding, "rotary.weight": angles}
    for i in range(t.num_layers):
        yield f"target.layers.{i}", decoder_layer(lambda name, i=i: target[f"model.layers.{i}.{name}"])  # type: ignore[misc]
    yield (
        "target.head",
        {
            "norm.weight": target["model.norm.weight"],
            "lm_head.weight": target.get("lm_head.weight", embedding),
        },
    )
    layer = decoder_layer(lambda name: draft[f"midlayer.{name}"])
    ids = torch.arange(d.draft_vocab_size, dtype=torch.int64) + draft["d2t"].to(torch.int64)
    yield (
        "draft",
        {
            **layer,
            "embed_tokens.weight": draft.get("embed_tokens.weight", embedding),
            "rotary.weight": rotary_table(geometry.max_model_len, d.head_dim, d.rope_theta),
            "hidden_norm.weight": draft["midlayer.hidden_norm.weight"],
            "fc.weight": draft["fc.weight"],
            "norm.weight": draft["norm.weight"],
            "lm_head.weight": draft["lm_head.weight"],
            "target_ids.weight": ids.to(torch.int32),
        },
    )


def decoder_layer(get: Callable[[str], Tensor]) -> Scope:
    qkv = torch.cat([get(f"self_attn.{name}_proj.weight") for name in "qkv"])
    return {
        "input_layernorm.weight": get("input_layernorm.weight"),
        "self_attn.qkv_proj.weight": qkv,
        "self_attn.o_proj.weight": get("self_attn.o_proj.weight"),
        "post_attention_layernorm.weight": get("post_attention_layernorm.weight"),
        "mlp.gate_up_proj.weight": torch.cat([get("mlp.gate_proj.weight"), get("mlp.up_proj.weight")]),
        "mlp.down_proj.weight": get("mlp.down_proj.weight"),
    }
