"""Qwen3, dense: no biases as published, a norm over each query and key head, and heads of a size of their own."""

from __future__ import annotations

from aot.checkpoint.families.family import Family, LayerFeatures
from aot.checkpoint.families.qwen2 import qwen_windows
from aot.checkpoint.fields import Fields


def _features(config: Fields, num_layers: int) -> LayerFeatures:
    bias = config.flag("attention_bias", False)
    return LayerFeatures(qkv_bias=bias, o_bias=bias, qk_norm=True, windows=qwen_windows(config, num_layers))


QWEN3 = Family(
    architecture="Qwen3ForCausalLM",
    features=_features,
    num_kv_heads=32,
    head_dim=128,
    max_position_embeddings=32768,
    gguf="halves",
)
