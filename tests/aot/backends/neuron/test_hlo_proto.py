"""HLO messages: what is not declared is kept, and the declared fields are XLA's."""

from __future__ import annotations

import contextlib
from pathlib import Path

import jax.numpy as jnp
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from aot.backends.neuron.hlo import proto
from aot.backends.neuron.hlo.module import Editor, set_literal
from tests.aot.backends.neuron.jax_modules import raw, run

SIX = ((2, 3), "float32")


def several_kinds() -> bytes:
    """A module with dot, gather, scatter, padding, reduction and slice: each has numbers that we do not declare."""

    def function(x, table, ids):  # type: ignore[no-untyped-def]
        rows = table.at[ids].get(mode="clip")
        product = lax.dot_general(x, table, (((1,), (1,)), ((), ())))
        return product, lax.pad(rows, jnp.float32(0), ((1, 2, 0), (0, 1, 0))), table.at[ids].set(1.0), jnp.max(x, 1)

    return raw(function, SIX, ((5, 3), "float32"), ((4,), "int32"))


def test_a_module_that_is_read_and_written_is_the_same_to_xla(tmp_path: Path) -> None:
    data = several_kinds()
    again = proto.serialize(proto.parse(data))
    assert proto.serialize(proto.parse(again)) == again
    x, table = torch.arange(6.0).reshape(2, 3), torch.arange(15.0).reshape(5, 3)
    ids = torch.tensor([3, 0, 4, 1], dtype=torch.int32)
    results = run(again, [[x], [table], [ids]], tmp_path)
    torch.testing.assert_close(results[0][0], x @ table.T)
    torch.testing.assert_close(results[1][0], torch.nn.functional.pad(table[ids.long()], (0, 1, 1, 2)))
    torch.testing.assert_close(results[2][0], table.index_fill(0, ids.long(), 1.0))
    torch.testing.assert_close(results[3][0], torch.tensor([2.0, 5.0]))


def test_an_edited_module_keeps_what_is_not_declared(tmp_path: Path) -> None:
    editor = Editor(proto.parse(several_kinds()))
    editor.finish([i.id for _, i in sorted(editor.parameters().items())])
    x, table = torch.arange(6.0).reshape(2, 3), torch.arange(15.0).reshape(5, 3)
    results = run(proto.serialize(editor.module), [[x], [table], [torch.zeros(4, dtype=torch.int32)]], tmp_path)
    torch.testing.assert_close(results[0][0], x @ table.T)


def test_names_and_numbers_are_xla_s() -> None:
    def function(x):  # type: ignore[no-untyped-def]
        return lax.slice(x, (0, 1), (2, 3)), lax.transpose(x, (1, 0)), x > 0.5

    module = proto.parse(raw(function, SIX))
    by_opcode = {i.opcode: i for i in proto.entry(module).instructions}
    assert module.entry_computation_name == proto.entry(module).name
    assert [(s.start, s.limit, s.stride) for s in by_opcode["slice"].slice_dimensions] == [(0, 2, 1), (1, 3, 1)]
    assert list(by_opcode["transpose"].dimensions) == [1, 0]
    assert by_opcode["compare"].comparison_direction == "GT"
    assert proto.dtype_of(by_opcode["compare"].shape) == "bool"
    assert list(by_opcode["constant"].literal.f32s) == [0.5]
    assert [list(shape.dimensions) for shape in by_opcode["tuple"].shape.tuple_shapes] == [[2, 2], [3, 2], [2, 3]]
    assert list(by_opcode["parameter"].shape.layout.minor_to_major) == [1, 0]


@pytest.mark.parametrize("dtype", ["bool", "int32", "int64", "float16", "float32", "bfloat16"])
def test_dtypes_have_xla_s_numbers(dtype: str) -> None:
    module = proto.parse(raw(lambda x: (x, x), ((2,), dtype)))
    shape = next(i.shape for i in proto.entry(module).instructions if i.opcode == "parameter")
    assert proto.dtype_of(shape) == dtype
    made = proto.Shape()
    proto.set_shape(made, dtype, (2,))
    assert made == shape


def test_a_dtype_of_no_name_is_told_by_its_number() -> None:
    shape = proto.entry(proto.parse(raw(lambda x: (x, x), ((2,), "float64")))).instructions[0].shape
    assert proto.dtype_of(shape) == "type 12"


@pytest.mark.parametrize(
    ("data", "said"), [(b"\x08", "not a serialized HloModuleProto"), (b"", "without an entry computation")]
)
def test_other_bytes_are_no_module(data: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        proto.parse(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_module_or_a_value_error(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        proto.entry(proto.parse(data))


@given(st.lists(st.integers(0, 40), min_size=1, max_size=30), st.data())
def test_order_puts_operands_first_and_leaves_out_what_is_unused(picks: list[int], data: st.DataObject) -> None:
    """Random graphs of additions: each operand before its user, each instruction once, nothing that the root lacks."""
    editor = Editor(proto.parse(raw(lambda x: (x, x), ((2,), "float32"))))
    ids = [editor.parameters()[0].id]
    for first in picks:
        second = data.draw(st.sampled_from(ids))
        ids.append(editor.add("add", "float32", (2,), [ids[first % len(ids)], second]).id)
    editor.instructions[editor.root].operand_ids[:] = [ids[-1], ids[0]]
    needed, waiting = set(), [editor.root]
    while waiting:
        current = waiting.pop()
        needed.add(current)
        waiting += editor.instructions[current].operand_ids
    order = editor.ordered()
    assert len(order) == len(set(order))
    assert set(order) == needed
    place = {which: index for index, which in enumerate(order)}
    for which in order:
        assert all(place[operand] < place[which] for operand in editor.instructions[which].operand_ids)
    editor.finish()
    assert [i.id for i in proto.entry(editor.module).instructions] == list(range(1, len(order) + 1))


def test_a_circle_is_refused() -> None:
    editor = Editor(proto.parse(raw(lambda x: (x, x), ((2,), "float32"))))
    first = editor.add("negate", "float32", (2,))
    second = editor.add("negate", "float32", (2,), [first.id])
    first.operand_ids.append(second.id)
    editor.instructions[editor.root].operand_ids[0] = first.id
    with pytest.raises(ValueError, match="circle"):
        editor.ordered()


@given(st.floats(width=32, allow_nan=False))
def test_a_bfloat16_constant_is_the_nearest_one(value: float) -> None:
    literal = proto.Instruction().literal
    set_literal(literal, "bfloat16", value)
    stored = torch.frombuffer(bytearray(literal.bf16s), dtype=torch.bfloat16)
    assert stored.item() == torch.tensor(value).to(torch.bfloat16).item()


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("float16", 1e6), ("bfloat16", 1e300), ("float32", 1e300), ("int32", 1 << 31), ("int32", 0.5), ("int64", 1)],
)
def test_a_number_that_the_dtype_lacks_is_refused(dtype: str, value: float) -> None:
    with pytest.raises(ValueError, match=r"is no|no constants of"):
        set_literal(proto.Instruction().literal, dtype, value)
