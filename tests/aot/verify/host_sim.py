"""A stand-in for the simulator: whole graphs as one unit, in eager PyTorch, with pools that look like a device's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from aot.verify.lowered import Reference
from runtime.backends import Backend, Run
from runtime.backends.device import DeviceTensor
from runtime.backends.sim import SimBackend
from runtime.bundle.interface import Parameter
from runtime.bundle.manifest import TensorSpec, Unit
from runtime.graph import LoadedGraph


class HostPool(DeviceTensor):
    """A pool in host memory behind a device's interface; one rank."""

    def __init__(self, tensor: Tensor) -> None:
        super().__init__(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
        self.tensor = tensor

    def host(self) -> Tensor:
        return self.tensor.clone()

    def parts(self) -> list[Tensor]:
        return [self.host()]

    def set_parts(self, parts: Sequence[Tensor]) -> None:
        self.tensor.copy_(parts[0])

    def fill_(self, value: float) -> None:
        self.tensor.fill_(value)

    def nbytes(self) -> int:
        return self.tensor.nbytes


class HostSim:
    """What `aot.verify.lowered` wants of a `SimBackend`, over a backend of single units."""

    ranks = 1

    def __init__(self, reference: Reference, backend: Backend) -> None:
        self._reference, self._backend = reference, backend
        self.units = {name: self._unit(name) for name in reference.graphs}

    def as_sim(self) -> SimBackend:
        return cast(SimBackend, self)

    def _unit(self, name: str) -> Unit:
        graph = self._reference.graphs[name]
        pools = allocated(self._reference)
        used = dict.fromkeys(value for call in graph.calls for value in call.inputs if value in pools)
        specs = [TensorSpec(pool, dtype_name(pools[pool]), tuple(pools[pool].shape)) for pool in used]
        parameters = tuple(Parameter(spec.name, spec.name, "kv", spec.dtype, spec.shape) for spec in specs)
        return Unit(name, "", "", (), (*graph.inputs, *specs), graph.outputs, parameters)

    def pool(self, parameter: Parameter) -> HostPool:
        return HostPool(torch.zeros(parameter.shape, dtype=getattr(torch, parameter.dtype)))

    def open(self, unit: Unit, scope: str) -> Run:
        graph, reference = self._reference.graphs[unit.name], self._reference

        def run(inputs: Sequence[Any]) -> list[Tensor]:
            given = {spec.name: value for spec, value in zip(unit.inputs, inputs, strict=True)}
            pools: Mapping[str, Tensor] = {n: v.tensor for n, v in given.items() if isinstance(v, HostPool)}
            loaded = LoadedGraph(graph, reference.units, self._backend, pools)
            with torch.inference_mode():
                return loaded({name: value for name, value in given.items() if name not in pools})

        return run

    def forget(self, unit: Unit) -> None:
        return

    def forget_weights(self) -> None:
        return


def allocated(reference: Reference) -> Mapping[str, Tensor]:
    return reference.eager.pools(reference.manifest.kv_cache, reference.sizes.num_blocks)


def dtype_name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
