"""A chain of calls to raw HLO: each module exported, its graph run over placeholder tensors, the result lowered.

Runs where torch-xla is, on any machine: no device, no weights, and no memory for tensors, which exist in name only.
What torch-xla makes is not yet in our form; `hlo/passes.py` brings it there by what is noted here:

- parameters carry numbers in order of first use: `Noted.parameters` says which is which;
- a Python number in the program becomes a parameter too, whose value the module does not hold: every number is handed
  in as a placeholder of ours, so that its value is known (`Noted.scalars`);
- a collective is cut out: its operand becomes a result, its own result a parameter (`Noted.collectives`). torch-xla
  threads a token through all collectives, which adds a number to every payload; and on integers adds are wrong on the
  device (facts that decide this: no integer data path in all-reduce).

Some operators are lowered in a form of their own because the device's compiler wants it or torch-xla's form is worse;
each has its reason beside it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.fx import Interpreter

from aot.backends.neuron.chain import RANK, ChainSpec
from aot.graphs.modules import dtype_of, module
from aot.graphs.units import UnitSpec
from runtime.bundle.manifest import TensorSpec

aten = torch.ops.aten


@dataclass
class Noted:
    """What the passes must know of a lowered module. Parameter numbers are torch-xla's; unused ones are absent.

    parameters: (number, name, role) of weights, KV pools, the rank and the inputs.
    scalars: (number, value, dtype) of Python numbers.
    collectives: (number of the parameter that stands for its result, "all_reduce" or "all_gather", dimension), in
        order; the operand of the i-th is result len(results) + i of the module.
    results: names of the results: the outputs, then the KV pools that are written.
    """

    parameters: list[tuple[int, str, str]] = field(default_factory=list)
    scalars: list[tuple[int, float | int, str]] = field(default_factory=list)
    collectives: list[tuple[int, str, int]] = field(default_factory=list)
    results: list[str] = field(default_factory=list)


class Placeholders:
    """Tensors without memory on the XLA device, and what each one stands for."""

    def __init__(self) -> None:
        from torch_xla.core import xla_builder

        self._create = xla_builder.create_placeholder_tensor
        self.named: dict[str, tuple[Tensor, str]] = {}
        self.numbers: dict[tuple[float | int, torch.dtype], Tensor] = {}
        self.collectives: list[tuple[Tensor, Tensor, str, int]] = []

    def value(self, name: str, role: str, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """The placeholder called `name`, made on first use."""
        if name not in self.named:
            self.named[name] = (self._create(tuple(shape), dtype), role)
        return self.named[name][0]

    def number(self, value: float | int, dtype: torch.dtype) -> Tensor:
        """A Python number as a tensor without dimensions."""
        key = (value, dtype)
        if key not in self.numbers:
            self.numbers[key] = self._create((), dtype)
        return self.numbers[key]

    def collective(self, operand: Tensor, kind: str, dim: int, shape: Sequence[int]) -> Tensor:
        """The result of a collective over `operand`."""
        made: Tensor = self._create(tuple(shape), operand.dtype)
        self.collectives.append((operand, made, kind, dim))
        return made


def lower(chain: ChainSpec) -> tuple[bytes, Noted]:
    """The chain's raw HLO, a serialized HloModuleProto, and what the passes must know of it.

    Raises:
        RuntimeError: an operator was lowered to something that depends on a value that nobody knows.
    """
    import torch_xla

    register_collectives()
    made = Placeholders()
    programs = {unit.name: Program(unit) for unit in chain.units}
    values: dict[str, Tensor] = {}
    for spec, role in [(pool, "kv") for pool in chain.pools] + [(value, "input") for value in chain.inputs]:
        values[spec.name] = _placeholder(made, spec, role)
    if chain.ranks > 1:
        values[RANK.name] = _placeholder(made, RANK, "rank")
    for call in chain.calls:
        outputs, written = programs[call.unit].run(made, call.scope, [values[name] for name in call.inputs])
        values |= dict(zip(call.outputs, outputs, strict=True))
        values |= {call.inputs[position]: tensor for position, tensor in written.items()}
    noted = Noted(results=[spec.name for spec in chain.outputs] + [pool.name for pool in chain.pools])
    context = torch_xla._XLAC.lowering.LoweringContext()
    context.build([values[name] for name in noted.results] + [operand for operand, *_ in made.collectives])
    number = context.tensor_parameter_id
    for name, (tensor, role) in made.named.items():
        if (found := number(tensor)) >= 0:
            noted.parameters.append((found, name, role))
    for (value, dtype), tensor in made.numbers.items():
        if (found := number(tensor)) >= 0:
            noted.scalars.append((found, value, str(dtype).removeprefix("torch.")))
    noted.collectives = [(number(result), kind, dim) for _, result, kind, dim in made.collectives]
    return context.hlo(), noted


def _placeholder(made: Placeholders, spec: TensorSpec, role: str) -> Tensor:
    return made.value(spec.name, role, [int(dim) for dim in spec.shape], dtype_of(spec.dtype))


class Program:
    """A unit's exported graph: its weights by name, its inputs in call order, and which inputs it writes."""

    def __init__(self, unit: UnitSpec) -> None:
        with torch.device("meta"):
            model = module(unit)
            inputs = tuple(torch.zeros(spec.shape, dtype=dtype_of(spec.dtype)) for spec in unit.inputs)  # type: ignore[arg-type]
        with torch.no_grad():
            program = torch.export.export(model, inputs, strict=False).run_decompositions()
        self.graph = program.graph_module
        signature = program.graph_signature
        self._weights = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        self._taken = [node for node in program.graph.nodes if node.op == "placeholder"]
        self._positions = {name: index for index, name in enumerate(signature.user_inputs)}
        self._written = {
            index: self._positions[signature.user_inputs_to_mutate[name]]
            for index, name in enumerate(_output_names(program))
            if name in signature.user_inputs_to_mutate
        }

    def run(self, made: Placeholders, scope: str, inputs: Sequence[Tensor]) -> tuple[list[Tensor], dict[int, Tensor]]:
        """The graph over `inputs` with the weights of `scope`: outputs, and the new values of the inputs it writes."""
        arguments = []
        for node in self._taken:
            if node.name in self._weights:
                held = node.meta["val"]
                arguments.append(made.value(f"{scope}.{self._weights[node.name]}", "weight", held.shape, held.dtype))
            else:
                arguments.append(inputs[self._positions[node.name]])
        results = _Tracer(self.graph, made).run(*arguments, enable_io_processing=False)
        outputs = [result for index, result in enumerate(results) if index not in self._written]
        return outputs, {position: results[index] for index, position in self._written.items()}


