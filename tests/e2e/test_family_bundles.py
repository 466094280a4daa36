"""A target with everything that families add to Llama's layers, as a bundle: built, proved by the build, and run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

# Qwen3 in the tiny target's sizes, with biases, yarn, and a window in its second layer only
TARGET = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 256,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000.0,
    "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    "attention_bias": True,
    "use_sliding_window": True,
    "sliding_window": 24,
    "layer_types": ["full_attention", "sliding_attention"],
    "tie_word_embeddings": True,
    "eos_token_id": 1,
}


@pytest.fixture(scope="module")
def family_bundle(
    build: Callable[..., dict[str, Any]], tiny_config: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp("family")
    (folder / "target.json").write_text(json.dumps(TARGET))
    draft = tiny_config.parent / "tiny" / "draft.json"
    text = tiny_config.read_text(encoding="utf-8")
    text = text.replace("tiny/target.json", "target.json").replace("tiny/draft.json", str(draft))
    config = folder / "family.yaml"
    config.write_text(text, encoding="utf-8")
    build(config, folder / "bundle")
    return folder / "bundle"


def test_the_layers_with_and_without_a_window_are_units_of_their_own(family_bundle: Path) -> None:
    manifest = json.loads((family_bundle / "manifest.json").read_text())
    graph = next(graph for graph in manifest["graphs"] if graph["name"] == "target_verify.r2.c128")
    layers = [call["unit"] for call in graph["calls"] if call["scope"].startswith("target.layers.")]
    assert layers == ["target_layer.r2x4", "target_layer.r2x4.w24"]
    assert manifest["target"]["config"]["rope_scaling"]["attention_factor"] > 1


def test_speculation_is_plain_decoding(family_bundle: Path, console: Callable[..., Any]) -> None:
    """Answers longer than the window, in batches: the same text with and without drafts."""
    done = console("runtime.cli", "--bundle", family_bundle, "--check", "--max-tokens", 40, "--json")
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == 8
    assert all(result["same"] for result in results)
