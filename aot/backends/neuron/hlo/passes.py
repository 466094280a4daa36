"""From torch-xla's module to the one that neuronx-cc and the runtime get: `canonical`.

In this order: Python numbers become constants, collectives are put in, 64-bit integers become 32-bit ones, index tables
become iotas, multiplications by one go, products read narrow factors as they are, results that are parameters are
copied; then parameters get our order and names and the KV pools must alias their results.

Sources: parameters' and results' names and the copy follow what Neuron's own front ends write (docs/neuron.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aot.backends.neuron.hlo import proto
from aot.backends.neuron.hlo.module import Editor, set_literal
from runtime.bundle.interface import Parameter, Result

ALIASED_SUFFIX = ".must_alias_input"
# The order of parameters in a module
ROLES = ("weight", "kv", "rank", "input")


@dataclass(frozen=True)
class Noted:
    """What the lowering wrote down of a raw module; see `aot.backends.neuron.lowering.Noted`."""

    parameters: Sequence[tuple[int, str, str]]
    scalars: Sequence[tuple[int, float | int, str]]
    collectives: Sequence[tuple[int, str, int]]
    results: Sequence[str]


@dataclass(frozen=True)
class Lowered:
    """A module in our form, and the tables of what it takes and gives."""

    data: bytes
    parameters: tuple[Parameter, ...]
    results: tuple[Result, ...]


def canonical(raw: bytes, noted: Noted, *, name: str, ranks: int, order: Sequence[str]) -> Lowered:
    """The module `raw` in our form.

    Args:
        name: of the graph; it becomes the module's.
        ranks: devices in the collectives' one group.
        order: names of parameters, weights, pools, rank and inputs in the order wanted; those that the module does not
            use are left out of it.

    Raises:
        ValueError: the module is not what `noted` says.
    """
    module = proto.parse(raw)
    editor = Editor(module)
    inline_scalars(editor, noted.scalars)
    splice_collectives(editor, noted, ranks)
    narrow_integers(editor)
    iotas(editor)
    drop_ones(editor)
    dots_of_narrow_factors(editor)
    copy_parameters_in_results(editor)
    return _bind(editor, noted, name, order)


def inline_scalars(editor: Editor, scalars: Sequence[tuple[int, float | int, str]]) -> None:
    """Give the parameters that stand for Python numbers their values."""
    parameters = {number: editor.parameter(number) for number, *_ in scalars}
    for number, value, dtype in scalars:
        instruction = parameters[number]
        instruction.opcode = "constant"
        instruction.parameter_number = 0
        set_literal(instruction.literal, dtype, value)


def splice_collectives(editor: Editor, noted: Noted, ranks: int) -> None:
    """Put the collectives where lowering left a result for their operand and a parameter for what they give."""
    parameters = {number: editor.parameter(number) for number, *_ in noted.collectives}
    root = editor.instructions[editor.root]
    wanted = len(noted.results) + len(noted.collectives)
    if root.opcode != "tuple" or len(root.operand_ids) != wanted:
        raise ValueError(f"a module with {len(root.operand_ids)} results where {wanted} were lowered")
    adders: dict[str, int] = {}
    for index, (number, kind, dimension) in enumerate(noted.collectives):
        # Read now: `replace` may have put an earlier collective there
        stand_in, operand = parameters[number], root.operand_ids[len(noted.results) + index]
        dtype = proto.dtype_of(stand_in.shape)
        opcode = kind.replace("_", "-")
        made = editor.add(opcode, dtype, tuple(stand_in.shape.dimensions), [operand])
        group = made.replica_groups.add()
        group.replica_ids.extend(range(ranks))
        if kind == "all_reduce":
            if dtype not in adders:
                adders[dtype] = _adder(editor, dtype)
            made.called_computation_ids.append(adders[dtype])
        else:
            made.dimensions.append(dimension)
        editor.replace(stand_in.id, made.id)
    results = list(root.operand_ids)[: len(noted.results)]
    root.operand_ids[:] = results


def _adder(editor: Editor, dtype: str) -> int:
    """A computation that adds two numbers, for an all-reduce."""
    computation = editor.module.computations.add(id=editor.new_id())
    computation.name = f"add.{computation.id}"
    ids = [editor.new_id() for _ in range(3)]
    for number in range(2):
        parameter = computation.instructions.add(id=ids[number], opcode="parameter", parameter_number=number)
        parameter.name = f"parameter.{ids[number]}"
        proto.set_shape(parameter.shape, dtype, ())
        proto.set_shape(computation.program_shape.parameters.add(), dtype, ())
        computation.program_shape.parameter_names.append(f"x{number}")
    total = computation.instructions.add(id=ids[2], opcode="add", name=f"add.{ids[2]}", operand_ids=ids[:2])
    proto.set_shape(total.shape, dtype, ())
    proto.set_shape(computation.program_shape.result, dtype, ())
    computation.root_id = ids[2]
    made: int = computation.id
    return made


def narrow_integers(editor: Editor) -> None:
    """Make every 64-bit integer a 32-bit one.

    No id, position, slot or count needs more, and the device has no 64-bit data path; torch-xla makes some where
    PyTorch's operators promise int64.
    """
    wide, narrow = proto.ELEMENT_TYPES["int64"], proto.ELEMENT_TYPES["int32"]

    def retype(shape: Any) -> None:
        if shape.element_type == wide:
            shape.element_type = narrow
        for part in shape.tuple_shapes:
            retype(part)

    entry = list(editor.instructions.values())
    others = [i for c in editor.module.computations if c.id != editor.computation.id for i in c.instructions]
    for computation in editor.module.computations:
        for shape in (*computation.program_shape.parameters, computation.program_shape.result):
            retype(shape)
    for instruction in (*entry, *others):
        retype(instruction.shape)
        literal = instruction.literal
        if instruction.opcode == "constant" and literal.shape.element_type == wide:
            if any(not -(1 << 31) <= number < 1 << 31 for number in literal.s64s):
                raise ValueError(f"constant {instruction.name} does not fit 32 bits")
            retype(literal.shape)
            literal.s32s.extend(literal.s64s)
            del literal.s64s[:]
    for instruction in entry:
        if instruction.opcode == "convert":
            (operand,) = instruction.operand_ids
            if editor.instructions[operand].shape.element_type == instruction.shape.element_type:
                editor.replace(instruction.id, operand)


def iotas(editor: Editor) -> None:
    """Make tables 0, 1, 2, ... what the device counts itself, not data of the program."""
    for instruction in editor.instructions.values():
        numbers = instruction.literal.s32s
        is_table = instruction.opcode == "constant" and len(instruction.shape.dimensions) == 1 and len(numbers) > 1
        if is_table and list(numbers) == list(range(len(numbers))):
            instruction.opcode = "iota"
            instruction.ClearField("literal")
            instruction.ClearField("dimensions")
            instruction.dimensions.append(0)


def drop_ones(editor: Editor) -> None:
    """Leave out multiplications by the constant one, which torch-xla makes of every sum's scale: exact in any dtype."""
    for instruction in list(editor.instructions.values()):
        if instruction.opcode != "multiply":
            continue
        first, second = instruction.operand_ids
        for kept, other in ((first, second), (second, first)):
            same_shape = editor.instructions[kept].shape.dimensions == instruction.shape.dimensions
            if same_shape and _is_one(editor, other):
                editor.replace(instruction.id, kept)
                break


