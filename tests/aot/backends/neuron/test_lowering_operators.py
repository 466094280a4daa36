"""Every operator that has a lowering of our own, exported from PyTorch and run beside it on the simulator."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aot.backends.neuron import lowering
from aot.backends.neuron.chain import ChainSpec
from aot.backends.neuron.hlo import proto
from aot.backends.neuron.hlo.lint import findings
from aot.backends.neuron.hlo.passes import canonical, noted_from_json
from aot.graphs.units import UnitSpec
from runtime.bundle.manifest import Call, TensorSpec
from tests.aot.backends.neuron.jax_modules import run

pytestmark = pytest.mark.neuron

INF = float("inf")
X = torch.tensor([[1.0, -2.0, 3.0, 3.0], [0.5, -INF, -4.0, -1.0], [-INF, -INF, -INF, -INF]])
FINITE = torch.tensor([[1.0, -2.0, 3.0, 3.0], [0.5, 0.0, -4.0, -1.0]])
IDS = torch.tensor([0, 1, 5, 6, 7, 8, 100], dtype=torch.int32)
YES = torch.tensor([True, True, False, False])
NO = torch.tensor([True, False, True, False])


class Function(nn.Module):
    """A function as a model."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(*inputs)


class Lower:
    """`lower(function, *inputs)`: what it gives from its HLO, and the HLO's bytes, without a finding of the lint."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._folder, self._patch = folder, patch

    def __call__(self, function: Callable[..., Tensor], *inputs: Tensor) -> tuple[Tensor, bytes]:
        self._patch.setattr(lowering, "module", lambda unit: Function(function))
        want = function(*inputs)
        dtype = "int32" if want.dtype is torch.int64 else str(want.dtype).removeprefix("torch.")
        taken = tuple(
            TensorSpec(f"x{i}", str(x.dtype).removeprefix("torch."), tuple(x.shape)) for i, x in enumerate(inputs)
        )
        given = (TensorSpec("out", dtype, tuple(want.shape)),)
        unit = UnitSpec("toy", "target_head", "float32", {}, taken, given)
        call = Call("toy", "target", tuple(spec.name for spec in taken), ("out",))
        chain = ChainSpec("toy", "target_verify", "float32", 1, (unit,), (call,), (), taken, given)
        raw, noted = lowering.lower(chain)
        facts = noted_from_json(json.loads(json.dumps(asdict(noted))))
        made = canonical(raw, facts, name="toy", ranks=1, order=[spec.name for spec in taken])
        assert findings(made.data, made.parameters, made.results, 1) == []
        used = [inputs[int(parameter.name[1:])] for parameter in made.parameters]
        ((result,),) = run(made.data, [[x] for x in used], self._folder)
        return result, made.data


@pytest.fixture
def lower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lower:
    return Lower(tmp_path, monkeypatch)


def split(x: Tensor) -> Tensor:
    first, second = x.split([1, 3], dim=1)
    return torch.cat([second, first], 1)


def put(table: Tensor, slots: Tensor, rows: Tensor) -> Tensor:
    return table.index_put((slots,), rows)


EXACT: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = {
    # Ties go to the first; a row of nothing but -inf has its largest value at 0
    "argmax": (lambda x: x.argmax(-1).to(torch.int32), (X,)),
    "argmax, kept": (lambda x: x.argmax(-1, keepdim=True).to(torch.int32), (X,)),
    "argmax of one value": (lambda x: x[:, :1].argmax(-1).to(torch.int32), (X,)),
    "argmax of the last": (lambda x: x.argmax(-1).to(torch.int32), (torch.eye(5),)),
    "amax": (lambda x: x.amax(-1), (X[:2],)),
    "amin of integers": (lambda x: x.amin(-1), (IDS,)),
    "floor_divide by 4": (lambda x: x // 4, (IDS,)),
    "floor_divide by 3": (lambda x: x // 3, (IDS,)),
    "floor_divide by 1": (lambda x: x // 1, (IDS,)),
    "remainder by 4": (lambda x: x % 4, (IDS,)),
    "remainder by 3": (lambda x: x % 3, (IDS,)),
    "square": (lambda x: x.pow(2), (FINITE,)),
    "slices": (lambda x: torch.cat([x[:, 2:], x[:, :2]], 1), (FINITE,)),
    "a split into a list": (split, (FINITE,)),
    "rows by an index": (lambda table, ids: table[ids], (FINITE, torch.tensor([[1, 0], [1, 1]], dtype=torch.int32))),
    "an embedding": (lambda table, ids: F.embedding(ids, table), (FINITE, torch.tensor([1, 0], dtype=torch.int32))),
    "rows written": (put, (torch.zeros(5, 4), torch.tensor([4, 1], dtype=torch.int32), FINITE)),
    "rows overwritten": (put, (torch.ones(5, 4), torch.tensor([0, 3], dtype=torch.int32), FINITE)),
    "where": (lambda x, y: torch.where(x > y, x, y), (FINITE, FINITE.flip(1))),
    "where with a number": (lambda x: torch.where(x > 0.0, x, -INF), (FINITE,)),
    "masked_fill": (lambda x, hidden: x.masked_fill(hidden, -INF), (FINITE, YES)),
    "and": (lambda a, b: a & b, (YES, NO)),
    "or": (lambda a, b: a | b, (YES, NO)),
    "logical_and": (lambda a, b: torch.logical_and(a, b), (YES, NO)),
    "and of integers": (lambda a, b: a & b, (IDS, IDS.flip(0))),
    "not": (lambda a: ~a, (YES,)),
    "arange": (
        lambda x: torch.arange(2, 6, dtype=torch.int32, device=x.device) + x,
        (torch.zeros(4, dtype=torch.int32),),
    ),
    "full": (
        lambda x: torch.full((4,), 7, dtype=torch.int32, device=x.device) - x,
        (torch.arange(4, dtype=torch.int32),),
    ),
    "numbers beside integers": (lambda x: (x - 3) * 2, (IDS,)),
    "a comparison with a number": (lambda x: x >= 6, (IDS,)),
    "a conversion": (lambda x: x.to(torch.bfloat16), (FINITE,)),
    "transposed": (lambda x: x.transpose(0, 1).contiguous(), (FINITE,)),
}


@pytest.mark.parametrize("name", EXACT)
def test_an_operator_gives_eager_pytorch_s_bits(name: str, lower: Lower) -> None:
    function, inputs = EXACT[name]
    want = function(*inputs)
    found, _ = lower(function, *inputs)
    assert found.dtype == want.dtype
    assert torch.equal(found, want)


NEAR: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "softmax": lambda x: x.softmax(-1),
    "sigmoid": torch.sigmoid,
    "mean": lambda x: x.mean(-1, keepdim=True),
    "sum": lambda x: x.sum(-1),
    "rms": lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6),
    "a quotient": lambda x: x / 3.0,
    "a product of matrices": lambda x: x @ x.T,
    "tanh": torch.tanh,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", NEAR)
def test_an_operator_that_rounds_is_near(name: str, dtype: torch.dtype, lower: Lower) -> None:
    x = FINITE.to(dtype)
    found, _ = lower(NEAR[name], x)
    assert found.dtype == dtype
    close = 1e-6 if dtype is torch.float32 else 2e-2
    torch.testing.assert_close(found, NEAR[name](x), rtol=close, atol=close)


def test_an_argmax_is_made_of_reductions_over_one_value_each(lower: Lower) -> None:
    _, data = lower(lambda x: x.argmax(-1).to(torch.int32), X)
    for computation in proto.parse(data).computations:
        for instruction in computation.instructions:
            if instruction.opcode == "reduce":
                assert len(instruction.operand_ids) == 2
                assert not instruction.shape.tuple_shapes


def test_a_number_that_no_lowering_takes_in_is_refused(lower: Lower) -> None:
    """What torch-xla makes of it is a parameter of a value that the module does not hold."""
    with pytest.raises(ValueError, match="parameters of unknown value"):
        lower(lambda x: x & 6, IDS)


def test_an_argmax_of_nan_is_a_valid_index(lower: Lower) -> None:
    found, _ = lower(lambda x: x.argmax(-1).to(torch.int32), torch.full((2, 5), float("nan")))
    assert found.tolist() == [0, 0]


def test_division_by_a_power_of_two_needs_no_division(lower: Lower) -> None:
    for function in (lambda x: x // 16, lambda x: x % 16):
        _, data = lower(function, IDS)
        opcodes = {i.opcode for c in proto.parse(data).computations for i in c.instructions}
        assert not opcodes & {"divide", "remainder"}


def test_a_write_reads_nothing_of_what_it_overwrites(lower: Lower) -> None:
    function, inputs = EXACT["rows written"]
    _, data = lower(function, *inputs)
    module = proto.parse(data)
    (scatter,) = [i for i in proto.entry(module).instructions if i.opcode == "scatter"]
    (combiner,) = [c for c in module.computations if c.id in scatter.called_computation_ids]
    assert {i.opcode for i in combiner.instructions} == {"parameter"}


REFUSED: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = {
    "a power of 3": (lambda x: x.pow(3), (FINITE,)),
    "an argmax over another dimension": (lambda x: x.argmax(0).to(torch.int32), (FINITE,)),
    "an argmax over another dimension than the last": (lambda x: x.argmax().to(torch.int32), (FINITE,)),
    "a scatter that adds": (
        lambda table, slots, rows: table.index_put((slots,), rows, accumulate=True),
        (torch.zeros(5, 4), torch.tensor([4, 4], dtype=torch.int32), FINITE),
    ),
    "a division with rounding of floating-point numbers": (lambda x: torch.div(x, 2, rounding_mode="floor"), (FINITE,)),
    "an index over another dimension": (lambda x, ids: x[:, ids], (FINITE, torch.tensor([1, 0], dtype=torch.int32))),
    "an index by several": (lambda x, ids: x[ids, ids], (FINITE, torch.tensor([1, 0], dtype=torch.int32))),
    "columns written": (
        lambda table, slots, rows: table.index_put((torch.zeros_like(slots), slots), rows),
        (torch.zeros(5, 2), torch.tensor([1, 0], dtype=torch.int32), torch.ones(2)),
    ),
    "a negative divisor": (lambda x: x // -3, (IDS,)),
    "a remainder by a negative number": (lambda x: x % -4, (IDS,)),
    "a whole quotient of floating-point numbers": (lambda x: x // 2, (FINITE,)),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_has_no_lowering_is_refused_in_words(what: str) -> None:
    function, inputs = REFUSED[what]
    traced = torch.export.export(Function(function), inputs, strict=False).run_decompositions()
    made = lowering.Placeholders()
    arguments: list[Any] = [made.value(f"x{i}", "input", x.shape, x.dtype) for i, x in enumerate(inputs)]
    with pytest.raises(RuntimeError, match=r"ha(s|ve) no lowering"):
        lowering._Tracer(traced.graph_module, made).run(*arguments, enable_io_processing=False)
