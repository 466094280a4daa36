"""Each pass does what it says, seen by running the module that it leaves."""

from __future__ import annotations

import math
from pathlib import Path

import jax.numpy as jnp
import pytest
import torch
from jax import lax

from aot.backends.neuron.hlo import proto
from tests.aot.backends.neuron.jax_modules import in_our_form, noted, raw, run

X = torch.tensor([[1.0, -2.0, 3.0], [0.5, 0.0, -4.0]])
SIX = ((2, 3), "float32")


def opcodes(data: bytes) -> list[str]:
    return [i.opcode for i in proto.entry(proto.parse(data)).instructions]


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("float32", 0.1),
        ("float32", -math.inf),
        ("bfloat16", 0.1),
        ("bfloat16", -math.inf),
        ("bfloat16", torch.finfo(torch.bfloat16).min),
        ("float16", 0.1),
        ("float16", -math.inf),
        ("int32", -(1 << 31)),
        ("bool", True),
        ("bool", False),
    ],
)
def test_a_python_number_becomes_a_constant(dtype: str, value: float, tmp_path: Path) -> None:
    """Its rounding is PyTorch's."""

    def function(x, number):  # type: ignore[no-untyped-def]
        return lax.select(x > 0, lax.broadcast(number, (3,)), lax.broadcast(number, (3,))), -x

    facts = noted([(0, "x", "input")], scalars=[(1, value, dtype)])
    made = in_our_form(raw(function, ((3,), "float32"), ((), dtype)), facts)
    assert [p.name for p in made.parameters] == ["x"]
    results = run(made.data, [[torch.ones(3)]], tmp_path)
    assert torch.equal(results[0][0], torch.full((3,), value, dtype=getattr(torch, dtype)))
    assert made.results[0].dtype == dtype


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_an_all_reduce_sums_over_all_ranks(ranks: int, tmp_path: Path) -> None:
    """The stand-in's every use becomes the collective's, and what was lowered for its operand is no result any more."""

    def function(x, reduced):  # type: ignore[no-untyped-def]
        return reduced * 10.0, reduced - 1.0, x + 1.0

    facts = noted([(0, "x", "input")], collectives=[(1, "all_reduce", 0)])
    made = in_our_form(raw(function, SIX, SIX), facts, ranks)
    parts = [X * (rank + 1) for rank in range(ranks)]
    results = run(made.data, [parts], tmp_path)
    total = torch.stack([part + 1 for part in parts]).sum(0)
    assert len(results) == 2
    for rank in range(ranks):
        torch.testing.assert_close(results[0][rank], total * 10)
        torch.testing.assert_close(results[1][rank], total - 1)
    (reduce,) = [i for i in proto.entry(proto.parse(made.data)).instructions if i.opcode == "all-reduce"]
    assert [list(group.replica_ids) for group in reduce.replica_groups] == [list(range(ranks))]


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("dim", [0, 1])
def test_an_all_gather_joins_the_ranks_in_order(ranks: int, dim: int, tmp_path: Path) -> None:
    def function(x, gathered):  # type: ignore[no-untyped-def]
        return -gathered, x * 2.0, x + 1.0

    shape = tuple(size * ranks if axis == dim else size for axis, size in enumerate((2, 3)))
    facts = noted([(0, "x", "input")], collectives=[(1, "all_gather", dim)])
    made = in_our_form(raw(function, SIX, (shape, "float32")), facts, ranks)
    parts = [X + 100 * rank for rank in range(ranks)]
    results = run(made.data, [parts], tmp_path)
    for rank in range(ranks):
        torch.testing.assert_close(results[0][rank], -torch.cat([part + 1 for part in parts], dim))
        torch.testing.assert_close(results[1][rank], parts[rank] * 2)


def test_a_collective_over_another_s_result(tmp_path: Path) -> None:
    """Also where a collective's result is itself a result and the next one's operand."""

    def function(x, reduced, gathered):  # type: ignore[no-untyped-def]
        return gathered, reduced, x, reduced

    facts = noted([(0, "x", "input")], collectives=[(1, "all_reduce", 0), (2, "all_gather", 0)])
    made = in_our_form(raw(function, SIX, SIX, ((4, 3), "float32")), facts, 2)
    results = run(made.data, [[X, X * 2]], tmp_path)
    torch.testing.assert_close(results[0][1], torch.cat([X * 3, X * 3]))
    torch.testing.assert_close(results[1][0], X * 3)
    assert opcodes(made.data).count("all-reduce") == opcodes(made.data).count("all-gather") == 1


