"""Drafts that are not the plain layer, as bundles: built, proved by the build, and run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

# In the tiny draft's sizes: two layers of the Qwen3 kind, every bias, yarn, a window in the second layer
DEEP = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "qwen3",
    "num_hidden_layers": 2,
    "attention_bias": True,
    "mlp_bias": True,
    "bias": True,
    "norm_before_fc": True,
    "norm_before_residual": True,
    "norm_output": True,
    "logit_scale": 0.5,
    "sliding_window": 24,
    "layer_types": ["full_attention", "sliding_attention"],
    "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
}
# On the target's final state, over the target's whole vocabulary
FINAL = {"eagle_config": {"use_aux_hidden_state": False}, "draft_vocab_size": 256}


@pytest.fixture(scope="module", params=["deep", "final"])
def draft_bundle(
    request: pytest.FixtureRequest,
    build: Callable[..., dict[str, Any]],
    tiny_config: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[str, Path]:
    folder = tmp_path_factory.mktemp(request.param)
    plain = json.loads((tiny_config.parent / "tiny" / "draft.json").read_text())
    changes = {"deep": DEEP, "final": FINAL}[request.param]
    (folder / "draft.json").write_text(json.dumps(plain | changes))
    text = tiny_config.read_text(encoding="utf-8").replace("tiny/draft.json", "draft.json")
    config = folder / "draft.yaml"
    # Of three layers: a draft's config that says its target's number is not believed without weights
    target = json.loads((tiny_config.parent / "tiny" / "target.json").read_text())
    (folder / "target.json").write_text(json.dumps(target | {"num_hidden_layers": 3}))
    config.write_text(text.replace("tiny/target.json", "target.json"))
    build(config, folder / "bundle")
    return request.param, folder / "bundle"


def test_the_manifest_holds_the_draft_that_was_meant(draft_bundle: tuple[str, Path]) -> None:
    kind, bundle = draft_bundle
    manifest = json.loads((bundle / "manifest.json").read_text())
    draft, groups = manifest["draft"]["config"], manifest["kv_cache"]["groups"]
    assert groups[1]["layers"] == draft["num_layers"] == (2 if kind == "deep" else 1)
    constants = {unit["name"]: {c["weight"] for c in unit["constants"]} for unit in manifest["units"]}
    recurrent = constants["draft_recurrent.r1"]
    if kind == "deep":
        assert {"layers.1.self_attn.q_norm.weight", "layers.1.mlp.down_proj.bias", "target_ids.weight"} <= recurrent
        assert "input_norm.weight" in constants["draft_initial.r1x4"]
    else:
        assert "target_ids.weight" not in recurrent
        assert constants["target_final_features.t4"] == {"norm.weight"}
        assert not any(name.startswith("fc") for name in constants["draft_initial.r1x4"])


def test_speculation_is_plain_decoding(draft_bundle: tuple[str, Path], console: Callable[..., Any]) -> None:
    """Answers longer than the draft's window, in batches: the same text with and without drafts."""
    done = console("runtime.cli", "--bundle", draft_bundle[1], "--check", "--max-tokens", 40, "--json")
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == 8
    assert all(result["same"] for result in results)
