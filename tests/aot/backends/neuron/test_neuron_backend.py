"""The Neuron backend's units: what decides their key and what does not, and how a wrong module is refused."""

from __future__ import annotations

import dataclasses
import functools
import json
import shutil
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

import aot
from aot.backends.neuron import backend as neuron
from aot.backends.neuron.backend import NeuronBackend, read_raw, split_name
from aot.backends.neuron.chain import ChainSpec
from aot.backends.neuron.environment import LoweringPython
from aot.backends.sources import ROOT, program_digest
from aot.cache import Cache, key_of
from aot.graphs.geometry import Geometry, over_ranks
from aot.graphs.table import graph_table
from runtime.bundle.errors import CompileError, ErrorGroup
from runtime.bundle.manifest import TensorSpec
from runtime.bundle.record import from_json, to_json
from runtime.schedule import KSchedule
from tests.aot.backends.neuron.jax_modules import raw
from tests.runtime.loop.rig import Shape, make_rig

PYTHON = LoweringPython("/opt/neuron/bin/python", "3.11.9", "2.9.1", "2.9.0")
SHAPE = Shape(num_seqs=(4,), context_tokens=(64,), layers=5)
VERIFY = "target_verify.r4.c64"


def backend(sizes: Geometry, **changes: Any) -> NeuronBackend:
    return NeuronBackend(
        **{"python": PYTHON, "target": "trn2", "lnc": 2, "ranks": sizes.ranks, "sizes": sizes} | changes
    )


def spec(sizes: Geometry, name: str = VERIFY) -> ChainSpec:
    """One graph of the geometry as a unit."""
    return next(unit for unit in backend(sizes).units(sizes, graph_table(sizes)) if unit.name == name)


SIZES = make_rig(SHAPE).geometry


def key(sizes: Geometry = SIZES, **changes: Any) -> str:
    return key_of(backend(sizes, **changes).factors(spec(sizes)))


def test_where_it_is_lowered_and_for_what_is_no_part_of_the_key() -> None:
    """The same HLO serves every target, core size and compiler, and comes of the same releases in any folder."""
    elsewhere = dataclasses.replace(PYTHON, executable="/home/other/.venv-neuron/bin/python")
    assert key() == key(target="trn3") == key(lnc=1) == key(extra=("--verbose=35",)) == key(python=elsewhere)
    factors = json.dumps(dict(backend(SIZES).factors(spec(SIZES))))
    for trace in (PYTHON.executable, str(Path(aot.__path__[0])), str(Path.home()) + "/", "trn2"):
        assert trace not in factors


