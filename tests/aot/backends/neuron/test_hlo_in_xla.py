"""Each pass on a small module that jax made, and what XLA then computes from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy
import pytest
import torch
from torch import Tensor

from aot.backends.neuron.hlo import passes, proto
from aot.backends.neuron.hlo.lint import findings
from aot.backends.neuron.hlo.module import Editor, set_literal
from aot.backends.neuron.hlo.passes import Lowered, Noted, canonical
from runtime.backends.sim import MOST_RANKS, _Xla, to_torch

jax.config.update("jax_num_cpu_devices", MOST_RANKS)  # before jax is first used, as the simulator does
HALF = jax.ShapeDtypeStruct((4, 8), jnp.float32)


def module_of(function: Callable[..., Any], *shapes: jax.ShapeDtypeStruct) -> bytes:
    """A function's serialized HloModuleProto, its results in a tuple as torch-xla has them."""
    lowered = jax.jit(lambda *inputs: tuple(function(*inputs)), keep_unused=True).lower(*shapes)
    data: bytes = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
    editor = Editor(proto.parse(data))
    root = editor.instructions[editor.root]
    if root.opcode != "tuple":  # XLA's own form of a single result
        made = editor.add("tuple", "float32", (), [root.id])
        made.shape.Clear()
        made.shape.element_type = proto.ELEMENT_TYPES["tuple"]
        made.shape.tuple_shapes.add().CopyFrom(root.shape)
        editor.computation.instructions.append(made)
        editor.computation.root_id = made.id
        editor.computation.program_shape.result.CopyFrom(made.shape)
        editor.module.host_program_shape.result.CopyFrom(made.shape)
    return proto.serialize(editor.module)


def run(data: bytes, ranks: int, folder: Path, *inputs: Sequence[Tensor]) -> list[list[Tensor]]:
    """What a module gives on every rank, for inputs by parameter and rank."""
    xla = _Xla(ranks)
    (folder / "graph.hlo").write_bytes(data)
    arguments = [xla.put(parts, owned=True) for parts in inputs]
    made = xla.execute(xla.compile((folder / "graph.hlo").read_bytes(), folder.name), arguments)
    return [[to_torch(part) for part in parts] for parts in made]


def lowered(raw: bytes, noted: Noted, *order: str, ranks: int = 1) -> Lowered:
    return canonical(raw, noted, name="toy", ranks=ranks, order=order)


def opcodes(data: bytes) -> list[str]:
    return [i.opcode for i in proto.entry(proto.parse(data)).instructions]


def test_reading_and_writing_keeps_what_is_not_declared() -> None:
    """Dimension numbers of a dot, for instance: XLA prints the same text."""
    from jaxlib.xla_client import XlaComputation

    raw = module_of(lambda x, y: [x @ y.T, jnp.pad(x, ((1, 2), (0, 0)))], HALF, HALF)
    again = proto.serialize(proto.parse(raw))
    assert XlaComputation(again).as_hlo_text() == XlaComputation(raw).as_hlo_text()
    assert proto.serialize(proto.parse(again)) == again


@pytest.mark.parametrize("data", [b"", b"no module", b"\xff" * 40])
def test_what_is_no_module_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"HloModuleProto|entry computation"):
        proto.parse(data)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("float32", 1e-5), ("float32", float("-inf")), ("bfloat16", 0.3), ("float16", -2.5), ("int32", -7)],
)
def test_a_number_becomes_a_constant(dtype: str, value: float, tmp_path: Path) -> None:
    kind = jnp.dtype(dtype)
    shape = jax.ShapeDtypeStruct((3,), kind)
    raw = module_of(lambda x, n: [x + n], shape, jax.ShapeDtypeStruct((), kind))
    made = lowered(raw, Noted([(0, "x", "input")], [(1, value, dtype)], [], ["y"]), "x")
    assert [p.name for p in made.parameters] == ["x"]
    x = torch.tensor([0, 1, 2]).to(getattr(torch, dtype))
    assert torch.equal(run(made.data, 1, tmp_path, [x])[0][0], x + torch.tensor(value).to(x.dtype))


def test_bfloat16_constants_round_to_even() -> None:
    """Against torch, for numbers between, at and beyond what bfloat16 has."""
    for value in (1.0, 1.00390625, 1.01171875, 3.3895e38, -0.1, 1e-40, float("inf")):
        module = proto.Module()
        literal = module.computations.add().instructions.add().literal
        set_literal(literal, "bfloat16", value)
        want = torch.tensor(value).to(torch.bfloat16)
        assert literal.bf16s == want.view(torch.int16).numpy().tobytes()


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("kind", ["all_reduce", "all_gather"])
def test_a_collective_is_put_in(ranks: int, kind: str, tmp_path: Path) -> None:
    """One that joins along dimension 1, or adds: with the parts that the ranks hold."""
    wide = (4, 8 * ranks) if kind == "all_gather" else (4, 8)
    stand_in = jax.ShapeDtypeStruct(wide, jnp.float32)
    raw = module_of(lambda x, y: [y * 2, x + 1], HALF, stand_in)
    noted = Noted([(0, "x", "input")], [], [(1, kind, 1)], ["y"])
    made = lowered(raw, noted, "x", ranks=ranks)
    assert kind.replace("_", "-") in opcodes(made.data)
    parts = [torch.randn(4, 8, generator=torch.Generator().manual_seed(rank)) for rank in range(ranks)]
    (found,) = run(made.data, ranks, tmp_path, parts)
    moved = [part + 1 for part in parts]
    want = 2 * (torch.cat(moved, dim=1) if kind == "all_gather" else torch.stack(moved).sum(0))
    for one in found:
        torch.testing.assert_close(one, want)
    assert findings(made.data, made.parameters, made.results, ranks) == []
    assert [f.opcode for f in findings(made.data, made.parameters, made.results, ranks + 1)] == [kind.replace("_", "-")]