def test_64_bit_integers_become_32_bit_ones(tmp_path: Path) -> None:
    def function(ids):  # type: ignore[no-untyped-def]
        return (ids.astype(jnp.int64) + 7).astype(jnp.int32), lax.iota(jnp.int64, 4)

    made = in_our_form(raw(function, ((4,), "int32")), noted([(0, "ids", "input")]))
    module = proto.parse(made.data)
    every = [i for c in module.computations for i in c.instructions]
    assert all(i.shape.element_type != proto.ELEMENT_TYPES["int64"] for i in every)
    assert "convert" not in [i.opcode for i in every]
    assert [r.dtype for r in made.results] == ["int32", "int32"]
    results = run(made.data, [[torch.tensor([0, -7, 5, 9], dtype=torch.int32)]], tmp_path)
    assert results[0][0].tolist() == [7, 0, 12, 16]
    assert results[1][0].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("number", "fits"), [(2**31 - 1, True), (-(2**31), True), (2**31, False), (-(2**31) - 1, False)]
)
def test_a_constant_that_needs_64_bits_is_refused(number: int, fits: bool) -> None:
    data = raw(lambda ids: (ids + number, -ids), ((4,), "int64"))
    if fits:
        assert in_our_form(data, noted([(0, "ids", "input")])).results[0].dtype == "int32"
        return
    with pytest.raises(ValueError, match="does not fit 32 bits"):
        in_our_form(data, noted([(0, "ids", "input")]))


@pytest.mark.parametrize(
    ("table", "counted"), [([0, 1, 2, 3], True), ([0, 1, 2, 4], False), ([1, 2, 3, 4], False), ([3, 2, 1, 0], False)]
)
def test_only_a_table_from_0_on_is_counted(table: list[int], counted: bool, tmp_path: Path) -> None:
    data = raw(lambda x: (x + jnp.array(table, jnp.int32), -x), ((4,), "int32"))
    made = in_our_form(data, noted([(0, "x", "input")]))
    assert ("iota" in opcodes(made.data)) == counted
    assert run(made.data, [[torch.zeros(4, dtype=torch.int32)]], tmp_path)[0][0].tolist() == table


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int32"])
@pytest.mark.parametrize("value", [1, 2])
@pytest.mark.parametrize("first", [True, False])
def test_only_a_factor_of_one_goes(dtype: str, value: int, first: bool, tmp_path: Path) -> None:
    def function(x, number):  # type: ignore[no-untyped-def]
        wide = lax.broadcast(number, (3,))
        return lax.mul(wide, x) if first else lax.mul(x, wide), -x

    facts = noted([(0, "x", "input")], scalars=[(1, value, dtype)])
    made = in_our_form(raw(function, ((3,), dtype), ((), dtype)), facts)
    assert ("multiply" in opcodes(made.data)) == (value != 1)
    x = torch.tensor([3, -1, 0]).to(getattr(torch, dtype))
    assert torch.equal(run(made.data, [[x]], tmp_path)[0][0], x * value)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_a_product_of_widened_factors_reads_the_narrow_ones(dtype: str, tmp_path: Path) -> None:
    """One product, float32 given out, and nothing the size of the weight is made (T2)."""

    def function(x, weight):  # type: ignore[no-untyped-def]
        wide = [value.astype(jnp.float32) for value in (x, weight.T)]
        return wide[0] @ wide[1], -x

    facts = noted([(0, "x", "input"), (1, "w", "weight")])
    made = in_our_form(raw(function, ((2, 8), dtype), ((5, 8), dtype)), facts)
    entry = proto.entry(proto.parse(made.data))
    by_id = {i.id: i for i in entry.instructions}
    (dot,) = [i for i in entry.instructions if i.opcode == "dot"]
    assert [proto.dtype_of(by_id[i].shape) for i in dot.operand_ids] == [dtype, dtype]
    assert made.results[0].dtype == "float32"
    assert "convert" not in opcodes(made.data)
    random = torch.Generator().manual_seed(1)
    x, weight = (torch.randn(rows, 8, generator=random).to(getattr(torch, dtype)) for rows in (2, 5))
    named = {"x": x, "w": weight}
    results = run(made.data, [[named[p.name]] for p in made.parameters], tmp_path)
    torch.testing.assert_close(results[0][0], (x.double() @ weight.double().T).float(), rtol=1e-6, atol=1e-6)


def test_a_result_that_is_a_parameter_is_copied(tmp_path: Path) -> None:
    made = in_our_form(raw(lambda x: (x, x * 2), SIX), noted([(0, "x", "input")]))
    entry = proto.entry(proto.parse(made.data))
    by_id = {i.id: i for i in entry.instructions}
    assert [by_id[i].opcode for i in by_id[entry.root_id].operand_ids] == ["copy", "multiply"]
    assert torch.equal(run(made.data, [[X]], tmp_path)[0][0], X)