def _output_names(program: torch.export.ExportedProgram) -> list[str]:
    return [spec.arg.name for spec in program.graph_signature.output_specs]


class _Tracer(Interpreter):
    """Runs a graph over placeholders, with our own lowering where `LOWERINGS` has one."""

    def __init__(self, graph: torch.fx.GraphModule, made: Placeholders) -> None:
        super().__init__(graph)
        self.made = made

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        kwargs = {name: value for name, value in kwargs.items() if name not in ("device", "layout", "pin_memory")}
        if target in LOWERINGS:
            return LOWERINGS[target](self.made, *args, **kwargs)
        if not isinstance(target, torch._ops.OpOverload):
            return super().call_function(target, args, kwargs)
        if any(isinstance(value, torch.dtype) and value is torch.int64 for value in kwargs.values()):
            kwargs = {**kwargs, "dtype": torch.int32}
        packet = target.overloadpacket
        if packet.__name__ in ON_TWO_VALUES and len(args) > 1:
            # A Python number becomes a placeholder, and the operator that of two tensors
            tensor = args[0] if isinstance(args[0], Tensor) else args[1]
            pair = [self._tensor(value, tensor) for value in args[:2]]
            if target._overloadname == "Scalar":
                target = packet.Tensor
            args = (*pair, *args[2:])
        return super().call_function(target, args, kwargs)

    def _tensor(self, value: Any, beside: Tensor) -> Any:
        if isinstance(value, Tensor) or not isinstance(value, int | float):
            return value
        wide = isinstance(value, float) and not beside.dtype.is_floating_point
        return self.made.number(value, torch.float32 if wide else beside.dtype)