def test_64_bit_integers_become_32_bit_ones(tmp_path: Path) -> None:
    with jax.enable_x64(True):
        index = jax.ShapeDtypeStruct((3,), jnp.int32)
        raw = module_of(lambda x, i: [x[i.astype(jnp.int64)], i.astype(jnp.int64).sum() + 5], HALF, index)
    assert proto.ELEMENT_TYPES["int64"] in {i.shape.element_type for i in proto.entry(proto.parse(raw)).instructions}
    made = lowered(raw, Noted([(0, "x", "input"), (1, "i", "input")], [], [], ["rows", "sum"]), "x", "i")
    module = proto.parse(made.data)
    types = {i.shape.element_type for c in module.computations for i in c.instructions}
    assert proto.ELEMENT_TYPES["int64"] not in types
    x, chosen = torch.randn(4, 8), torch.tensor([3, 0, 2], dtype=torch.int32)
    rows, total = run(made.data, 1, tmp_path, [x], [chosen])
    assert torch.equal(rows[0], x[chosen.long()])
    assert total[0].item() == 10


def test_a_64_bit_number_that_does_not_fit_is_refused() -> None:
    with jax.enable_x64(True):
        raw = module_of(lambda i: [i + (1 << 40)], jax.ShapeDtypeStruct((3,), jnp.int64))
    with pytest.raises(ValueError, match="does not fit 32 bits"):
        lowered(raw, Noted([(0, "i", "input")], [], [], ["j"]), "i")


def test_index_tables_are_counted_by_the_device() -> None:
    raw = module_of(lambda i: [i + numpy.arange(6, dtype=numpy.int32)], jax.ShapeDtypeStruct((6,), jnp.int32))
    assert "iota" not in opcodes(raw)
    made = lowered(raw, Noted([(0, "i", "input")], [], [], ["j"]), "i")
    assert "iota" in opcodes(made.data)
    assert "constant" not in opcodes(made.data)


def test_multiplications_by_one_go_and_others_stay(tmp_path: Path) -> None:
    raw = module_of(lambda x, n: [x * n * 3.0], HALF, jax.ShapeDtypeStruct((), jnp.float32))
    made = lowered(raw, Noted([(0, "x", "input")], [(1, 1.0, "float32")], [], ["y"]), "x")
    assert opcodes(made.data).count("multiply") == 1
    x = torch.randn(4, 8)
    assert torch.equal(run(made.data, 1, tmp_path, [x])[0][0], x * 3)


def test_parameters_come_by_role_and_pools_alias_their_results(tmp_path: Path) -> None:
    raw = module_of(lambda x, pool, w: [x @ w.T, pool.at[1].set(x[0])], HALF, HALF, HALF)
    known = [(0, "x", "input"), (1, "kv.0.k", "kv"), (2, "w", "weight")]
    made = lowered(raw, Noted(known, [], [], ["y", "kv.0.k"]), "x", "kv.0.k", "w")
    assert [(p.name, p.neff_name, p.role) for p in made.parameters] == [
        ("w", "w", "weight"),
        ("kv.0.k", "kv.0.k.must_alias_input", "kv"),
        ("x", "x", "input"),
    ]
    assert [(r.name, r.alias_of) for r in made.results] == [("y", ""), ("kv.0.k", "kv.0.k")]
    (entry,) = proto.parse(made.data).input_output_alias.entries
    assert (list(entry.output_shape_index), entry.parameter_number, entry.kind) == ([1], 1, proto.MUST_ALIAS)
    x, pool, w = (torch.randn(4, 8) for _ in range(3))
    product, written = run(made.data, 1, tmp_path, [w], [pool], [x])
    torch.testing.assert_close(product[0], x @ w.T)
    assert torch.equal(written[0][1], x[0])
    assert torch.equal(written[0][2:], pool[2:])


def test_a_result_that_is_a_parameter_is_copied(tmp_path: Path) -> None:
    raw = module_of(lambda x, y: [x, x + y], HALF, HALF)
    made = lowered(raw, Noted([(0, "x", "input"), (1, "y", "input")], [], [], ["same", "sum"]), "x", "y")
    assert "copy" in opcodes(made.data)
    assert findings(made.data, made.parameters, made.results, 1) == []
    x = torch.randn(4, 8)
    assert torch.equal(run(made.data, 1, tmp_path, [x], [x])[0][0], x)


