"""N1 on compiled graphs: a damaged embedding row ends its own request with an error and changes nobody else's text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from runtime.bundle.open import open_bundle
from runtime.engine import Engine
from runtime.request import Request, RequestOutput
from runtime.sampling.params import SamplingParams
from runtime.weights import Weights

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

EMBEDDING = "target.embed.embed_tokens.weight"
SECTION = "additional_config.neuron_config.on_device_sampling_config"


@pytest.fixture(scope="module")
def drawing_bundle(
    build: Callable[..., dict[str, Any]], tiny_config: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Graphs that draw tokens themselves and a draft in one graph, in bfloat16."""
    bundle = tmp_path_factory.mktemp("drawing") / "bundle"
    changes = ("dtype=bfloat16", "draft_fused=true", f"{SECTION}={{all_greedy: false}}", "buckets.num_seqs=[2]")
    build(tiny_config, bundle, *(word for change in changes for word in ("--set", change)))
    return bundle


@pytest.fixture(params=["tiny_bundle", "drawing_bundle"])
def bundle(request: pytest.FixtureRequest) -> Path:
    folder: Path = request.getfixturevalue(request.param)
    return folder


def run(bundle: Path, batches: list[list[Request]], **options: Any) -> list[list[RequestOutput]]:
    engine = Engine.load(open_bundle(bundle), **options)
    try:
        made = [engine.generate(batch) for batch in batches]
        values = [pool for name, pool in engine.graphs.pools.items() if name.endswith(".v")]
        assert all(bool(torch.isfinite(pool).all()) for pool in values)
        return made
    finally:
        engine.close()


def ends(outputs: list[RequestOutput]) -> list[tuple[tuple[int, ...], str]]:
    return [(output.token_ids, output.finish_reason) for output in outputs]


def damage(monkeypatch: pytest.MonkeyPatch, token: int) -> None:
    """As if the checkpoint had been so: the build's checks run on inputs of their own and would not see it."""
    get = Weights.get

    def damaged(self: Weights, name: str, layout: str) -> Tensor:
        weight = get(self, name, layout)
        if name != EMBEDDING:
            return weight
        weight = weight.clone()
        weight[token, 5] = torch.nan
        return weight

    monkeypatch.setattr(Weights, "get", damaged)


def test_n1_the_request_alone_ends_and_all_others_keep_their_bits(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws = open_bundle(bundle).manifest.sampling == "random"
    sampling = SamplingParams(temperature=1.0, seed=3) if draws else SamplingParams(temperature=0)
    prompts = [tuple(range(5 + i, 25 + 3 * i)) for i in range(2)]
    good = [Request(f"good {i}", prompt, 30, True, sampling) for i, prompt in enumerate(prompts)]
    (expected,) = run(bundle, [good])
    said = {token for output in expected for token in output.token_ids}
    bad_token = next(token for token in range(200, 256) if token not in said)
    late = expected[0].token_ids[4]
    bad = Request("bad", (*range(60, 80), bad_token, 90), 30, True, sampling)
    again = [replace(one, request_id=f"{one.request_id} again") for one in good]
    with monkeypatch.context() as patch:
        damage(patch, bad_token)
        for speculation in (True, False):
            first, second, third = run(
                bundle, [[good[0], bad], [good[1], replace(bad, request_id="b")], again], speculation=speculation
            )
            assert ends([first[1], second[1]]) == [((), "error")] * 2
            assert first[1].error is not None
            assert first[1].error.code == "logits_not_finite"
            assert ends([first[0], second[0]]) == ends(expected) == ends(third)
    # A token that the target chooses itself: what came before its row stays, with drafts and without
    with monkeypatch.context() as patch:
        damage(patch, late)
        (speculative,), (plain,) = run(bundle, [good]), run(bundle, [good], speculation=False)
        assert ends(speculative) == ends(plain)
        stays = () if late in prompts[0] else expected[0].token_ids[: expected[0].token_ids.index(late) + 1]
        assert ends(plain)[0] == (stays, "error")
