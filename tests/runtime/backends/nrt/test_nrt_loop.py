"""The whole speculative loop over the stand-in for libnrt: the toy pair of the loop's tests, its memory on "devices".

The NEFFs are stand-ins too, and compute what the eager modules do; everything between the loop and libnrt is real.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import torch
from torch import Tensor

from runtime.backends.device import DeviceTensor
from runtime.backends.nrt.backend import NrtBackend
from runtime.bundle.manifest import Call, Graph, TensorSpec, Unit
from runtime.bundle.open import Bundle
from runtime.engine import Engine
from runtime.graph import LoadedGraph
from runtime.graphs import GraphSet, table_columns
from runtime.proposer import EagleProposer
from runtime.request import Request
from runtime.weights import Weights
from tests.runtime.backends.nrt.stand_in import REQUIRES, Spec, StandIn, neuron_bundle, neuron_unit
from tests.runtime.loop.rig import BLOCK, K, Rig, make_rig, prompt_of


def static(graph: Graph, value: TensorSpec) -> Spec:
    """The value's dtype and its shape with the block table at its full width: a NEFF's shapes are fixed."""
    return value.dtype, tuple(dim if isinstance(dim, int) else table_columns(graph, BLOCK) for dim in value.shape)


class EagerNeff:
    """What the stand-in computes for one graph: the rig's eager graph, on views of the device's memory."""

    def __init__(self, rig: Rig, graph: Graph) -> None:
        self._rig, self._graph = rig, graph
        self._loaded: LoadedGraph | None = None

    def __call__(self, rank: int, taken: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
        if self._loaded is None:
            pools = {name: tensor for name, tensor in taken.items() if name.startswith("kv.")}
            units = {unit.name: unit for unit in self._rig.manifest.units}
            self._loaded = LoadedGraph(self._graph, units, self._rig.backend, pools)
        inputs = {value.name: taken[value.name] for value in self._graph.inputs}
        for value, made in zip(self._graph.outputs, self._loaded(inputs), strict=True):
            given[value.name].copy_(made)


def neuron_graph(rig: Rig, graph: Graph, kv: Mapping[str, Spec]) -> tuple[Graph, Unit]:
    """`graph` as a Neuron bundle has it: one call of one unit that is the whole graph."""
    inputs = {value.name: static(graph, value) for value in graph.inputs}
    outputs = {value.name: static(graph, value) for value in graph.outputs}
    used = {name for call in graph.calls for name in call.inputs if name.startswith("kv.")}
    unit = neuron_unit(graph.name, inputs=inputs, outputs=outputs, kv={n: s for n, s in kv.items() if n in used})
    call = Call(unit.name, "", tuple(v.name for v in unit.inputs), tuple(v.name for v in unit.outputs))
    fixed = tuple(TensorSpec(name, *spec) for name, spec in inputs.items())
    return replace(graph, inputs=fixed, calls=(call,)), unit


@pytest.fixture
def engine(stand_in: StandIn, tmp_path: Path) -> Engine:
    """The toy's loop with its own draft, through the Neuron backend."""
    rig = make_rig()
    cache = rig.manifest.kv_cache
    kv: dict[str, Spec] = {}
    for group in cache.groups:
        shape = (cache.num_blocks, cache.block_size, group.kv_heads, group.head_dim)
        for layer in range(group.first_layer, group.first_layer + group.layers):
            kv |= {f"kv.{layer}.{half}": (group.dtype, shape) for half in "kv"}
    made = [neuron_graph(rig, graph, kv) for graph in rig.manifest.graphs]
    for (_, unit), graph in zip(made, rig.manifest.graphs, strict=True):
        stand_in.add(unit, EagerNeff(rig, graph))
    units = [unit for _, unit in made]
    neuron_bundle(tmp_path, units)
    manifest = replace(
        rig.manifest, requires=REQUIRES, units=tuple(units), graphs=tuple(graph for graph, _ in made), weights={}
    )
    bundle = Bundle(tmp_path, manifest)
    backend = NrtBackend(bundle, Weights(bundle))
    kinds = list(dict.fromkeys(graph.kind for graph in manifest.graphs))
    graphs = GraphSet(bundle, kinds, None, backend)
    return Engine(graphs, EagleProposer(graphs))


def test_speculation_over_the_neuron_backend_is_plain_decoding(engine: Engine) -> None:
    rig = make_rig()
    prompts = [prompt_of(length, seed) for seed, length in enumerate((5, 20, 3, 9, 13))]
    with torch.inference_mode():
        done = engine.generate([Request(str(i), tuple(p), 16) for i, p in enumerate(prompts)])
    found = {output.request_id: list(output.token_ids) for output in done}
    assert found == {str(i): rig.plain(p, 16) for i, p in enumerate(prompts)}
    assert engine.totals.num_draft_tokens > 0


def test_only_tokens_come_back_to_the_host(engine: Engine, stand_in: StandIn) -> None:
    """L8 (vllm-rbln#945): one request alone stays in its bucket, so features and states never leave the device."""
    engine.add_request(Request("r", tuple(prompt_of(7, 0)), 24))
    while engine.waiting or engine.running:
        before, passes = stand_in.calls("nrt_tensor_read"), stand_in.calls("nrt_execute")
        engine.step()
        # Every pass of this loop makes tokens, and they are all that is read of it
        assert stand_in.calls("nrt_tensor_read") - before == stand_in.calls("nrt_execute") - passes
    accepted = 4 * (1 + K)  # int32 [1, 1+K] is the most that one pass of one request gives back
    assert stand_in.bytes("nrt_tensor_read") <= accepted * stand_in.calls("nrt_tensor_read")


def test_the_report_knows_device_pools(engine: Engine) -> None:
    kv = engine.report()["kv"]
    assert isinstance(kv, dict)
    pools = cast(Mapping[str, DeviceTensor], engine.graphs.pools).values()
    assert len(pools) == 2 * 9  # eight layers of the target and one of the draft
    assert all(isinstance(pool, DeviceTensor) for pool in pools)
    assert kv["bytes"] == sum(pool.nbytes() for pool in pools) > 0
