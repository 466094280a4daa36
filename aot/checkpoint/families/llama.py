"""Llama 1, 2 and 3.x, and the many models published in their form."""

from __future__ import annotations

from aot.checkpoint.families.family import Family, LayerFeatures, refuse_unless
from aot.checkpoint.fields import Fields


def _features(config: Fields, num_layers: int) -> LayerFeatures:
    refuse_unless(config, "mlp_bias", right=False, default=False)
    bias = config.flag("attention_bias", False)
    return LayerFeatures(qkv_bias=bias, o_bias=bias)


LLAMA = Family(architecture="LlamaForCausalLM", features=_features, gguf="pairs")