def _is_one(editor: Editor, which: int) -> bool:
    instruction = editor.instructions[which]
    while instruction.opcode in ("broadcast", "reshape", "convert"):
        instruction = editor.instructions[instruction.operand_ids[0]]
    if instruction.opcode != "constant":
        return False
    literal = instruction.literal
    if literal.bf16s or literal.f16s:
        ones = (b"\x80\x3f", b"\x00\x3c")
        return bool(literal.bf16s == ones[0] or literal.f16s == ones[1])
    return list(literal.f32s) == [1.0] or list(literal.s32s) == [1]


def dots_of_narrow_factors(editor: Editor) -> None:
    """Let a float32 product of widened factors read the narrow ones: the same numbers, and no widened weight."""
    for instruction in editor.instructions.values():
        if instruction.opcode != "dot" or proto.dtype_of(instruction.shape) != "float32":
            continue
        factors = [editor.instructions[operand] for operand in instruction.operand_ids]
        if any(factor.opcode != "convert" for factor in factors):
            continue
        narrow = [factor.operand_ids[0] for factor in factors]
        dtypes = {proto.dtype_of(editor.instructions[which].shape) for which in narrow}
        if len(dtypes) == 1 and dtypes <= {"bfloat16", "float16"}:
            instruction.operand_ids[:] = narrow


