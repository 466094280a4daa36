"""A compiled bundle whose graphs draw tokens, beside one that returns logits to the host: the same text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runtime.bundle.open import open_bundle
from runtime.engine import Engine
from runtime.request import Request
from runtime.sampling.params import GREEDY, SamplingParams

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

SMALL = ("buckets.num_seqs=[2]", "buckets.context_tokens=[128]")
SECTION = "additional_config.neuron_config.on_device_sampling_config"
ASKED = (
    SamplingParams(temperature=1.0, seed=1),
    GREEDY,
    SamplingParams(temperature=0.8, top_k=30, top_p=0.9, seed=2),
    SamplingParams(temperature=1.4, min_p=0.02, seed=3),
)


@pytest.fixture(scope="module")
def bundles(
    build: Callable[..., dict[str, Any]], tiny_config: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """The tiny models' bundles by what their graphs do about sampling; all units but the heads are shared."""
    folder = tmp_path_factory.mktemp("sampled")
    for sampling, section in (("random", "{all_greedy: false}"), ("logits", "null")):
        changes = [word for change in (*SMALL, f"{SECTION}={section}") for word in ("--set", change)]
        build(tiny_config, folder / sampling, *changes)
    return {path.name: path for path in folder.iterdir() if (path / "manifest.json").is_file()}


def texts(bundle: Path, requests: list[Request], **options: Any) -> list[tuple[int, ...]]:
    engine = Engine.load(open_bundle(bundle), **options)
    try:
        return [output.token_ids for output in engine.generate(requests)]
    finally:
        engine.close()


def test_the_build_checked_every_graph(bundles: dict[str, Path]) -> None:
    for sampling, path in bundles.items():
        manifest = open_bundle(path).manifest
        assert manifest.sampling == sampling
        assert manifest.exactness.scripted_patterns > 0
        assert all(graph.check is not None and graph.check.tokens_equal for graph in manifest.graphs)


def test_text_is_the_host_s_alone_in_a_batch_and_without_drafts(bundles: dict[str, Path]) -> None:
    requests = [
        Request(str(i), tuple(range(5 + i, 25 + 3 * i)), max_tokens=40, ignore_eos=True, sampling=params)
        for i, params in enumerate(ASKED)
    ]
    right = [texts(bundles["logits"], [request], speculation=False)[0] for request in requests]
    assert len({*right}) == len(right)
    assert texts(bundles["logits"], requests) == right
    assert texts(bundles["random"], requests) == right
    assert [texts(bundles["random"], [request])[0] for request in requests] == right
    assert texts(bundles["random"], requests, speculation=False) == right
    assert texts(bundles["random"], requests, num_speculative_tokens=1) == right
