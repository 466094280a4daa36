"""A lowered bundle over two ranks whose graphs draw tokens: checked by its build, run on the simulator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runtime.bundle.open import open_bundle
from runtime.engine import Engine
from runtime.request import Request
from runtime.sampling.params import GREEDY, SamplingParams
from tests.e2e.neuron_path import tokens

pytestmark = [pytest.mark.neuron, pytest.mark.timeout(900)]

CONFIG = """
name: tiny-neuron-sampled
model_config: {configs}/tiny/target.json
draft_config: {configs}/tiny/draft.json
random_weights: {{seed: 0}}
dtype: float32
max_model_len: 48
max_num_seqs: 2
block_size: 8
tensor_parallel_size: 2
draft_fused: true
speculative_config: {{method: eagle3, num_speculative_tokens: 2}}
additional_config: {{neuron_config: {{on_device_sampling_config: {{all_greedy: false}}}}}}
backend: {{name: neuron, target: trn2, lnc: 2}}
buckets: {{prefill_tokens: [16], num_seqs: [2], context_tokens: [48]}}
"""
ASKED = (SamplingParams(temperature=1.0, seed=1), GREEDY, SamplingParams(temperature=0.8, top_k=20, top_p=0.9, seed=2))


def test_lowered_graphs_draw(console: Callable[..., Any], tmp_path: Path) -> None:
    """Its build runs seeded requests in the loop beside eager PyTorch, and through every accept pattern."""
    config = tmp_path / "sampled.yaml"
    config.write_text(CONFIG.format(configs=Path(__file__).parents[2] / "configs"), encoding="utf-8")
    done = console("aot.cli", "--config", config, "--output", tmp_path / "bundle")
    assert done.returncode == 0, done.stderr
    assert "accept and reject patterns through the lowered loop" in done.stderr
    bundle = open_bundle(tmp_path / "bundle", device="sim")
    assert bundle.manifest.sampling == "random"
    requests = [
        Request(str(i), tokens(5 + 3 * i, i), 10, ignore_eos=True, sampling=params) for i, params in enumerate(ASKED)
    ]
    engine = Engine.load(bundle, device="sim")
    together = [output.token_ids for output in engine.generate(requests)]
    alone = [engine.generate([request])[0].token_ids for request in requests]
    assert alone == together
    plain = Engine.load(bundle, device="sim", speculation=False)
    assert [output.token_ids for output in plain.generate(requests)] == together
