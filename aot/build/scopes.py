"""From checkpoint names to scopes: the weights that each call of a graph takes, fused as the models fuse them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from aot.build.padding import pad_draft_scope, pad_target_scope
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
    """All scopes of a build, one at a time, so that no more than one layer is held twice; padded where the graphs are.

    Args:
        target: Hugging Face's names, `lm_head.weight` absent when tied.
        draft: canonical EAGLE3 names (`draft_shapes`) and `d2t`.
    """
    t = geometry.target
    embedding = target["model.embed_tokens.weight"]
    angles = rotary_table(geometry.max_model_len, t.head_dim, t.rope_theta, t.rope_scaling)
    embed = {"embed_tokens.weight": embedding, "rotary.weight": angles}
    yield "target.embed", pad_target_scope(embed, geometry)
    for i in range(t.num_layers):
        yield f"target.layers.{i}", pad_target_scope(decoder_layer(target, f"model.layers.{i}."), geometry)
    head = {"norm.weight": target["model.norm.weight"], "lm_head.weight": target_head(target)}
    yield "target.head", pad_target_scope(head, geometry)
    yield "draft", pad_draft_scope(draft_scope(geometry, target, draft), geometry)


def draft_scope(geometry: Geometry, target: Mapping[str, Tensor], draft: Mapping[str, Tensor]) -> Scope:
    """The draft's scope, with the target's embedding table and head where the draft has none of its own.

    A head that is shared is the target's rows of the ids that the draft may propose.
    """
    d, embedding = geometry.draft, target["model.embed_tokens.weight"]
    ids = torch.arange(d.draft_vocab_size, dtype=torch.int64) + draft["d2t"].to(torch.int64)
    scope: Scope = {
        **decoder_layer(draft, "midlayer."),
        "embed_tokens.weight": draft["embed_tokens.weight"] if d.own_embedding else embedding,
        "rotary.weight": rotary_table(geometry.max_model_len, d.head_dim, d.rope_theta, d.rope_scaling),
        "hidden_norm.weight": draft["midlayer.hidden_norm.weight"],
        "norm.weight": draft["norm.weight"],
        "lm_head.weight": draft["lm_head.weight"] if d.own_head else target_head(target)[ids],
        "target_ids.weight": ids.to(torch.int32),
    }
    for layer in range(1, d.num_layers):
        prefix = f"layers.{layer}."
        scope |= {prefix + name: weight for name, weight in decoder_layer(draft, prefix).items()}
    scope |= {name: weight for name, weight in draft.items() if name.startswith(("fc.", "fc_norm.", "input_norm."))}
    return scope


def target_head(target: Mapping[str, Tensor]) -> Tensor:
    """The target's head, [V, H]: its own, or the embedding table where they are tied."""
    return target.get("lm_head.weight", target["model.embed_tokens.weight"])


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
