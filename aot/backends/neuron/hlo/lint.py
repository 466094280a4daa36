"""What is wrong with a module before it reaches the device's compiler: `findings`.

Every rule names a way in which a module fails there, or worse computes something else. Sources: the compiler's error
codes and its list of operators without an integer data path (docs/neuron.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from aot.backends.neuron.hlo import proto
from runtime.bundle.interface import Parameter, Result

# Everything that our graphs need, and nothing else: an operator that is new here is looked at before it is let through
# fmt: off
ALLOWED = frozenset((
    "abs", "add", "all-gather", "all-reduce", "and", "broadcast", "clamp", "compare", "concatenate", "constant",
    "convert", "copy", "divide", "dot", "exponential", "floor", "gather", "get-tuple-element", "iota", "log",
    "logistic", "maximum", "minimum", "multiply", "negate", "not", "or", "pad", "parameter", "power", "reduce",
    "remainder", "reshape", "rsqrt", "scatter", "select", "shift-left", "shift-right-arithmetic",
    "shift-right-logical", "sign", "slice", "sqrt", "subtract", "tanh", "transpose", "tuple", "xor",
))
# fmt: on
_INTEGERS = frozenset(number for name, number in proto.ELEMENT_TYPES.items() if name.startswith("int"))
_KNOWN = frozenset(proto.ELEMENT_TYPES.values())


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: the instruction's name and operator, and a sentence."""

    where: str
    opcode: str
    what: str

    def sentence(self, graph: str) -> str:
        """The finding in words, without a full stop."""
        return f"Graph {graph}, {self.where}: {self.what}"


def findings(data: bytes, parameters: Sequence[Parameter], results: Sequence[Result], ranks: int) -> list[Finding]:
    """Everything that is wrong with a serialized module.

    Args:
        parameters, results: what the manifest will say of it.
        ranks: devices that every replica group must hold.
    """
    module = proto.parse(data)
    found = [finding for computation in module.computations for finding in _computation(module, computation, ranks)]
    return [*found, *_tables(module, parameters, results)]


def _computation(module: Any, computation: Any, ranks: int) -> Iterator[Finding]:
    by_id = {i.id: i for i in computation.instructions}
    called = {c.id: c for c in module.computations}
    for instruction in computation.instructions:
        operands = [by_id[i] for i in instruction.operand_ids]
        for rule in (_operator, _shape, _type):
            if said := rule(instruction):
                yield Finding(instruction.name, instruction.opcode, said)
        if said := _integer_arithmetic(instruction, operands, called):
            yield Finding(instruction.name, instruction.opcode, said)
        if instruction.opcode in ("all-reduce", "all-gather"):
            groups = [list(group.replica_ids) for group in instruction.replica_groups]
            if groups != [list(range(ranks))]:
                said = f"{instruction.opcode} over {groups or 'no explicit group'}, where one group of {ranks} is meant"
                yield Finding(instruction.name, instruction.opcode, said)


def _operator(instruction: Any) -> str:
    if instruction.opcode in ALLOWED:
        return ""
    target = f" {instruction.custom_call_target}" if instruction.custom_call_target else ""
    return f"operator {instruction.opcode}{target} is not among those that are known to compile"


def _shape(instruction: Any) -> str:
    shapes = [instruction.shape, *instruction.shape.tuple_shapes]
    dynamic = any(any(shape.is_dynamic_dimension) for shape in shapes)
    if dynamic or any(size < 0 for shape in shapes for size in shape.dimensions):
        return "a dimension that is not static"
    return ""


def _type(instruction: Any) -> str:
    shapes = list(instruction.shape.tuple_shapes) or [instruction.shape]
    for shape in shapes:
        if shape.element_type == proto.ELEMENT_TYPES["int64"]:
            return "a 64-bit integer, for which the device has no data path"
        if shape.element_type not in _KNOWN:
            return f"values of {proto.dtype_of(shape)}, which no graph of ours has"
    return ""


def _integer_arithmetic(instruction: Any, operands: list[Any], called: dict[int, Any]) -> str:
    """Integer arithmetic that the device does in float32, wrong above 2**24."""
    integers = any(operand.shape.element_type in _INTEGERS for operand in operands[:1])
    if instruction.opcode == "dot" and integers:
        return "a matrix product of integers, which the device computes in float32"
    if instruction.opcode == "all-reduce" and integers:
        return "an all-reduce of integers, which the device computes in float32"
    if instruction.opcode == "scatter":
        combiner = called[instruction.called_computation_ids[0]]
        if any(i.opcode != "parameter" for i in combiner.instructions):
            return "a scatter that computes, where only overwriting is exact"
    return ""


def _tables(module: Any, parameters: Sequence[Parameter], results: Sequence[Result]) -> Iterator[Finding]:
    """Parameters, results and aliases against the manifest's tables."""
    computation = proto.entry(module)
    by_number = {i.parameter_number: i for i in computation.instructions if i.opcode == "parameter"}
    root = next(i for i in computation.instructions if i.id == computation.root_id)
    if sorted(by_number) != list(range(len(parameters))) or len(root.operand_ids) != len(results):
        found = f"{len(by_number)} parameters and {len(root.operand_ids)} results"
        yield Finding("main", "tuple", f"{found}, where {len(parameters)} and {len(results)} are listed")
        return
    by_id = {i.id: i for i in computation.instructions}
    for number, parameter in enumerate(parameters):
        yield from _listed(by_number[number], parameter, {"neff_input_names": parameter.neff_name})
    names = ",".join(result.neff_name for result in results)
    if {a.key: a.value for a in root.frontend_attributes.map} != {"neff_output_names": names}:
        yield Finding(root.name, "tuple", "results whose names are not those listed")
    raw = {i.id for i in by_number.values()}
    aliases = {tuple(e.output_shape_index): e for e in module.input_output_alias.entries}
    for position, (operand, result) in enumerate(zip(root.operand_ids, results, strict=True)):
        if said := _otherwise("result", by_id[operand], result):
            yield Finding(root.name, "tuple", said)
        if operand in raw:
            yield Finding(root.name, "tuple", f"result {result.name} is a parameter, not a copy of one")
        entry = aliases.pop((position,), None)
        if not result.alias_of:
            if entry is not None:
                yield Finding(root.name, "tuple", f"result {result.name} overwrites a parameter")
            continue
        tied = parameters[entry.parameter_number].name if entry is not None else "nothing"
        if entry is None or tied != result.alias_of or entry.kind != proto.MUST_ALIAS:
            yield Finding(root.name, "tuple", f"result {result.name} must alias {result.alias_of}, and aliases {tied}")
    written = {result.alias_of for result in results}
    for parameter in parameters:
        if parameter.role == "kv" and parameter.name not in written:
            yield Finding("main", "parameter", f"pool {parameter.name} is read and never written back")


def _listed(instruction: Any, parameter: Parameter, attributes: dict[str, str]) -> Iterator[Finding]:
    if said := _otherwise("parameter", instruction, parameter):
        yield Finding(instruction.name, "parameter", said)
    if {a.key: a.value for a in instruction.frontend_attributes.map} != attributes:
        yield Finding(instruction.name, "parameter", f"parameter {parameter.name} without its name for the device")


def _otherwise(what: str, instruction: Any, listed: Parameter | Result) -> str:
    """That an instruction has another dtype or shape than the manifest's table lists."""
    dtype, shape = proto.dtype_of(instruction.shape), tuple(instruction.shape.dimensions)
    if (dtype, shape) == (listed.dtype, listed.shape):
        return ""
    return f"{what} {listed.name} is {dtype} {list(shape)}, not {listed.dtype} {list(listed.shape)}"