ON_TWO_VALUES = {"add", "sub", "mul", "div", "eq", "ne", "lt", "le", "gt", "ge", "maximum", "minimum"}
Lowering = TypeVar("Lowering", bound=Callable[..., Any])
LOWERINGS: dict[Any, Callable[..., Any]] = {}


def lowering(target: Any) -> Callable[[Lowering], Lowering]:
    """Register our own lowering of an operator; its first argument is the `Placeholders`."""

    def register(function: Lowering) -> Lowering:
        LOWERINGS[target] = function
        return function

    return register


@lowering(aten._assert_tensor_metadata.default)
def _nothing(made: Placeholders, *args: Any, **kwargs: Any) -> None:
    return None


@lowering(aten.clone.default)
@lowering(aten.alias.default)
@lowering(aten.detach.default)
def _same(made: Placeholders, tensor: Tensor, **kwargs: Any) -> Tensor:
    return tensor


@lowering(aten._to_copy.default)
def _to(made: Placeholders, tensor: Tensor, *, dtype: torch.dtype | None = None, **kwargs: Any) -> Tensor:
    """A conversion; to int64 it is left out, since no index or position needs more than 32 bits."""
    if dtype is None or dtype == tensor.dtype or (dtype is torch.int64 and tensor.dtype is torch.int32):
        return tensor
    result: Tensor = aten._to_copy(tensor, dtype=torch.int32 if dtype is torch.int64 else dtype)
    return result


@lowering(aten.scalar_tensor.default)
@lowering(aten.full.default)
def _full(
    made: Placeholders, first: Any, value: Any = None, *, dtype: torch.dtype | None = None, **kwargs: Any
) -> Tensor:
    shape, number = ((), first) if value is None else (tuple(first), value)
    if dtype is None or dtype is torch.int64:
        dtype = torch.float32 if isinstance(number, float) else torch.int32
    held = made.number(number, dtype)
    return held.expand(shape) if shape else held


@lowering(torch.ops.eagle3.mm_f32.default)
def _mm_f32(made: Placeholders, rows: Tensor, columns: Tensor) -> Tensor:
    """The factors widened; `passes.dots_of_narrow_factors` takes the widening into the product."""
    result: Tensor = aten.mm(rows.float(), columns.float())
    return result


@lowering(torch.ops.eagle3.linear_f32.default)
def _linear_f32(made: Placeholders, rows: Tensor, weight: Tensor) -> Tensor:
    return _mm_f32(made, rows, weight.t())


@lowering(aten.pow.Tensor_Scalar)
def _power(made: Placeholders, base: Tensor, exponent: float) -> Tensor:
    """A square is a product: what PyTorch computes too, and no call of a power function."""
    if exponent != 2:
        raise RuntimeError(f"a power of {exponent} has no lowering")
    return base * base


