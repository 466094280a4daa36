"""One random model of transformers for each target family and each feature of its layers, saved as a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from aot.checkpoint.source import ModelSource
from aot.checkpoint.target import load_target_weights, read_target_config
from tests.runtime.loop.rig import Rig, Shape, rig_of

Json = dict[str, Any]

# As wide as the toy rig. Small windows and trained lengths, so that a text of twenty tokens meets them.
COMMON: Json = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": None,
    "eos_token_id": None,
    "initializer_range": 0.3,
}
WINDOW = 6
LLAMA3: Json = {
    "rope_type": "llama3",
    "rope_theta": 100.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN: Json = {
    "rope_type": "yarn",
    "rope_theta": 100.0,
    "factor": 4.0,
    "original_max_position_embeddings": 32,
}

# What a case is -> its family, and the keys of its config beside those of COMMON
CASES: dict[str, tuple[str, Json]] = {
    "llama": ("Llama", {}),
    "llama, tied": ("Llama", {"tie_word_embeddings": True}),
    "llama 3.1": ("Llama", {"rope_parameters": LLAMA3}),
    "llama, linear rope": (
        "Llama",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 100.0, "factor": 3.0}},
    ),
    "llama, dynamic rope": (
        "Llama",
        {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 100.0, "factor": 3.0}},
    ),
    "llama with biases": ("Llama", {"attention_bias": True}),
    "mistral": ("Mistral", {"sliding_window": WINDOW}),
    "mistral without a window": ("Mistral", {"sliding_window": None, "head_dim": 16}),
    "qwen2": ("Qwen2", {}),
    "qwen2, yarn": ("Qwen2", {"rope_parameters": YARN}),
    "qwen2, windows": (
        "Qwen2",
        {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 3},
    ),
    "qwen3": ("Qwen3", {"head_dim": 16}),
    "qwen3 with biases, tied": ("Qwen3", {"head_dim": 8, "attention_bias": True, "tie_word_embeddings": True}),
    "qwen3, windows": (
        "Qwen3",
        {
            "head_dim": 8,
            "use_sliding_window": True,
            "sliding_window": WINDOW,
            "layer_types": ["sliding_attention", "full_attention"] * 4,
        },
    ),
}


def save_model(name: str, folder: Path) -> Any:
    """The random transformers model of case `name`, in float32, saved in `folder`."""
    import transformers

    family, keys = CASES[name]
    config = getattr(transformers, f"{family}Config")(**COMMON, **keys)
    torch.manual_seed(5)
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    generator = torch.Generator().manual_seed(6)
    with torch.no_grad():
        # As made, biases are zero and norms one, and leaving them out would change nothing
        for parameter_name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter_name.endswith(".bias"):
                parameter.copy_(0.5 * noise)
            elif "norm" in parameter_name:
                parameter.copy_(1 + 0.2 * noise)
    model.save_pretrained(folder)
    return model


def rig_of_model(folder: Path, shape: Shape) -> Rig:
    """A rig whose target is the checkpoint in `folder`, read as a build reads it."""
    source = ModelSource("model", "folder", folder)
    config = read_target_config(source)
    return rig_of(config, load_target_weights(source, config, getattr(torch, shape.dtype)), shape)
