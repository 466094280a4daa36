"""The Neuron backend: checks first, then weights and KV once per rank, then a loaded NEFF for each unit."""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch import Tensor

from runtime.backends import Run
from runtime.backends.nrt.checks import family_problems, neff_problems
from runtime.backends.nrt.environment import contradictions, wanted
from runtime.backends.nrt.library import Library, open_library
from runtime.backends.nrt.memory import Devices, NrtTensor
from runtime.backends.nrt.unit import LoadedUnit
from runtime.backends.nrt.weights import DeviceWeights
from runtime.bundle.errors import Eagle3Error, ErrorGroup, IntegrityError, UsageError
from runtime.bundle.interface import Parameter
from runtime.bundle.manifest import KVCache, Manifest, Unit
from runtime.bundle.open import Bundle
from runtime.weights import Weights


class NrtBackend:
    """Implements `runtime.backends.Backend` on Neuron devices, through libnrt and nothing else: no framework.

    Attributes:
        devices: what it holds there.
    """

    def __init__(self, bundle: Bundle, weights: Weights) -> None:
        """Reserve the NeuronCores.

        Raises:
            HostError, IntegrityError or an ErrorGroup of them: everything for which the bundle cannot run here.
        """
        self._bundle = bundle
        requires = bundle.manifest.requires
        library = open_library()
        lent = _initialize(library, bundle.manifest)
        self.devices = Devices(library, requires.ranks)
        self._weights = DeviceWeights(self.devices, bundle.manifest, weights)
        self._opened: dict[str, LoadedUnit] = {}
        self._pools: dict[str, NrtTensor] = {}
        self._rank: NrtTensor | None = None
        # Without a call of `close` the cores are given back when the last graph is let go, or the process ends
        self._finalizer = weakref.finalize(self, _close, self.devices, lent)

    def open(self, unit: Unit, scope: str) -> Run:
        if unit.name not in self._opened:
            if scope:
                raise _inconsistent(f"Unit {unit.name} is called with weights of a scope", "", scope)
            if unit.neff is None:
                raise _inconsistent(f"Unit {unit.name} is not compiled", "a NEFF", "none")
            neff = self._bundle.read(unit.neff.path)
            loaded = LoadedUnit(self.devices, unit, neff)
            constants = {constant.name: constant for constant in unit.constants}
            fixed = {}
            for parameter in unit.parameters:
                if parameter.role == "weight":
                    if parameter.name not in constants:
                        raise _inconsistent(f"Unit {unit.name} lists no weight for", parameter.name, "none")
                    fixed[parameter.name] = self._weights.get(constants[parameter.name], parameter)
                elif parameter.role == "rank":
                    fixed[parameter.name] = self._ranks(parameter)
            loaded.bind(fixed)
            self._opened[unit.name] = loaded
        # The closure keeps this object, and with it the memory, for as long as somebody can run the unit
        opened = self._opened[unit.name]
        return lambda inputs: self._run(opened, inputs)

    def _run(self, unit: LoadedUnit, inputs: Sequence[Tensor]) -> list[Tensor]:
        return unit(inputs)

    def _ranks(self, parameter: Parameter) -> NrtTensor:
        """The rank, int32 [1], a value of its own on each."""
        if self._rank is None:
            rank_tensor = self.devices.allocate(parameter.name, parameter.shape, parameter.dtype)
            for rank in range(self.devices.ranks.count):
                rank_tensor.write(rank, torch.full(parameter.shape, rank, dtype=torch.int32))
            self._rank = rank_tensor
        return self._rank

    def pools(self, cache: KVCache, num_blocks: int) -> Mapping[str, Tensor]:
        """The KV pools, zeroed; the same ones at every call.

        Raises:
            UsageError: num_blocks is not the bundle's: a NEFF's shapes are fixed.
            HostError: the devices have no room.
        """
        if num_blocks != cache.num_blocks:
            raise UsageError(
                "The KV pool of a Neuron bundle cannot be resized",
                expected=f"{cache.num_blocks} blocks, for which its graphs were compiled",
                found=str(num_blocks),
                repair="leave kv_blocks out, or build the bundle with another kv_blocks",
            )
        tables = kv_parameters(self._bundle.manifest)
        for group in cache.groups:
            for layer in range(group.first_layer, group.first_layer + group.layers):
                for name in (f"kv.{layer}.k", f"kv.{layer}.v"):
                    if name in tables and name not in self._pools:
                        self._pools[name] = self.devices.allocate(name, tables[name].shape, tables[name].dtype)
        for pool in self._pools.values():
            pool.fill_(0)
        return cast(Mapping[str, Tensor], dict(self._pools))

    def close(self) -> None:
        """Free all memory on the devices and give the cores back."""
        self._finalizer()


def kv_parameters(manifest: Manifest) -> dict[str, Parameter]:
    """The KV pools that the units take, by name; shapes are those of one rank.

    Raises:
        IntegrityError: two units take one pool in different shapes.
    """
    found: dict[str, Parameter] = {}
    for unit in manifest.units:
        for parameter in unit.parameters:
            if parameter.role != "kv":
                continue
            first = found.setdefault(parameter.name, parameter)
            if (first.shape, first.dtype) != (parameter.shape, parameter.dtype):
                raise _inconsistent(
                    f"Units disagree about the pool {parameter.name}",
                    str(list(first.shape)),
                    str(list(parameter.shape)),
                )
    return found


def _inconsistent(what: str, expected: str, found: str) -> IntegrityError:
    return IntegrityError(what, expected=expected, found=found, repair="rebuild the bundle with eagle3-build")


def _initialize(library: Library, manifest: Manifest) -> list[str]:
    """Check all that can be checked and start the runtime; returns the names of the variables set for it."""
    problems = contradictions(manifest.requires)
    lent = wanted(manifest.requires)
    os.environ.update(lent)  # the runtime reads them once, when it starts
    started = False
    try:
        library.init()
        started = True
        problems += neff_problems(manifest, library.version())
        problems += family_problems(manifest.requires.device, library.instance_family())
    except Eagle3Error as error:
        problems.append(error)
    if problems:
        if started:
            library.close()
        _take_back(lent)
        raise problems[0] if len(problems) == 1 else ErrorGroup("This instance cannot run the bundle", problems)
    return list(lent)


def _take_back(lent: Mapping[str, str] | list[str]) -> None:
    for name in lent:
        os.environ.pop(name, None)


def _close(devices: Devices, lent: list[str]) -> None:
    devices.close()
    _take_back(lent)