def test_unused_parameters_go_and_unknown_ones_are_refused() -> None:
    raw = module_of(lambda x, y: [x + 1], HALF, HALF)
    made = lowered(raw, Noted([(0, "x", "input"), (1, "y", "weight")], [], [], ["z"]), "y", "x")
    assert [p.name for p in made.parameters] == ["x"]
    with pytest.raises(ValueError, match="unknown value"):
        lowered(module_of(lambda x, y: [x + y], HALF, HALF), Noted([(0, "x", "input")], [], [], ["z"]), "x")
    with pytest.raises(ValueError, match="1 results where 2"):
        lowered(raw, Noted([(0, "x", "input")], [], [], ["z", "more"]), "x")


def test_the_same_module_gives_the_same_bytes_and_no_trace_of_its_source() -> None:
    raw = module_of(lambda x, y: [jnp.tanh(x) @ y.T], HALF, HALF)
    noted = Noted([(0, "x", "input"), (1, "y", "weight")], [], [], ["z"])
    first, second = (lowered(raw, noted, "y", "x").data for _ in range(2))
    assert first == second
    assert b".py" in raw
    assert b".py" not in first


# The lint: a right module, and one change for each rule


def right() -> Lowered:
    raw = module_of(lambda x, pool: [(x * 2).sum(1), pool.at[1].set(x[0])], HALF, HALF)
    return lowered(raw, Noted([(0, "x", "input"), (1, "kv.0.k", "kv")], [], [], ["y", "kv.0.k"]), "kv.0.k", "x")


def instruction(module: Any, opcode: str) -> Any:
    return next(i for i in proto.entry(module).instructions if i.opcode == opcode)


def dynamic(module: Any) -> None:
    instruction(module, "multiply").shape.is_dynamic_dimension[0] = True


def stranger(module: Any) -> None:
    instruction(module, "multiply").opcode = "cholesky"


def wide(module: Any) -> None:
    instruction(module, "multiply").shape.element_type = proto.ELEMENT_TYPES["int64"]


def adding(module: Any) -> None:
    which = instruction(module, "scatter").called_computation_ids[0]
    combiner = next(c for c in module.computations if c.id == which)
    combiner.instructions.add(id=9000, opcode="add", name="add.9000")


def unaliased(module: Any) -> None:
    del module.input_output_alias.entries[:]


def may_alias(module: Any) -> None:
    module.input_output_alias.entries[0].kind = 1


def nameless(module: Any) -> None:
    instruction(module, "parameter").frontend_attributes.Clear()


def raw_result(module: Any) -> None:
    entry = proto.entry(module)
    root = next(i for i in entry.instructions if i.id == entry.root_id)
    root.operand_ids[1] = instruction(module, "parameter").id


BREACHES = {
    dynamic: "not static",
    stranger: "operator cholesky",
    wide: "64-bit integer",
    adding: "a scatter that computes",
    unaliased: "must alias kv.0.k, and aliases nothing",
    may_alias: "must alias kv.0.k",
    nameless: "without its name for the device",
    raw_result: "is a parameter, not a copy",
}


def test_a_right_module_has_no_finding() -> None:
    made = right()
    assert findings(made.data, made.parameters, made.results, 1) == []


@pytest.mark.parametrize("breach", BREACHES, ids=lambda breach: breach.__name__)
def test_a_breach_is_found_and_names_graph_and_place(breach: Callable[[Any], None]) -> None:
    made = right()
    module = proto.parse(made.data)
    breach(module)
    found = findings(proto.serialize(module), made.parameters, made.results, 1)
    sentences = [finding.sentence("target_verify.r4.c512") for finding in found]
    assert any(BREACHES[breach] in sentence for sentence in sentences)
    assert all(sentence.startswith("Graph target_verify.r4.c512, ") for sentence in sentences)


def test_products_of_integers_are_found() -> None:
    whole = jax.ShapeDtypeStruct((4, 8), jnp.int32)
    raw = module_of(lambda x, y: [x @ y.T], whole, whole)
    made = lowered(raw, Noted([(0, "x", "input"), (1, "y", "input")], [], [], ["z"]), "x", "y")
    (finding,) = findings(made.data, made.parameters, made.results, 1)
    assert finding.opcode == "dot"
    assert "computes in float32" in finding.what


def test_an_editor_refuses_a_circle() -> None:
    module = proto.parse(right().data)
    editor = Editor(module)
    product = instruction(module, "multiply")
    editor.instructions[product.id].operand_ids[0] = product.id
    with pytest.raises(ValueError, match="circle"):
        editor.ordered()


def test_an_integer_all_reduce_is_found(tmp_path: Path) -> None:
    whole = jax.ShapeDtypeStruct((4,), jnp.int32)
    raw = module_of(lambda x, y: [y, x + 1], whole, whole)
    made = lowered(raw, Noted([(0, "x", "input")], [], [(1, "all_reduce", 0)], ["y"]), "x", ranks=2)
    found = findings(made.data, made.parameters, made.results, 2)
    assert [finding.opcode for finding in found] == ["all-reduce"]
    assert passes.ROLES == ("weight", "kv", "rank", "input")
