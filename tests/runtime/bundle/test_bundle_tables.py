"""A Neuron unit's tables agree with its inputs and outputs, the pools and the weights, or the bundle is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runtime.bundle.interface import Parameter, Result
from runtime.bundle.manifest import KVCache, KVGroup, Manifest, TensorSpec, Unit, WeightRef
from runtime.bundle.references import reference_problems
from runtime.bundle.tables import table_problems

POOL = (9, 16, 1, 8)
PARAMETERS = (
    Parameter("target.norm.weight", "w0", "weight", "float32", (8,)),
    Parameter("target.head.weight", "w1", "weight", "float32", (4, 8), sharded=True),
    Parameter("kv.0.k", "k", "kv", "float32", POOL, sharded=True),
    Parameter("rank", "rank", "rank", "int32", (1,), sharded=True),
    Parameter("tokens", "tokens", "input", "int32", (4,)),
)
UNIT = Unit(
    name="target_verify.r1.c64",
    artifact="graphs/u/graph.hlo",
    digest="0" * 64,
    constants=(),
    inputs=(TensorSpec("tokens", "int32", (4,)), TensorSpec("kv.0.k", "float32", POOL)),
    outputs=(TensorSpec("next", "int32", (4,)),),
    parameters=PARAMETERS,
    results=(Result("next", "next", "int32", (4,)), Result("kv.0.k", "k", "float32", POOL, alias_of="kv.0.k")),
)
WEIGHTS = {
    "target.norm.weight": {"plain": WeightRef("w", "a", "a" * 64)},
    "target.head.weight": {"shard.0": WeightRef("w", "b", "b" * 64), "shard.1": WeightRef("w", "c", "c" * 64)},
}


@pytest.fixture
def manifest(golden: Manifest) -> Manifest:
    """Two ranks, one layer, one unit whose tables are right."""
    group = KVGroup("target", first_layer=0, layers=1, kv_heads=1, head_dim=8, dtype="float32")
    return replace(
        golden,
        requires=replace(golden.requires, backend="neuron", device="trn2", ranks=2, lnc=2),
        kv_cache=KVCache(block_size=16, num_blocks=9, groups=(group,)),
        units=(UNIT,),
        weights=WEIGHTS,
    )


def sentences(manifest: Manifest, **changes: object) -> list[str]:
    unit = replace(UNIT, **changes)  # type: ignore[arg-type]
    return [problem.sentence() for problem in table_problems(replace(manifest, units=(unit,)))]


def changed(index: int, **changes: object) -> tuple[Parameter, ...]:
    parameters = list(PARAMETERS)
    parameters[index] = replace(parameters[index], **changes)  # type: ignore[arg-type]
    return tuple(parameters)


def test_tables_that_agree_are_no_problem(manifest: Manifest) -> None:
    assert sentences(manifest) == []


def test_a_bundle_for_the_cpu_has_no_tables(golden: Manifest) -> None:
    assert table_problems(golden) == []


def test_graphs_alone_need_no_weights(manifest: Manifest) -> None:
    assert table_problems(replace(manifest, weights={})) == []


def test_a_missing_weight_is_named_with_its_layouts(manifest: Manifest) -> None:
    weights = {"target.head.weight": {"shard.0": WeightRef("w", "b", "b" * 64)}}
    assert [problem.sentence() for problem in table_problems(replace(manifest, weights=weights))] == [
        "Unit target_verify.r1.c64 takes a weight that the bundle has not, target.norm.weight: "
        "expected plain, found none.",
        "Unit target_verify.r1.c64 takes a weight that the bundle has not, target.head.weight: "
        "expected shard.1, found shard.0.",
    ]


@pytest.mark.parametrize(
    ("index", "changes", "sentence"),
    [
        (2, {"shape": (8, 16, 1, 8)}, "kv.0.k than it is given: expected float32 [9, 16, 1, 8], found float32 [8, 16,"),
        (3, {"dtype": "int64"}, "rank than it is given: expected int32 [1], found int64 [1]"),
        (4, {"shape": (5,)}, "tokens than it is given: expected int32 [4], found int32 [5]"),
        (4, {"role": "kv"}, "tokens than it is given: expected a layer of kv_cache, found int32 [4]"),
        (2, {"role": "input"}, "writes other pools than it takes: expected none, found kv.0.k"),
    ],
)
def test_a_parameter_that_contradicts_the_manifest(
    manifest: Manifest, index: int, changes: dict[str, object], sentence: str
) -> None:
    assert any(sentence in line for line in sentences(manifest, parameters=changed(index, **changes)))


def test_a_pool_of_another_size_than_kv_cache_says(manifest: Manifest) -> None:
    (problem,) = table_problems(replace(manifest, kv_cache=replace(manifest.kv_cache, num_blocks=10)))
    assert problem.expected == "float32 [10, 16, 1, 8]"


def test_an_input_without_a_parameter_and_a_parameter_twice(manifest: Manifest) -> None:
    assert sentences(manifest, parameters=PARAMETERS[:-1]) == [
        "Unit target_verify.r1.c64 has no parameter for its input tokens: expected one, found none."
    ]
    assert sentences(manifest, parameters=(*PARAMETERS, PARAMETERS[-1])) == [
        "Unit target_verify.r1.c64 takes tokens twice: expected one parameter of each name, found several."
    ]


def test_results_are_the_outputs_in_order(manifest: Manifest) -> None:
    assert sentences(manifest, results=UNIT.results[1:]) == [
        "Unit target_verify.r1.c64 gives other results than its outputs: expected next int32 [4], found none."
    ]


def test_all_is_one_report_with_the_other_references(manifest: Manifest) -> None:
    sentences = [problem.sentence() for problem in reference_problems(replace(manifest, weights={}, graphs=()))]
    assert sentences == [
        "The unit target_verify.r1.c64 lies in a file without a digest: "
        "expected a listed file, found graphs/u/graph.hlo."
    ]
    unit = replace(UNIT, results=())
    both = reference_problems(replace(manifest, weights={}, graphs=(), units=(unit,)))
    assert len(both) == 3
