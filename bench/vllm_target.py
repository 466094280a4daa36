"""The target as a Hugging Face folder, for a reader that knows nothing of GGUF files: vLLM.

config.json, generation_config.json, model.safetensors     what this file writes, from what our readers read
tokenizer.json, chat_template.jinja                        as the builder writes them into a bundle
tokenizer_config.json                                      the special tokens, as transformers wants to find them
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from aot.checkpoint.families.registry import FAMILIES
from aot.checkpoint.source import ModelSource
from aot.checkpoint.target import TargetConfig, load_target_weights
from aot.checkpoint.tokenizer import write_tokenizer
from runtime.text.tokenizer import INFO, TokenizerInfo


def write_target(source: ModelSource, config: TargetConfig, dtype: str, folder: Path) -> None:
    """Write the target at `source` into `folder`, its weights in `dtype` ("bfloat16"), 2 bytes a weight there.

    Raises:
        ConfigError, HostError: the checkpoint or its tokenizer cannot be read.
    """
    import torch
    from safetensors.torch import save_file

    weights = load_target_weights(source, config, getattr(torch, dtype))
    # transformers looks for the format before it reads a tensor
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    _write(folder / "config.json", hugging_face_config(config, dtype))
    _write(folder / "generation_config.json", {**_ends(config), "do_sample": False})
    if write_tokenizer(source, folder):
        info = TokenizerInfo.load(folder / INFO)
        _write(
            folder / "tokenizer_config.json",
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "model_max_length": config.max_position_embeddings,
                "add_bos_token": info.add_bos,
                **info.special_tokens(),
            },
        )


def hugging_face_config(config: TargetConfig, dtype: str) -> dict[str, Any]:
    """config.json of a model of the target's family, which our reader reads back as `config`. transformers 5 takes the
    rotary embedding from rope_parameters, older releases from rope_theta and rope_scaling."""
    scaling = dict(config.rope_scaling or {"rope_type": "default"})
    if scaling["rope_type"] == "dynamic":
        # Not a key of this type there: its trained length is max_position_embeddings
        del scaling["original_max_position_embeddings"]
    return {
        "architectures": [FAMILIES[config.family].architecture],
        "model_type": config.family,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "vocab_size": config.vocab_size,
        "hidden_act": "silu",
        "rms_norm_eps": config.rms_norm_eps,
        "rope_theta": config.rope_theta,
        "rope_scaling": scaling if config.rope_scaling else None,
        "rope_parameters": {"rope_theta": config.rope_theta, **scaling},
        "max_position_embeddings": config.max_position_embeddings,
        "tie_word_embeddings": config.tie_word_embeddings,
        "attention_bias": config.o_bias,
        "mlp_bias": False,
        **_windows(config),
        "torch_dtype": dtype,
        **_ends(config),
    }


def _windows(config: TargetConfig) -> dict[str, Any]:
    if not config.windows:
        return {"sliding_window": None, "use_sliding_window": False}
    kinds = ["sliding_attention" if window else "full_attention" for window in config.windows]
    return {"sliding_window": max(config.windows), "use_sliding_window": True, "layer_types": kinds}


def _ends(config: TargetConfig) -> dict[str, Any]:
    return {"bos_token_id": config.bos_token_id, "eos_token_id": list(config.eos_token_ids)}


def _write(file: Path, value: dict[str, Any]) -> None:
    file.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
