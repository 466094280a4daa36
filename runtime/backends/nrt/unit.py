"""A unit on the devices: its NEFF loaded on every rank, its tensors bound by name, one call a pass.

Weights, pools and the rank are bound once. An input of the loop is either a host tensor, which is written to every
rank, or a device tensor that another pass left there, which is bound in place of this unit's own and never moves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar, cast

from torch import Tensor

from runtime.backends.device import DeviceTensor, to_host
from runtime.backends.nrt.memory import Devices, NrtTensor
from runtime.backends.nrt.tables import spellings
from runtime.bundle.errors import IntegrityError
from runtime.bundle.interface import Parameter, Result
from runtime.bundle.manifest import Unit
from runtime.weights import dtype_of

Entry = TypeVar("Entry", Parameter, Result)


class LoadedUnit:
    """Implements `runtime.backends.Run` for one unit."""

    def __init__(self, devices: Devices, unit: Unit, neff: bytes) -> None:
        """Load the NEFF and compare it with the unit's tables; `bind` is still to be called."""
        self._devices, self._unit = devices, unit
        self._subjects = [f"unit {unit.name}, rank {rank}" for rank in range(devices.ranks.count)]
        self._models = devices.load(neff, unit.name)
        # Every rank loaded the same bytes, so the first speaks for all
        infos = devices.library.tensor_infos(self._models[0], self._subjects[0])
        self._spelling = spellings(unit, infos)
        self._input_sets = [devices.new_set(subject) for subject in self._subjects]
        self._output_sets = [devices.new_set(subject) for subject in self._subjects]
        self._bound: dict[str, NrtTensor] = {}
        self._aliases: dict[str, list[Result]] = {}
        for result in unit.results:
            if result.alias_of:
                self._aliases.setdefault(result.alias_of, []).append(result)

    def bind(self, fixed: Mapping[str, NrtTensor]) -> None:
        """Bind for good what no call changes: weights and rank by parameter name; allocate inputs and outputs.

        Raises:
            IntegrityError: the unit's tables do not fit together.
        """
        parameters = {parameter.name: parameter for parameter in self._unit.parameters}
        for parameter in self._unit.parameters:
            if parameter.role in ("weight", "rank"):
                self._put_input(parameter, fixed[parameter.name])
        self._taken = [self._known(parameters, value.name) for value in self._unit.inputs]
        # KV comes from outside with each call; an input has memory of its own for when the host hands it in
        self._own = {
            parameter.name: self._allocate(parameter) for parameter in self._taken if parameter.role == "input"
        }
        results = {result.name: result for result in self._unit.results}
        self._given = [self._known(results, value.name) for value in self._unit.outputs]
        self._made = [self._allocate(result) for result in self._given]
        self._spare: list[NrtTensor | None] = [None] * len(self._given)
        for result, tensor in zip(self._given, self._made, strict=True):
            self._put_output(result, tensor)

    def _known(self, table: Mapping[str, Entry], name: str) -> Entry:
        if name not in table:
            raise IntegrityError(
                f"Unit {self._unit.name} does not list {name} among its parameters or results",
                repair="rebuild the bundle with eagle3-build",
            )
        return table[name]

    def _allocate(self, entry: Parameter | Result) -> NrtTensor:
        return self._devices.allocate(f"{self._unit.name}.{entry.name}", entry.shape, entry.dtype)

    def _put_input(self, parameter: Parameter, tensor: NrtTensor) -> None:
        if self._bound.get(parameter.name) is tensor:
            return
        self._put(self._input_sets, parameter.neff_name, tensor)
        for alias in self._aliases.get(parameter.name, ()):
            self._put(self._output_sets, alias.neff_name, tensor)
        self._bound[parameter.name] = tensor

    def _put_output(self, result: Result, tensor: NrtTensor) -> None:
        self._put(self._output_sets, result.neff_name, tensor)

    def _put(self, sets: Sequence[int], neff_name: str, tensor: NrtTensor) -> None:
        name = self._spelling[neff_name]
        for rank, subject in enumerate(self._subjects):
            self._devices.library.put(sets[rank], name, tensor.handles[rank], subject)

    def __call__(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """One pass: host tensors or device tensors in, device tensors out; the unit's next pass overwrites them."""
        written: list[tuple[NrtTensor, Tensor]] = []
        for parameter, value in zip(self._taken, inputs, strict=True):
            if self._on_devices(parameter, value):
                self._put_input(parameter, cast(NrtTensor, value))
                continue
            own = self._own.get(parameter.name)
            if own is None:
                raise IntegrityError(
                    f"Unit {self._unit.name} was handed a pool that is not its own",
                    expected=f"{parameter.name}, {parameter.dtype} {list(parameter.shape)}, of this bundle",
                    found=f"{value.dtype} {list(value.shape)}",
                    repair="rebuild the bundle with eagle3-build",
                )
            written.append((own, self._fitted(parameter, value)))
            self._put_input(parameter, own)
        self._step_aside(inputs)

        def one(rank: int) -> None:
            for tensor, value in written:
                tensor.write(rank, value)
            self._devices.library.execute(
                self._models[rank], self._input_sets[rank], self._output_sets[rank], self._subjects[rank]
            )

        self._devices.ranks.run(one)
        return cast(list[Tensor], list(self._made))

    def _on_devices(self, parameter: Parameter, value: Tensor | DeviceTensor) -> bool:
        """Whether `value` can be bound as it is: made here, and of the shape and dtype that the unit takes."""
        return (
            isinstance(value, NrtTensor)
            and value.devices is self._devices
            and (value.shape, value.dtype) == (parameter.shape, parameter.dtype)
        )

    def _fitted(self, parameter: Parameter, value: Tensor | DeviceTensor) -> Tensor:
        tensor = to_host(value).to(dtype_of(parameter.dtype))
        if tuple(tensor.shape) != parameter.shape:
            raise IntegrityError(
                f"Unit {self._unit.name} was handed a {parameter.name} of another shape",
                expected=str(list(parameter.shape)),
                found=str(list(tensor.shape)),
                repair="rebuild the bundle with eagle3-build",
            )
        return tensor.contiguous()

    def _step_aside(self, inputs: Sequence[Tensor]) -> None:
        """Write no result over an input of the same pass: a recurrent unit reads what it last made."""
        read = {id(value) for value in inputs}
        for index, result in enumerate(self._given):
            if id(self._made[index]) in read:
                spare = self._spare[index] or self._allocate(result)
                self._spare[index], self._made[index] = self._made[index], spare
                self._put_output(result, spare)