def test_parameters_get_our_order_roles_first_and_unused_ones_go(tmp_path: Path) -> None:
    """Numbers follow the roles, then the order that was asked for, whatever torch-xla's were."""

    def function(ids, unused, rank, pool, second, first):  # type: ignore[no-untyped-def]
        return first * 100 + second * 10 + ids + rank, pool + first

    roles = [(0, "ids", "input"), (1, "gone", "weight"), (2, "rank", "rank"), (3, "kv.0.k", "kv")]
    facts = noted([*roles, (4, "b", "weight"), (5, "a", "weight")], results=["out", "kv.0.k"])
    data = raw(function, *[((2,), "int32")] * 6)
    made = in_our_form(data, facts, order=["ids", "a", "b", "gone", "kv.0.k", "rank"])
    assert [(p.name, p.role) for p in made.parameters] == [
        ("a", "weight"),
        ("b", "weight"),
        ("kv.0.k", "kv"),
        ("rank", "rank"),
        ("ids", "input"),
    ]
    values = [torch.full((2,), number, dtype=torch.int32) for number in (3, 2, 50, 0, 1)]
    results = run(made.data, [[value] for value in values], tmp_path)
    assert results[0][0].tolist() == [321, 321]
    assert results[1][0].tolist() == [53, 53]


def test_pools_alias_their_results_and_all_have_names() -> None:
    facts = noted([(0, "x", "input"), (1, "kv.0.k", "kv")], results=["out", "kv.0.k"])
    made = in_our_form(raw(lambda x, pool: (-x, pool + x), SIX, SIX), facts)
    module = proto.parse(made.data)
    entry = proto.entry(module)
    by_number = {i.parameter_number: i for i in entry.instructions if i.opcode == "parameter"}
    root = next(i for i in entry.instructions if i.id == entry.root_id)
    attributes = [{a.key: a.value for a in i.frontend_attributes.map} for i in (by_number[0], by_number[1], root)]
    assert attributes == [
        {"neff_input_names": "kv.0.k.must_alias_input"},
        {"neff_input_names": "x"},
        {"neff_output_names": "out,kv.0.k"},
    ]
    (alias,) = module.input_output_alias.entries
    assert (list(alias.output_shape_index), alias.parameter_number, alias.kind) == ([1], 0, proto.MUST_ALIAS)
    assert [(r.name, r.alias_of) for r in made.results] == [("out", ""), ("kv.0.k", "kv.0.k")]
    assert [p.neff_name for p in made.parameters] == ["kv.0.k.must_alias_input", "x"]


def test_bytes_tell_nothing_of_where_they_were_made() -> None:
    data = raw(lambda x: (jnp.max(x, 1), -x), SIX)
    file = Path(__file__).name.encode()
    assert file in data
    made = in_our_form(data, noted([(0, "x", "input")]))
    assert file not in made.data
    assert b"jit(" not in made.data
    module = proto.parse(made.data)
    assert not any(i.metadata for c in module.computations for i in c.instructions)
    assert (module.name, proto.entry(module).name, module.id) == ("toy", "main", 0)


def test_the_same_module_gives_the_same_bytes() -> None:
    """Though jax and torch-xla number instructions anew in every process."""

    def made(shift: int) -> bytes:
        module = proto.parse(raw(lambda x: (jnp.max(x, 1), -x), SIX))
        for computation in module.computations:
            for instruction in computation.instructions:
                instruction.id += shift
                instruction.name += f".{shift}"
                instruction.operand_ids[:] = [i + shift for i in instruction.operand_ids]
            computation.root_id += shift
        return in_our_form(proto.serialize(module), noted([(0, "x", "input")])).data

    assert made(0) == made(1000)


def test_a_parameter_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValueError, match="parameters of unknown value"):
        in_our_form(raw(lambda x, y: (x + y, -x), SIX, SIX), noted([(0, "x", "input")]))


def test_another_number_of_results_is_refused() -> None:
    with pytest.raises(ValueError, match="2 results where 3 were lowered"):
        in_our_form(raw(lambda x: (x * 2, -x), SIX), noted([(0, "x", "input")], collectives=[(0, "all_reduce", 0)]))


@pytest.mark.parametrize("what", ["parameters", "scalars", "collectives"])
def test_a_number_that_no_parameter_has_is_refused(what: str) -> None:
    facts = {
        "parameters": noted([(0, "x", "input"), (7, "y", "input")]),
        "scalars": noted([(0, "x", "input")], scalars=[(7, 1.0, "float32")]),
        "collectives": noted([(0, "x", "input")], results=["out"], collectives=[(7, "all_reduce", 0)]),
    }[what]
    with pytest.raises(ValueError, match="no parameter 7"):
        in_our_form(raw(lambda x: (x * 2, -x), SIX), facts)
