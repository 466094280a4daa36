"""A bundle whose draft is one graph: built, proved by the build, and run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def fused_bundle(
    build: Callable[..., dict[str, Any]], tiny_config: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    bundle = tmp_path_factory.mktemp("fused") / "bundle"
    build(tiny_config, bundle, "--set", "draft_fused=true")
    return bundle


def test_the_bundle_has_fused_drafts_only_and_they_were_checked(fused_bundle: Path) -> None:
    graphs = json.loads((fused_bundle / "manifest.json").read_text())["graphs"]
    kinds = {graph["kind"] for graph in graphs}
    assert kinds == {"target_prefill", "target_verify", "draft_fused_prefill", "draft_fused"}
    assert all(graph["check"]["tokens_equal"] for graph in graphs)


def test_speculation_is_plain_decoding(fused_bundle: Path, console: Callable[..., Any]) -> None:
    """Alone and in batches: the same text with and without drafts."""
    done = console("runtime.cli", "--bundle", fused_bundle, "--check", "--max-tokens", 40, "--json")
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == 8
    assert all(result["same"] for result in results)


def test_the_drafts_are_those_of_the_separate_passes(
    fused_bundle: Path, tiny_bundle: Path, console: Callable[..., Any], tmp_path: Path
) -> None:
    """As many accepted at each position, over a prompt of several chunks and one that reaches max_model_len."""
    prompts = tmp_path / "prompts.jsonl"
    ids = [[(7 * i * i + 13 * i + 29 * seed) % 250 + 2 for i in range(length)] for seed, length in ((1, 45), (2, 110))]
    prompts.write_text("".join(json.dumps({"prompt_token_ids": one, "max_tokens": 40}) + "\n" for one in ids))
    counts = []
    for bundle in (fused_bundle, tiny_bundle):
        done = console("runtime.cli", "--bundle", bundle, "--prompts", prompts, "--ignore-eos", "--json")
        assert done.returncode == 0, done.stderr
        counts.append([json.loads(line)["spec_decode"] for line in done.stdout.splitlines()])
    assert counts[0] == counts[1]
    assert all(one["num_drafts"] > 0 for one in counts[0])