def test_what_changes_the_hlo_changes_the_key() -> None:
    other = {
        "torch-xla": key(python=dataclasses.replace(PYTHON, torch_xla="2.8.0")),
        "torch": key(python=dataclasses.replace(PYTHON, torch="2.9.0")),
        "ranks": key(over_ranks(SIZES, 2)),
        "pool": key(dataclasses.replace(SIZES, num_blocks=SIZES.num_blocks + 1)),
        "layers": key(make_rig(dataclasses.replace(SHAPE, layers=6)).geometry),
        "dtype": key(dataclasses.replace(SIZES, dtype="bfloat16")),
        "logits": key(dataclasses.replace(SIZES, sampling="logits")),
    }
    assert len({key(), *other.values()}) == 1 + len(other)


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the builder's sources, in whose place the key is made."""
    for package in ("aot", "runtime"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(neuron, "program_digest", functools.partial(program_digest, root=tmp_path))
    return tmp_path / "aot"


def test_a_copy_of_the_sources_has_the_same_key(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied = key()
    monkeypatch.undo()
    assert copied == key()


@pytest.mark.parametrize(
    "name",
    ["models/layers.py", "models/parallel.py", "backends/neuron/lowering.py", "backends/neuron/hlo/passes.py"],
)
def test_code_that_decides_the_hlo_changes_the_key_and_its_comments_do_not(sources: Path, name: str) -> None:
    before, file = key(), sources / name
    text = file.read_text(encoding="utf-8")
    file.write_text(f"{text}\n# another comment\n", encoding="utf-8")
    assert key() == before
    file.write_text(f"{text}\nOTHER = 1\n", encoding="utf-8")
    assert key() != before


@pytest.mark.parametrize("name", ["backends/neuron/compiler.py", "backends/neuron/flags.py", "cli.py"])
def test_code_that_comes_after_the_hlo_does_not_change_the_key(sources: Path, name: str) -> None:
    before, file = key(), sources / name
    file.write_text(file.read_text(encoding="utf-8") + "\nOTHER = 1\n", encoding="utf-8")
    assert key() == before


def test_a_miss_says_what_differs_from_the_closest_entry(tmp_path: Path) -> None:
    cache = Cache(tmp_path, needed=backend(SIZES).files)
    factors = backend(SIZES).factors(spec(SIZES))
    assert cache.explain_miss(factors) == "never compiled here"
    with cache.staging(key()) as staged:
        cache.publish(staged, key(), factors)
    newer = backend(SIZES, python=dataclasses.replace(PYTHON, torch_xla="2.9.1"))
    assert cache.explain_miss(newer.factors(spec(SIZES))) == "changed: torch-xla"
    larger = dataclasses.replace(SIZES, num_blocks=SIZES.num_blocks + 1)
    assert cache.explain_miss(backend(larger).factors(spec(larger))) == "changed: shapes"
    other = dataclasses.replace(SIZES, dtype="bfloat16")
    assert cache.explain_miss(backend(other).factors(spec(other))) == "changed: dtype"


def test_every_graph_has_the_same_one_with_few_layers_beside_it() -> None:
    units = backend(SIZES).units(SIZES, graph_table(SIZES))
    assert [unit.name for unit in units] == [graph.name for graph in graph_table(SIZES).graphs]
    for unit in units:
        assert unit.check is not None
        assert unit.check.check is None
        assert (unit.check.name, unit.check.kind, unit.check.ranks) == (unit.name, unit.kind, unit.ranks)
        assert unit.check.inputs == unit.inputs
    whole, check = spec(SIZES), spec(SIZES).check
    assert check is not None
    assert (len(whole.pools), len(check.pools)) == (2 * 5, 2 * 3)


def test_each_number_of_drafts_of_a_schedule_is_a_unit_of_its_own() -> None:
    sizes = make_rig(dataclasses.replace(SHAPE, schedule=KSchedule.of([[1, 2, 1], [3, 4, 0]]))).geometry
    units = {unit.name: unit for unit in backend(sizes).units(sizes, graph_table(sizes))}
    plain = {unit.name: unit for unit in backend(SIZES).units(SIZES, graph_table(SIZES))}
    fewer = {f"{kind}.r4.k{k}.c64" for kind in ("target_verify", "draft_initial") for k in (0, 1)}
    assert units.keys() - plain.keys() == fewer
    assert {name: units[name] for name in plain} == plain
    shapes = {name: next(v.shape for v in units[name].inputs if v.name == "tokens") for name in fewer}
    assert shapes == {name: (4 * (1 + int(name.split(".k")[1][0])),) for name in fewer}
    for name in fewer:
        check = units[name].check
        assert check is not None
        assert check.inputs == units[name].inputs


def test_a_unit_crosses_a_process_border_as_json() -> None:
    whole = spec(over_ranks(SIZES, 2))
    assert from_json(ChainSpec, json.loads(json.dumps(to_json(whole))), "job") == whole


def test_every_dimension_of_a_unit_is_a_number_and_pools_are_a_rank_s() -> None:
    """KV heads are those of one rank, the block table is as wide as the context."""
    unit = spec(over_ranks(SIZES, 2))
    every = [*unit.inputs, *unit.outputs, *unit.pools, *(s for u in unit.units for s in (*u.inputs, *u.outputs))]
    assert all(isinstance(dim, int) for tensor in every for dim in tensor.shape)
    heads = SIZES.target.num_kv_heads // 2
    assert {pool.shape for pool in unit.pools} == {(SIZES.num_blocks, SIZES.block_size, heads, SIZES.target.head_dim)}
    tables = [value for value in unit.inputs if value.name == "block_table"]
    assert [table.shape[-1] for table in tables] == [64 // SIZES.block_size]


def test_pools_come_in_the_order_of_their_layers() -> None:
    """kv.10 behind kv.9, k before v."""
    sizes = make_rig(dataclasses.replace(SHAPE, layers=12)).geometry
    assert [pool.name for pool in spec(sizes).pools] == [f"kv.{layer}.{half}" for layer in range(12) for half in "kv"]


@pytest.mark.parametrize(
    ("full", "parts"),
    [
        ("target.layers.3.mlp.down_proj.weight", ("target.layers.3", "mlp.down_proj.weight")),
        ("target.head.lm_head.weight", ("target.head", "lm_head.weight")),
        ("draft.fc.weight", ("draft", "fc.weight")),
        ("draft.layers.0.mlp.up_proj.weight", ("draft", "layers.0.mlp.up_proj.weight")),
    ],
)
def test_a_full_name_has_a_scope_and_a_name(full: str, parts: tuple[str, str]) -> None:
    assert split_name(full) == parts


TOY = ChainSpec(
    "toy.r1.c1", "target_verify", "float32", 1, (), (), (), (TensorSpec("x", "float32", (4,)),),
    (TensorSpec("out", "float32", (4,)), TensorSpec("other", "float32", (4,))),
)  # fmt: skip


def read(folder: Path, function: Any, **facts: Any) -> Any:
    """`read_raw` of a module that a worker would have left."""
    (folder / "raw.hlo").write_bytes(raw(function, ((4,), "float32")))
    said = {"parameters": [(0, "x", "input")], "scalars": [], "collectives": [], "results": ["out", "other"]}
    (folder / "raw.json").write_text(json.dumps(said | facts), encoding="utf-8")
    return read_raw(folder / "raw.hlo", folder / "raw.json", TOY)


def test_a_right_module_comes_with_its_tables(tmp_path: Path) -> None:
    made = read(tmp_path, lambda x: (x + x, -x))
    assert [(p.name, p.role, p.shape, p.sharded) for p in made.parameters] == [("x", "input", (4,), False)]
    assert [result.name for result in made.results] == ["out", "other"]


def test_a_module_that_the_lint_refuses_is_named_with_its_operator(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=r"Graph toy\.r1\.c1, sine\.\d+: operator sine is not among") as refused:
        read(tmp_path, lambda x: (jnp.sin(x), -x))
    assert "report it" in refused.value.repair


def test_several_faults_are_told_together(tmp_path: Path) -> None:
    with pytest.raises(ErrorGroup) as refused:
        read(tmp_path, lambda x: (jnp.sin(x), jnp.cos(x)))
    assert len(refused.value.problems) == 2


def test_a_module_that_is_not_what_was_noted_names_the_graph(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=r"Graph toy\.r1\.c1 was lowered to something else") as refused:
        read(tmp_path, lambda x: (x + x, -x), parameters=[])
    assert refused.value.found.startswith("parameters of unknown value")
