"""How long builds take: cold, twice as deep, and with nothing changed; all by eagle3-build into temporary folders."""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from bench.commands import ROOT, BenchError, build
from bench.figures import Figure, spread

# The shapes of SmolLM2-135M, which the random models of two depths share. Source: the model's config.json.
SHAPES: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-05,
    "rope_theta": 100000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "bfloat16",
}
DEPTH = 30
DRAFT: dict[str, Any] = {
    **SHAPES,
    "architectures": ["LlamaForCausalLMEagle3"],
    "num_hidden_layers": 1,
    "draft_vocab_size": 8192,
    "tie_word_embeddings": False,
}


def measure_builds() -> list[Figure]:
    """The demo's cold build, and cold builds of random models of 30 and 60 layers, each with an empty cache."""
    with tempfile.TemporaryDirectory(prefix="eagle3-bench-") as folder:
        work = Path(folder)
        demo, units = _cold(work, "demo", [])
        shallow, _ = _cold(work, "shallow", _random_model(work, DEPTH))
        deep, deep_units = _cold(work, "deep", _random_model(work, 2 * DEPTH))
    return [
        Figure("build", "cold build of the demo", demo, "s", "at most", 240, f"{units} units compiled"),
        Figure(
            "build",
            "cold build of a model twice as deep",
            deep / shallow,
            "x",
            "at most",
            1.2,
            f"random weights, {2 * DEPTH} layers {deep:.0f} s ({deep_units} units), {DEPTH} layers {shallow:.0f} s",
        ),
    ]


def measure_rebuild(repeats: int) -> list[Figure]:
    """eagle3-build run again with nothing changed, process start included."""
    with tempfile.TemporaryDirectory(prefix="eagle3-bench-") as folder:
        output = Path(folder) / "smollm2-135m"
        build(output)
        seconds = []
        for _ in range(repeats):
            account, measured = build(output)
            if not account["unchanged"]:
                raise BenchError("eagle3-build found a change between two builds: were the sources edited meanwhile?")
            seconds.append(measured.wall_s)
    value = statistics.median(seconds)
    return [Figure("rebuild", "build with nothing changed", value, "s", "at most", 5, spread(seconds))]


def near_tie_bundle() -> Path:
    """The demo's bundle with `exact_greedy: false`, which has target_decode; kept for the next run."""
    output = ROOT / "artifacts" / "bench-near-tie"
    build(output, ["exact_greedy=false"])
    return output


def _cold(work: Path, name: str, overrides: list[str]) -> tuple[float, int]:
    """Build with a cache of its own; returns wall seconds, process start included, and the units it compiled."""
    account, measured = build(work / name, overrides, {"EAGLE3_CACHE": str(work / f"{name}.cache")})
    if account["cached"]:
        raise BenchError(f"a cold build took {account['cached']} units from the cache")
    return measured.wall_s, account["compiled"]


def _random_model(work: Path, layers: int) -> list[str]:
    """Overrides that put random weights of SmolLM2's shapes, `layers` deep, in the place of both models."""
    target, draft = work / f"target-{layers}.json", work / f"draft-{layers}.json"
    target.write_text(json.dumps({**SHAPES, "num_hidden_layers": layers}), encoding="utf-8")
    aux = [2, layers // 2, layers - 3]
    draft.write_text(json.dumps({**DRAFT, "eagle_aux_hidden_state_layer_ids": aux}), encoding="utf-8")
    return [
        "model=null",
        "speculative_config.model=null",
        f"model_config={target}",
        f"draft_config={draft}",
        "random_weights={seed: 0}",
    ]
