"""Mistral: Llama's layers, each over a window of the last tokens in the first release and over all in later ones."""

from __future__ import annotations

from aot.checkpoint.families.family import Family, LayerFeatures, window_size
from aot.checkpoint.fields import Fields, brief
from runtime.bundle.errors import ConfigError


def _features(config: Fields, num_layers: int) -> LayerFeatures:
    window = window_size(config)
    if not window:
        return LayerFeatures()
    kinds = config.raw.get("layer_types") or ["sliding_attention"] * num_layers
    if kinds != ["sliding_attention"] * num_layers:
        raise ConfigError(
            f"layer_types of {config.where} is not supported",
            expected="the same window in every layer, as Mistral's model in transformers has it",
            found=brief(kinds, 1000),
            repair="choose a model whose layers are alike",
        )
    return LayerFeatures(windows=(window,) * num_layers)


# llama.cpp has no architecture of this name: it stores Mistral models as llama ones
MISTRAL = Family(
    architecture="MistralForCausalLM", features=_features, num_kv_heads=8, max_position_embeddings=4096 * 32
)
