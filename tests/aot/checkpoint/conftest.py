"""Toy checkpoints on disk: a two-layer Llama target's config, and a draft that fits it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from aot.checkpoint.draft import draft_config_from_json
from aot.checkpoint.random_weights import random_draft_weights
from aot.checkpoint.source import ModelSource
from aot.checkpoint.target import TargetConfig, target_config_from_json

DraftWriter = Callable[..., ModelSource]


@pytest.fixture
def target_json() -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 8,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 64,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 64,
        "eos_token_id": 2,
    }


@pytest.fixture
def target(target_json: dict[str, Any]) -> TargetConfig:
    return target_config_from_json(target_json)


@pytest.fixture
def draft_json() -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 32,
        "intermediate_size": 40,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 64,
        "draft_vocab_size": 16,
        "rms_norm_eps": 1e-5,
    }


@pytest.fixture
def draft_tensors(draft_json: dict[str, Any], target: TargetConfig) -> dict[str, torch.Tensor]:
    """The tensors of a published draft: those of `draft_shapes`, d2t and t2d; no embedding."""
    weights = random_draft_weights(draft_config_from_json(draft_json, target), 0, torch.float32)
    weights["t2d"] = torch.zeros(64, dtype=torch.bool)
    weights["t2d"][torch.arange(16) + weights["d2t"]] = True
    return weights


@pytest.fixture
def write_draft(tmp_path: Path) -> DraftWriter:
    def write(config: dict[str, Any], tensors: dict[str, torch.Tensor], form: str = "safetensors") -> ModelSource:
        folder = tmp_path / "draft"
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(config))
        if form == "safetensors":
            save_file(tensors, folder / "model.safetensors")
        else:
            torch.save(tensors, folder / "pytorch_model.bin")
        return ModelSource("draft", "folder", folder)

    return write
