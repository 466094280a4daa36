"""The loop over the stand-in runtime, by what it does there: every accept pattern, one pool for all graphs, reads.

The bundle is one rank's, small, and finished by the stand-in compiler in the build itself; its NEFFs hold their HLO.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from aot.verify.scripted import check_scripted, patterns
from runtime.acceptance import Acceptance
from runtime.bundle.manifest import Unit
from runtime.bundle.open import Bundle, open_bundle
from runtime.check import compare
from runtime.engine import Engine
from runtime.prompts import Prompt
from runtime.request import Request
from tests.aot.backends.neuron import stand_in as compilers
from tests.e2e.neuron_path import Simulated, tokens
from tests.runtime.backends.nrt.stand_in import StandIn, compile_stand_in

pytestmark = [pytest.mark.neuron, pytest.mark.timeout(900)]

K = 2
CONFIG = """
name: tiny-neuron
model_config: {configs}/tiny/target.json
draft_config: {configs}/tiny/draft.json
random_weights: {{seed: 0}}
dtype: float32
max_model_len: 48
max_num_seqs: 2
block_size: 8
tensor_parallel_size: 1
draft_fused: {fused}
speculative_config: {{method: eagle3, num_speculative_tokens: 2}}
additional_config: {{neuron_config: {{on_device_sampling_config: {{all_greedy: true}}}}}}
backend: {{name: neuron, target: trn2, lnc: 2}}
buckets: {{prefill_tokens: [16], num_seqs: [2], context_tokens: [48]}}
"""


class Watched(Simulated):
    """Notes where in the device's memory each KV pool is that a graph is given."""

    addresses: dict[str, set[int]]

    def __call__(self, rank: int, taken: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
        for name in (parameter.name for parameter in self._unit.parameters if parameter.role == "kv"):
            self.addresses.setdefault(name, set()).add(taken[name].data_ptr())
        super().__call__(rank, taken, given)


@pytest.fixture(scope="module")
def bundles(console: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Callable[[bool], Path]:
    """`bundles(fused)`: built in one command, with the stand-in compiler on the PATH."""
    folder = tmp_path_factory.mktemp("scripted")
    compilers.install(folder / "bin")
    path = os.pathsep.join((str(folder / "bin"), os.environ["PATH"]))
    made: dict[bool, Path] = {}

    def build(fused: bool) -> Path:
        if fused not in made:
            file, output = folder / f"{fused}.yaml", folder / f"bundle-{fused}"
            configs = Path(__file__).parents[2] / "configs"
            file.write_text(CONFIG.format(configs=configs, fused=str(fused).lower()), encoding="utf-8")
            done = console("aot.cli", "--config", file, "--output", output, "--json", env={"PATH": path})
            assert done.returncode == 0, done.stdout + done.stderr
            facts = json.loads(done.stdout)
            assert (facts["state"], facts["stand_in"]) == ("ready", True)
            made[fused] = output
        return made[fused]

    return build


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_stand_in(tmp_path_factory.mktemp("nrt"))


@pytest.fixture
def runtime(library: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    monkeypatch.setenv("EAGLE3_LIBNRT", str(library))
    for name in ("NEURON_RT_NUM_CORES", "NEURON_RT_VISIBLE_CORES", "NEURON_LOGICAL_NC_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    return StandIn(library)


def opened_on(runtime: StandIn, root: Path, scratch: Path) -> tuple[Bundle, dict[str, dict[str, set[int]]]]:
    """The bundle, whose units the stand-in computes, and by unit where its pools were."""
    bundle = open_bundle(root)
    seen: dict[str, dict[str, set[int]]] = {}

    def watched(unit: Unit) -> Watched:
        one = Watched(root, unit, bundle.manifest.requires.ranks, scratch)
        one.addresses = seen.setdefault(unit.name, {})
        return one

    for unit in bundle.manifest.units:
        runtime.add(unit, watched(unit))
    return bundle, seen


@pytest.mark.parametrize("fused", [True, False])
def test_every_accept_pattern_on_the_stand_in_runtime(
    fused: bool, bundles: Callable[[bool], Path], runtime: StandIn, tmp_path: Path
) -> None:
    """check_scripted compares each text with plain decoding, over KV that earlier patterns' runs cannot have left."""
    bundle, _ = opened_on(runtime, bundles(fused), tmp_path)
    assert check_scripted(bundle).patterns == len(patterns(K)) == bundle.manifest.exactness.scripted_patterns
    assert runtime.errors == []


@pytest.mark.parametrize("fused", [True, False])
def test_p1_check_judges_the_passes_of_the_stand_in_runtime(
    fused: bool, bundles: Callable[[bool], Path], runtime: StandIn, tmp_path: Path
) -> None:
    bundle, _ = opened_on(runtime, bundles(fused), tmp_path)
    requests = [Request(str(i), tokens(4 + i, i), 10, ignore_eos=True) for i in range(2)]
    judges = Acceptance(bundle.manifest, requests)
    prompts = [Prompt(f"prompt {i}", request.prompt_token_ids) for i, request in enumerate(requests)]
    results, _ = compare(lambda speculation: Engine.load(bundle, speculation=speculation), prompts, requests, judges)
    assert [(result.same, result.misses) for result in results] == [(True, {})] * 2
    assert all(judges.scripted.num_accepted_tokens_per_pos)
    assert runtime.errors == []


@pytest.mark.parametrize("fused", [True, False])
def test_reads_of_a_decode_step_and_one_memory_for_each_pool(
    fused: bool, bundles: Callable[[bool], Path], runtime: StandIn, tmp_path: Path
) -> None:
    """A fused step reads once and runs twice, target and draft. Else a step also reads each draft token: K more.

    Each read waits for the device and each run is sent by the host, so these numbers are why draft_fused exists.
    """
    bundle, seen = opened_on(runtime, bundles(fused), tmp_path)
    engine = Engine.load(bundle)
    engine.add_request(Request("r", tokens(5, 0), 16, ignore_eos=True))
    engine.step()
    reads, runs = set(), set()
    while engine.waiting or engine.running:
        before, executed = runtime.calls("nrt_tensor_read"), runtime.calls("nrt_execute")
        engine.step()
        reads.add(runtime.calls("nrt_tensor_read") - before)
        runs.add(runtime.calls("nrt_execute") - executed)
    assert runtime.errors == []
    # The last steps of a request have room for fewer drafts, or none
    assert (max(reads), max(runs)) == ((1, 2) if fused else (1 + K, 1 + K))
    assert not fused or reads == {1}
    places: dict[str, set[int]] = {}
    for unit in seen.values():
        for name, found in unit.items():
            places.setdefault(name, set()).update(found)
    assert len(places) == len(engine.graphs.pools)
    assert all(len(found) == 1 for found in places.values()), "all graphs share the pool of a name"
    engine.close()
