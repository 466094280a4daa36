"""A module's entry computation as a graph that can be edited: instructions by id, users, order."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any

from aot.backends.neuron.hlo import proto


class Editor:
    """Edits the entry computation of a module in place; `finish` writes it back in order, without what nothing uses."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.computation = proto.entry(module)
        self.instructions: dict[int, Any] = {i.id: i for i in self.computation.instructions}
        self.root: int = self.computation.root_id
        self._next = 1 + max((i.id for c in module.computations for i in c.instructions), default=0)
        self._next = max(self._next, 1 + max(c.id for c in module.computations))

    def new_id(self) -> int:
        self._next += 1
        return self._next - 1

    def add(self, opcode: str, dtype: str, dimensions: tuple[int, ...], operands: Iterable[int] = ()) -> Any:
        """A new instruction with an array's shape."""
        made = proto.Instruction(id=self.new_id(), opcode=opcode)
        made.name = f"{opcode}.{made.id}"
        proto.set_shape(made.shape, dtype, dimensions)
        made.operand_ids.extend(operands)
        self.instructions[made.id] = made
        return made

    def parameters(self) -> dict[int, Any]:
        """Parameter instructions by their number."""
        return {i.parameter_number: i for i in self.instructions.values() if i.opcode == "parameter"}

    def parameter(self, number: int) -> Any:
        """The parameter of a number.

        Raises:
            ValueError: there is none.
        """
        found = self.parameters().get(number)
        if found is None:
            raise ValueError(f"no parameter {number}, though one was lowered")
        return found

    def replace(self, old: int, new: int) -> None:
        """Let every user of `old` use `new`."""
        for instruction in self.instructions.values():
            if old in instruction.operand_ids and instruction.id != new:
                instruction.operand_ids[:] = [new if operand == old else operand for operand in instruction.operand_ids]
        if self.root == old:
            self.root = new

    def ordered(self, keep: Iterable[int] = ()) -> list[int]:
        """Ids of what the root needs and of `keep`, each behind what it reads; the same graph gives the same order."""
        order: list[int] = []
        state: dict[int, bool] = {}  # False while what it reads is being placed
        stack: list[tuple[int, Iterator[int]]] = []
        for start in (*keep, self.root):
            if start in state:
                continue
            state[start] = False
            stack.append((start, iter(self.instructions[start].operand_ids)))
            while stack:
                current, operands = stack[-1]
                for operand in operands:
                    if operand not in state:
                        state[operand] = False
                        stack.append((operand, iter(self.instructions[operand].operand_ids)))
                        break
                    if not state[operand]:
                        raise ValueError("instructions that read each other in a circle")
                else:
                    state[current] = True
                    order.append(current)
                    stack.pop()
        return order

    def finish(self, keep: Iterable[int] = ()) -> None:
        """Write the edited instructions back, numbered and named anew, and drop computations that nothing calls."""
        order = self.ordered(keep)
        others = self._called(self.instructions[i] for i in order)
        numbers: dict[int, int] = {}
        for other in others:
            _renumber(list(other.instructions), numbers)
            other.root_id = numbers[other.root_id]
            numbers[other.id] = len(numbers) + 1
            other.id = numbers[other.id]
            other.name = f"computation.{other.id}"
        kept = [self.instructions[i] for i in order]
        _renumber(kept, numbers)
        self.computation.root_id = numbers[self.root]
        self.computation.id = len(numbers) + 1
        self.computation.name = "main"
        copies = [proto.Instruction.FromString(i.SerializeToString()) for i in kept]
        del self.computation.instructions[:]
        self.computation.instructions.extend(copies)
        last = proto.Computation.FromString(self.computation.SerializeToString())
        earlier = [proto.Computation.FromString(other.SerializeToString()) for other in others]
        del self.module.computations[:]
        self.module.computations.extend([*earlier, last])
        self.module.entry_computation_id, self.module.entry_computation_name = last.id, last.name
        self.module.id = 0

    def _called(self, instructions: Iterable[Any]) -> list[Any]:
        """The computations that these call, and those that they call in turn, each behind what it calls."""
        by_id = {c.id: c for c in self.module.computations}
        found: dict[int, Any] = {}
        for instruction in instructions:
            for which in instruction.called_computation_ids:
                if which not in found:
                    found |= {c.id: c for c in self._called(by_id[which].instructions)}
                    found[which] = by_id[which]
        return list(found.values())


def _renumber(instructions: list[Any], numbers: dict[int, int]) -> None:
    for instruction in instructions:
        numbers[instruction.id] = len(numbers) + 1
    for instruction in instructions:
        instruction.id = numbers[instruction.id]
        instruction.name = f"{instruction.opcode}.{instruction.id}"
        for field in (instruction.operand_ids, instruction.called_computation_ids, instruction.control_predecessor_ids):
            field[:] = [numbers[old] for old in field]


def set_literal(literal: Any, dtype: str, value: float | int) -> None:
    """Make `literal` one number of `dtype`.

    Raises:
        ValueError: the dtype has no such number, or is none that constants are written in.
    """
    literal.Clear()
    proto.set_shape(literal.shape, dtype, ())
    try:
        if dtype == "float32":
            # protobuf would make infinity of a number that is too large
            literal.f32s.extend(struct.unpack("<f", struct.pack("<f", value)))
        elif dtype == "int32":
            if int(value) != value:
                raise ValueError(f"{value} is no {dtype}")
            literal.s32s.extend(struct.unpack("<i", struct.pack("<i", int(value))))
        elif dtype == "bool":
            literal.preds.append(bool(value))
        elif dtype == "float16":
            literal.f16s = struct.pack("<e", value)
        elif dtype == "bfloat16":
            literal.bf16s = struct.pack("<H", _bfloat16(value))
        else:
            raise ValueError(f"no constants of {dtype}")
    except (OverflowError, struct.error) as error:
        raise ValueError(f"{value} is no {dtype}: {error}") from None


def _bfloat16(value: float) -> int:
    """The 16 bits of the bfloat16 nearest to `value`, ties to even."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    if value != value:
        return 0x7FC0
    rounded: int = bits + 0x7FFF + (bits >> 16 & 1)
    return rounded >> 16 & 0xFFFF