@lowering(aten.index.Tensor)
def _index(made: Placeholders, table: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """Rows of a table by one index: a plain gather, without the wrap-around of negative indices."""
    index = indices[0]
    if len(indices) != 1 or index is None:
        raise RuntimeError("an index over another dimension than the first has no lowering")
    rows = aten.index_select(table, 0, index.reshape(-1))
    return rows.view(*index.shape, *table.shape[1:])  # type: ignore[no-any-return]


@lowering(aten.index_put.default)
def _index_put(
    made: Placeholders, table: Tensor, indices: Sequence[Tensor | None], rows: Tensor, accumulate: bool = False
) -> Tensor:
    """Rows written into a table: an overwriting scatter, which needs no arithmetic on what is written."""
    index = indices[0]
    if len(indices) != 1 or index is None:
        raise RuntimeError("rows written by another index than the first dimension's have no lowering")
    if accumulate:
        raise RuntimeError("a scatter that adds has no lowering: the device adds integers in float32")
    result: Tensor = aten.index_copy(table, 0, index.long(), rows)
    return result


@lowering(aten.argmax.default)
def _argmax(made: Placeholders, values: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The lowest index of the largest value, int32, by reductions over one value each.

    A reduction over pairs, torch-xla's form, is no operator that the device's compiler is known to take. Where no value
    equals the largest, the index is 0: of nothing but -inf that is PyTorch's, since torch-xla's reduction starts from
    the lowest finite number and gives that; and where there is NaN among them it is a valid one.
    """
    if dim is None or dim % values.dim() != values.dim() - 1:
        raise RuntimeError("an argmax over another dimension than the last has no lowering")
    count = values.shape[-1]
    largest = aten.amax(values, [-1], True)
    entries = aten.arange(count, dtype=torch.int32, device=values.device)
    none, first = made.number(count, torch.int32), made.number(0, torch.int32)
    lowest = aten.amin(torch.where(values == largest, entries, none), [-1], keepdim)
    return torch.where(lowest == none, first, lowest)


@lowering(aten.arange.start_step)
def _arange(
    made: Placeholders, start: int, end: int, step: int = 1, *, dtype: torch.dtype | None = None, **kwargs: Any
) -> Tensor:
    whole = dtype is None or dtype is torch.int64
    device = torch.device("xla:0")
    result: Tensor = aten.arange(start, end, step, dtype=torch.int32 if whole else dtype, device=device)
    return result


@lowering(aten.floor_divide.default)
def _floor_divide(made: Placeholders, numbers: Tensor, divisor: int) -> Tensor:
    """A whole quotient of numbers that are not negative, without a division where the divisor is a power of two."""
    _check_divisor(numbers, divisor)
    if divisor & (divisor - 1) == 0:
        shifted: Tensor = aten.bitwise_right_shift(numbers, made.number(divisor.bit_length() - 1, torch.int32))
        return shifted
    quotient: Tensor = aten.div(numbers, made.number(divisor, torch.int32), rounding_mode="trunc")
    return quotient


def _check_divisor(numbers: Tensor, divisor: Any) -> None:
    if numbers.dtype.is_floating_point or not isinstance(divisor, int) or divisor <= 0:
        raise RuntimeError(f"a whole quotient or remainder of {numbers.dtype} by {divisor} has no lowering")


@lowering(aten.div.Tensor_mode)
def _divide(made: Placeholders, numbers: Tensor, divisor: int, *, rounding_mode: str | None = None) -> Tensor:
    if numbers.dtype.is_floating_point or rounding_mode is None:
        raise RuntimeError("a division with rounding of floating-point numbers has no lowering")
    return _floor_divide(made, numbers, divisor)


@lowering(aten.remainder.Scalar)
def _remainder(made: Placeholders, numbers: Tensor, divisor: int) -> Tensor:
    """A whole remainder of numbers that are not negative."""
    _check_divisor(numbers, divisor)
    if divisor & (divisor - 1) == 0:
        rest: Tensor = aten.bitwise_and(numbers, made.number(divisor - 1, torch.int32))
        return rest
    whole = _floor_divide(made, numbers, divisor)
    return numbers - whole * made.number(divisor, torch.int32)


@lowering(aten.bitwise_and.Tensor)
@lowering(aten.logical_and.default)
def _both(made: Placeholders, first: Tensor, second: Tensor) -> Tensor:
    """Of truths: torch-xla computes a bitwise one in 8-bit integers, which no graph needs."""
    if first.dtype is torch.bool:
        both: Tensor = torch.where(first, second, first)
        return both
    result: Tensor = aten.bitwise_and(first, second)
    return result


@lowering(aten.bitwise_or.Tensor)
@lowering(aten.logical_or.default)
def _either(made: Placeholders, first: Tensor, second: Tensor) -> Tensor:
    if first.dtype is torch.bool:
        either: Tensor = torch.where(first, first, second)
        return either
    result: Tensor = aten.bitwise_or(first, second)
    return result


LOWERINGS[operator.getitem] = lambda made, sequence, index: sequence[index]


def register_collectives() -> None:
    """The two collectives of aot.models.parallel, whose operators exist once that module is imported."""
    import aot.models.parallel  # noqa: F401

    ops = torch.ops.eagle3
    LOWERINGS[ops.all_reduce.default] = _all_reduce
    LOWERINGS[ops.all_gather.default] = _all_gather


def _all_reduce(made: Placeholders, operand: Tensor, ranks: int) -> Tensor:
    return made.collective(operand, "all_reduce", 0, operand.shape)


def _all_gather(made: Placeholders, operand: Tensor, dim: int, ranks: int) -> Tensor:
    dim = dim % operand.dim()
    shape = [size * ranks if axis == dim else size for axis, size in enumerate(operand.shape)]
    return made.collective(operand, "all_gather", dim, shape)