def copy_parameters_in_results(editor: Editor) -> None:
    """Copy a parameter that is itself a result: the device's compiler takes none that are."""
    root = editor.instructions[editor.root]
    for position, operand in enumerate(list(root.operand_ids)):
        source = editor.instructions[operand]
        if source.opcode == "parameter":
            made = editor.add("copy", proto.dtype_of(source.shape), tuple(source.shape.dimensions), [operand])
            root.operand_ids[position] = made.id


def _bind(editor: Editor, noted: Noted, name: str, order: Sequence[str]) -> Lowered:
    """Number and name parameters and results, tie pools to their results, and write the module."""
    module, root = editor.module, editor.instructions[editor.root]
    known = {parameter: (number, role) for number, parameter, role in noted.parameters}
    used, instructions = set(editor.ordered()), editor.parameters()
    for number, _ in known.values():
        editor.parameter(number)
    pools = {pool for pool, (_, role) in known.items() if role == "kv"}
    live = [p for p in order if p in known and instructions[known[p][0]].id in used]
    strangers = {i.name for i in instructions.values() if i.id in used} - {instructions[known[p][0]].name for p in live}
    if strangers:
        raise ValueError(f"parameters of unknown value: {', '.join(sorted(strangers))}")
    live.sort(key=lambda p: ROLES.index(known[p][1]))
    parameters: list[Parameter] = []
    written = [result for result in noted.results if result in pools]
    for position, parameter in enumerate(live):
        instruction = instructions[known[parameter][0]]
        neff_name = parameter + (ALIASED_SUFFIX if parameter in written else "")
        instruction.parameter_number = position
        _attribute(instruction, "neff_input_names", neff_name)
        shape = tuple(instruction.shape.dimensions)
        parameters.append(
            Parameter(parameter, neff_name, known[parameter][1], proto.dtype_of(instruction.shape), shape)  # type: ignore[arg-type]
        )
    results: list[Result] = []
    shapes = [editor.instructions[operand].shape for operand in root.operand_ids]
    del root.shape.tuple_shapes[:]
    del module.input_output_alias.entries[:]
    for position, (result, shape) in enumerate(zip(noted.results, shapes, strict=True)):
        root.shape.tuple_shapes.add().CopyFrom(shape)
        alias = result if result in pools else ""
        results.append(Result(result, result, proto.dtype_of(shape), tuple(shape.dimensions), alias))
        if alias:
            tied = module.input_output_alias.entries.add(parameter_number=live.index(alias), kind=proto.MUST_ALIAS)
            tied.output_shape_index.append(position)
    _attribute(root, "neff_output_names", ",".join(result.neff_name for result in results))
    keep = [instructions[known[parameter][0]].id for parameter in live]
    signature = editor.computation.program_shape
    signature.Clear()
    for parameter, which in zip(live, keep, strict=True):
        signature.parameters.add().CopyFrom(editor.instructions[which].shape)
        signature.parameter_names.append(parameter)
    signature.result.CopyFrom(root.shape)
    for computation in module.computations:
        for instruction in computation.instructions:
            instruction.ClearField("metadata")  # source files and lines of the machine that lowered it
    for instruction in editor.instructions.values():
        instruction.ClearField("metadata")
    module.ClearField("stack_frame_index")
    module.name = name
    module.host_program_shape.CopyFrom(signature)
    editor.finish(keep)
    return Lowered(proto.serialize(module), tuple(parameters), tuple(results))


def _attribute(instruction: Any, key: str, value: str) -> None:
    instruction.frontend_attributes.map.add(key=key, value=value)


def noted_from_json(data: Mapping[str, Any]) -> Noted:
    """What a lowering worker wrote."""
    return Noted(
        [(number, name, role) for number, name, role in data["parameters"]],
        [(number, value, dtype) for number, value, dtype in data["scalars"]],
        [(number, kind, dimension) for number, kind, dimension in data["collectives"]],
        list(data["results"]),
    )
