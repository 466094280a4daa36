"""The graph table: which graphs there are, how their calls fit together, and what their units compute."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from aot.graphs.modules import EXAMPLE_DIMS, dynamic_shapes, example_inputs, fill_random, module
from aot.graphs.units import CONTEXT, POOL, UnitSpec
from runtime.bundle.manifest import Graph, TensorSpec
from runtime.schedule import KSchedule
from tests.runtime.loop.rig import Rig, Shape, make_rig

BOTH = Shape(exact_greedy=False, greedy_only=False, prefill_tokens=(8, 16))
FUSED = Shape(draft_fused=True, prefill_tokens=(8, 16))


def by_name(rig: Rig) -> dict[str, Graph]:
    return {graph.name: graph for graph in rig.table.graphs}


def test_a_graph_of_each_kind_for_every_bucket() -> None:
    names = [graph.name for graph in make_rig(Shape(prefill_tokens=(8, 16))).table.graphs]
    assert len(set(names)) == len(names)
    assert set(names) == {
        f"{kind}.{bucket}.c{context}"
        for context in (32, 64)
        for kind, buckets in {
            "target_prefill": ("t8", "t16"),
            "target_verify": ("r1", "r4"),
            "draft_initial": ("t8", "t16", "r1", "r4"),
            "draft_recurrent": ("r1", "r4"),
        }.items()
        for bucket in buckets
    }


def test_target_decode_is_built_for_near_tie_only() -> None:
    exact, near_tie = make_rig(Shape()), make_rig(Shape(exact_greedy=False))
    added = by_name(near_tie).keys() - by_name(exact).keys()
    assert added == {f"target_decode.r{r}.c{c}" for r in (1, 4) for c in (32, 64)}
    assert all(by_name(near_tie)[name].rows == by_name(near_tie)[name].requests for name in added)


def test_one_draft_needs_no_recurrent_pass() -> None:
    assert {graph.kind for graph in make_rig(Shape(k=1)).table.graphs} == {
        "target_prefill",
        "target_verify",
        "draft_initial_prefill",
        "draft_initial",
    }


SCHEDULED = Shape(num_seqs=(1, 2, 4), schedule=KSchedule.of([[1, 2, 3], [3, 3, 1], [4, 4, 0]]), greedy_only=False)


def test_a_smaller_k_has_graphs_of_its_own_in_the_buckets_where_it_can_be() -> None:
    """Buckets 1 and 2 only ever run with 3 drafts; bucket 4 with 1 or 0, and with those that a smaller batch left."""
    plain, scheduled = by_name(make_rig(replace(SCHEDULED, schedule=None))), by_name(make_rig(SCHEDULED))
    added = {f"{kind}.r4.k{k}.c{c}" for kind in ("target_verify", "draft_initial") for k in (0, 1) for c in (32, 64)}
    assert scheduled.keys() - plain.keys() == added
    assert {name: scheduled[name] for name in plain} == plain
    for name in added:
        k = int(name.split(".k")[1][0])
        assert (scheduled[name].requests, scheduled[name].rows) == (4, 4 * (1 + k))


def test_the_units_of_k_stay_what_they_are_under_a_schedule() -> None:
    """Their cache keys hang on them."""
    plain, scheduled = make_rig(replace(SCHEDULED, schedule=None)), make_rig(SCHEDULED)
    assert set(map(str, plain.table.units)) <= set(map(str, scheduled.table.units))


def test_a_schedule_of_k_alone_adds_nothing() -> None:
    rig = make_rig(replace(SCHEDULED, schedule=KSchedule.constant(3)))
    assert rig.table == make_rig(replace(SCHEDULED, schedule=None)).table
    assert rig.manifest.speculation.num_speculative_tokens_per_batch_size == ((1, 1, 3),)


def test_target_decode_shares_the_units_of_no_drafts() -> None:
    shape = replace(SCHEDULED, exact_greedy=False)
    graphs = by_name(make_rig(shape))
    assert graphs["target_decode.r4.c64"].calls == graphs["target_verify.r4.k0.c64"].calls


@pytest.mark.parametrize("k", [1, 3])
def test_a_fused_draft_has_one_graph_in_place_of_its_passes(k: int) -> None:
    names = {graph.name for graph in make_rig(replace(FUSED, k=k)).table.graphs if graph.kind.startswith("draft")}
    assert names == {f"draft_fused.{bucket}.c{context}" for bucket in ("t8", "t16", "r1", "r4") for context in (32, 64)}


@pytest.mark.parametrize("k", [1, 3, 5])
def test_rows_are_requests_times_one_and_k(k: int) -> None:
    """L5: buckets are in requests, so no number of rows can leave half a request."""
    for graph in make_rig(Shape(k=k)).table.graphs:
        if graph.kind in ("target_verify", "draft_initial"):
            assert graph.rows == graph.requests * (1 + k)
        elif graph.kind == "draft_recurrent":
            assert graph.rows == graph.requests
        else:
            assert (graph.requests, graph.rows) == (1, 16)


DESIGN = {
    "target_prefill": (
        {"tokens", "positions", "slot_mapping", "block_table", "last_index"},
        ("next_token", "features", "logits"),
    ),
    "target_verify": (
        {"tokens", "positions", "slot_mapping", "block_table", "num_draft_tokens"},
        ("accepted", "features", "logits"),
    ),
    "target_decode": (
        {"tokens", "positions", "slot_mapping", "block_table", "num_draft_tokens"},
        ("accepted", "features", "logits"),
    ),
    "draft_initial_prefill": (
        {"tokens", "positions", "slot_mapping", "block_table", "features", "last_index"},
        ("draft_token", "state"),
    ),
    "draft_initial": (
        {"tokens", "positions", "slot_mapping", "block_table", "features", "last_index"},
        ("draft_token", "state"),
    ),
    "draft_recurrent": (
        {"tokens", "positions", "slot_mapping", "block_table", "state"},
        ("draft_token", "next_state"),
    ),
    "draft_fused_prefill": (
        {
            *("tokens", "next_token", "last_index"),
            *("positions", "slot_mapping", "block_table", "features", "length_limits"),
        },
        ("step_tokens",),
    ),
    "draft_fused": (
        {"accepted", "positions", "slot_mapping", "block_table", "features", "length_limits"},
        ("step_tokens",),
    ),
}
EVERY = {**by_name(make_rig(SCHEDULED)), **by_name(make_rig(FUSED)), **by_name(make_rig(BOTH))}


@pytest.mark.parametrize("name", EVERY)
def test_inputs_and_outputs_are_those_of_the_design(name: str) -> None:
    graph = EVERY[name]
    inputs, outputs = DESIGN[graph.kind]
    assert {value.name for value in graph.inputs} == inputs
    assert tuple(value.name for value in graph.outputs) == outputs
    assert {value.dtype for value in graph.inputs if value.name not in ("features", "state")} == {"int32"}
    shapes = {value.name: value.shape for value in (*graph.inputs, *graph.outputs)}
    assert {shapes[rows] for rows in ("tokens", "positions", "slot_mapping") if rows in shapes} == {(graph.rows,)}
    assert shapes["block_table"] == (graph.requests, CONTEXT)
    if "accepted" in shapes:
        assert shapes["accepted"] == (graph.requests, graph.rows // graph.requests)
    if "accepted" in outputs and "logits" in outputs:
        assert shapes["logits"] == (graph.rows, 64)
    if graph.kind == "target_prefill":
        assert (shapes["next_token"], shapes["logits"]) == ((1,), (1, 64))
    if "features" in shapes:
        # Three auxiliary states of 32
        assert shapes["features"] == (graph.rows, 96)
    if "draft_token" in shapes:
        assert shapes["draft_token"] == (graph.requests,)
    if graph.kind == "draft_fused_prefill":
        assert (shapes["next_token"], shapes["length_limits"], shapes["step_tokens"]) == ((1,), (1,), (1, 1 + 3))
    if graph.kind == "draft_fused":
        assert shapes["length_limits"] == (graph.requests,)
        assert shapes["step_tokens"] == (graph.requests, 4 + 3)


def test_greedy_only_graphs_return_no_logits() -> None:
    for graph in make_rig(Shape(exact_greedy=False)).table.graphs:
        assert "logits" not in {value.name for value in graph.outputs}


def test_sampled_graphs_take_what_is_asked_and_a_uniform_for_each_row() -> None:
    plain = {graph.name: graph for graph in make_rig(Shape(exact_greedy=False)).table.graphs}
    rig = make_rig(Shape(exact_greedy=False, sampled=True))
    assert rig.manifest.sampling == "random"
    for graph in rig.table.graphs:
        added = {value.name: (value.dtype, value.shape) for value in graph.inputs}
        for value in plain[graph.name].inputs:
            assert added.pop(value.name) == (value.dtype, value.shape)
        assert graph.outputs == plain[graph.name].outputs
        each = ("float32", (graph.requests,))
        rows = 1 if graph.kind == "target_prefill" else graph.rows
        asked = {
            "temperature": each,
            "top_k": ("int32", (graph.requests,)),
            "top_p": each,
            "min_p": each,
            "uniforms": ("float32", (rows,)),
        }
        assert added == (asked if graph.kind.startswith("target") else {})


@pytest.mark.parametrize(("shape", "sampling"), [(Shape(), "greedy"), (Shape(greedy_only=False), "logits")])
def test_units_of_other_bundles_know_nothing_of_it(shape: Shape, sampling: str) -> None:
    """So that their descriptions, and with them their cache keys, stay as they were."""
    rig = make_rig(shape)
    assert rig.manifest.sampling == sampling
    assert not any("sampled" in unit.arguments for unit in rig.table.units)


@pytest.mark.parametrize("name", EVERY)
def test_every_call_fits_what_it_reads_and_makes(name: str) -> None:
    """Each value a call reads is an input, a pool, or made before, and has the shape that the unit declares."""
    graph = EVERY[name]
    rigs = [make_rig(shape) for shape in (FUSED, BOTH, SCHEDULED)]
    rig = next(rig for rig in rigs if by_name(rig).get(name) == graph)
    units = {unit.name: unit for unit in rig.table.units}
    known: dict[str, tuple[str, tuple[int | str, ...]]] = {v.name: (v.dtype, v.shape) for v in graph.inputs}
    for group in rig.manifest.kv_cache.groups:
        for layer in range(group.first_layer, group.first_layer + group.layers):
            pool = ("float32", (POOL, 4, group.kv_heads, group.head_dim))
            known |= {f"kv.{layer}.k": pool, f"kv.{layer}.v": pool}
    for call in graph.calls:
        unit = units[call.unit]
        assert [known[value] for value in call.inputs] == [(spec.dtype, spec.shape) for spec in unit.inputs]
        for value, spec in zip(call.outputs, unit.outputs, strict=True):
            assert value not in known
            known[value] = (spec.dtype, spec.shape)
    assert [known[value.name] for value in graph.outputs] == [(v.dtype, v.shape) for v in graph.outputs]


def test_each_layer_runs_once_with_its_own_weights_and_pools() -> None:
    graph = by_name(make_rig())["target_verify.r4.c64"]
    assert [call.scope for call in graph.calls] == [
        "target.embed",
        *(f"target.layers.{i}" for i in range(8)),
        "target.head",
    ]
    assert [call.inputs[-2:] for call in graph.calls[1:-1]] == [(f"kv.{i}.k", f"kv.{i}.v") for i in range(8)]
    draft = by_name(make_rig())["draft_initial.r4.c64"]
    assert [(call.scope, call.inputs[-2:]) for call in draft.calls] == [("draft", ("kv.8.k", "kv.8.v"))]


@pytest.mark.parametrize("aux", [(2, 4, 5), (0, 1, 8)])
def test_auxiliary_states_are_the_streams_that_enter_the_named_layers(aux: tuple[int, ...]) -> None:
    """A2, A4: position k is the input of layer k, and 8 of 8 is the stream before the final norm."""
    from aot.graphs.table import graph_table

    geometry = make_rig().geometry
    table = graph_table(replace(geometry, draft=replace(geometry.draft, aux_layers=aux)))
    head = table.graphs[0].calls[-1]
    assert head.inputs[0] == "hidden.8"
    assert head.inputs[-3:] == tuple(f"hidden.{k}" for k in aux)


# Units


def test_more_context_buckets_cost_no_units() -> None:
    one, three = make_rig(Shape(context_tokens=(64,))), make_rig(Shape(context_tokens=(16, 32, 64)))
    assert one.table.units == three.table.units
    assert len(three.table.graphs) == 3 * len(one.table.graphs)


def test_more_layers_cost_no_units() -> None:
    deep, shallow = make_rig(Shape(layers=8)), make_rig(Shape(layers=4))
    assert deep.table.units == shallow.table.units


def test_unit_names_are_unique_and_all_are_used() -> None:
    table = make_rig(BOTH).table
    names = Counter(unit.name for unit in table.units)
    assert set(names.values()) == {1}
    assert {call.unit for graph in table.graphs for call in graph.calls} == set(names)


UNITS = {unit.name: unit for shape in (FUSED, BOTH, SCHEDULED) for unit in make_rig(shape).table.units}


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_computes_what_it_declares(name: str) -> None:
    """The module runs on the example inputs and returns the declared dtypes and shapes."""
    spec = UNITS[name]
    unit = module(spec)
    fill_random(unit)
    for weight in unit.parameters():
        if weight.dtype == torch.int32:  # target_ids, which a fused draft looks up in the embedding table of 64
            weight.data %= 64
    with torch.no_grad():
        made = unit(*example_inputs(spec))
    outputs = made if isinstance(made, tuple) else (made,)
    assert [(str(tensor.dtype), tuple(tensor.shape)) for tensor in outputs] == [
        (f"torch.{value.dtype}", value.shape) for value in spec.outputs
    ]


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_crosses_a_process_border_as_json(name: str) -> None:
    spec = UNITS[name]
    text = json.loads(json.dumps(asdict(spec)))

    def tensors(values: list[dict[str, object]]) -> tuple[TensorSpec, ...]:
        return tuple(TensorSpec(v["name"], v["dtype"], tuple(v["shape"])) for v in values)  # type: ignore[arg-type]

    again = UnitSpec(**{**text, "inputs": tensors(text["inputs"]), "outputs": tensors(text["outputs"])})
    assert again == spec


@pytest.mark.parametrize("name", UNITS)
def test_only_context_and_pool_are_dynamic(name: str) -> None:
    spec = UNITS[name]
    for value, axes in zip(spec.inputs, dynamic_shapes(spec), strict=True):
        named = {axis: dim for axis, dim in enumerate(value.shape) if isinstance(dim, str)}
        assert {axis: dim.__name__ for axis, dim in axes.items()} == named  # type: ignore[attr-defined]
        assert set(named.values()) <= {CONTEXT, POOL}
    pools = [value for value in spec.inputs if value.name in ("key_pool", "value_pool")]
    assert pools == list(spec.inputs[-2:]) or not pools


def test_example_dimensions_are_distinct_and_no_special_sizes() -> None:
    """Export specialises 0 and 1, and equal numbers would be taken for one dimension."""
    assert len(set(EXAMPLE_DIMS.values())) == len(EXAMPLE_DIMS)
    assert min(EXAMPLE_DIMS.values()) > 1


@pytest.mark.parametrize("name", ["target_layer.r4x4", "draft_recurrent.r4"])
def test_random_filling_tells_constants_apart_and_repeats(name: str) -> None:
    spec = UNITS[name]
    first, second, other = module(spec), module(spec), module(spec)
    fill_random(first)
    fill_random(second)
    fill_random(other, seed=1)
    weights = dict(first.named_parameters())
    assert all(torch.equal(weight, dict(second.named_parameters())[key]) for key, weight in weights.items())
    assert not any(torch.equal(weight, dict(other.named_parameters())[key]) for key, weight in weights.items())
    content = {weight.numpy().tobytes() for weight in weights.values()}
    assert len(content) == len(weights)
    assert all(weight.std() > 0 for weight in weights.values() if weight.dtype.is_floating_point)


def test_planning_imports_no_torch() -> None:
    code = "import sys, aot.graphs.table, aot.graphs.geometry; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.strip() == "False"


def test_geometry_is_that_of_the_configuration() -> None:
    from aot.config import BuildConfig
    from aot.graphs.geometry import geometry

    config = BuildConfig.model_validate(
        {
            "model": "toy",
            "max_model_len": 64,
            "max_num_seqs": 4,
            "dtype": "float32",
            "block_size": 4,
            "speculative_config": {"method": "eagle3", "model": "draft", "num_speculative_tokens": 3},
            "additional_config": {"neuron_config": {"on_device_sampling_config": {"all_greedy": True}}},
            "buckets": {"prefill_tokens": [16], "num_seqs": [1, 4], "context_tokens": [32, 64]},
        }
    )
    rig = make_rig()
    found = geometry(config, rig.target, rig.draft)
    assert found == replace(rig.geometry, num_blocks=found.num_blocks)
    # Room for four requests of 64 tokens, and the null block
    assert found.num_blocks >= 1 + 4 * 16
    assert found.verify_rows == 4
