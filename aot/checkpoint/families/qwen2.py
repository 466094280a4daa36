"""Qwen2 and Qwen2.5: biases on queries, keys and values; windows in the later layers where a config asks for them."""

from __future__ import annotations

from aot.checkpoint.families.family import Family, LayerFeatures, window_size, windows_by_layer_type
from aot.checkpoint.fields import Fields


def qwen_windows(config: Fields, num_layers: int) -> tuple[int, ...]:
    """Each layer's window. `sliding_window` counts only with `use_sliding_window`, and the first
    `max_window_layers` layers have none: the key's name says the opposite of what it does."""
    window = window_size(config) if config.flag("use_sliding_window", False) else 0
    return windows_by_layer_type(config, num_layers, window, config.integer("max_window_layers", 28))


def _features(config: Fields, num_layers: int) -> LayerFeatures:
    return LayerFeatures(qkv_bias=True, windows=qwen_windows(config, num_layers))


QWEN2 = Family(
    architecture="Qwen2ForCausalLM",
    features=_features,
    num_kv_heads=32,
    max_position_embeddings=32768,
    gguf="halves",
)
