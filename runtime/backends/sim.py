"""A Neuron bundle's HLO on the CPU: a simulator for checks and tests, on any machine.

The very bytes that neuronx-cc gets are compiled by XLA for the CPU when a graph is opened, and run with one virtual
device for each rank. It tells whether the lowering is right. It tells nothing of the device: not of its speed, not of
what neuronx-cc makes of the module, not of its rounding. XLA is a compiler, so this is the one file of the runtime that
uses one, and only for a device that somebody asked for by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from runtime.backends import Run
from runtime.backends.device import DeviceTensor, to_host
from runtime.bundle.errors import HostError, IntegrityError, UsageError
from runtime.bundle.interface import Parameter
from runtime.bundle.manifest import KVCache, Unit
from runtime.bundle.open import Bundle

JAX = "0.10.2"
# How many virtual devices a process gets: their number is fixed once XLA has started
MOST_RANKS = 32


class WeightSource(Protocol):
    """Where weights come from: a bundle's files, or a dictionary in a check."""

    def get(self, name: str, layout: str) -> Tensor: ...


class SimBackend:
    """Implements `runtime.backends.Backend` with XLA's CPU client; units are whole graphs."""

    def __init__(self, bundle: Bundle, weights: WeightSource) -> None:
        self._bundle, self._weights = bundle, weights
        self._num_blocks = bundle.manifest.kv_cache.num_blocks
        self._units = bundle.manifest.units
        self.ranks = bundle.manifest.requires.ranks
        self._xla = _Xla(self.ranks)
        self._held: dict[str, Any] = {}
        self._opened: dict[str, Run] = {}

    def open(self, unit: Unit, scope: str) -> Run:
        if unit.name not in self._opened:
            self._opened[unit.name] = self._load(unit)
        return self._opened[unit.name]

    def pools(self, cache: KVCache, num_blocks: int) -> Mapping[str, Tensor]:
        """One pool per layer and half on every rank, zeroed.

        Raises:
            UsageError: another number of blocks than the graphs were lowered for.
        """
        if num_blocks != self._num_blocks:
            raise UsageError(
                "The KV pool of this bundle has a fixed size",
                expected=f"{self._num_blocks} blocks",
                found=str(num_blocks),
                repair="leave kv_blocks out, or build the bundle with another kv_blocks",
            )
        made: dict[str, Any] = {}
        for unit in self._units:
            for parameter in unit.parameters:
                if parameter.role == "kv" and parameter.name not in made:
                    made[parameter.name] = SimPool(self._xla, parameter)
        return made

    def pool(self, parameter: Parameter) -> SimPool:
        """One pool, zeroed."""
        return SimPool(self._xla, parameter)

    def forget(self, unit: Unit) -> None:
        """Let go of an opened unit, and with it of its program's memory."""
        self._opened.pop(unit.name, None)

    def forget_weights(self) -> None:
        """Let go of all weights; units that are open keep theirs."""
        self._held.clear()

    def _load(self, unit: Unit) -> Run:
        program = self._xla.compile(self._bundle.read(unit.artifact), unit.name)
        fixed = {p.name: self._fixed(p, unit) for p in unit.parameters if p.role in ("weight", "rank")}
        positions = {spec.name: index for index, spec in enumerate(unit.inputs)}
        count = len(unit.outputs)

        def run(inputs: Sequence[Tensor]) -> list[Tensor]:
            arguments, pools = [], []
            for parameter in unit.parameters:
                if parameter.name in fixed:
                    arguments.append(fixed[parameter.name])
                    continue
                value: Any = inputs[positions[parameter.name]]
                if parameter.role == "kv":
                    pool = value if isinstance(value, SimPool) else SimPool(self._xla, parameter, value)
                    pools.append((parameter.name, pool, value))
                    arguments.append(pool.array)
                else:
                    host = to_host(value)
                    _check_input(unit, parameter, host)
                    arguments.append(self._xla.same_everywhere(host))
            results = self._xla.execute(program, arguments)
            by_name = {r.name: results[i] for i, r in enumerate(unit.results) if r.alias_of}
            for name, pool, given in pools:
                pool.array = self._xla.joined(by_name[name])
                if given is not pool:
                    given.copy_(pool.host())
            return [_agreed(unit, index, results[index]) for index in range(count)]

        return run

    def _fixed(self, parameter: Parameter, unit: Unit) -> Any:
        """A weight, or the rank, on every rank; made once for all graphs."""
        if parameter.name not in self._held:
            if parameter.role == "rank":
                parts = [torch.tensor([rank], dtype=torch.int32) for rank in range(self.ranks)]
            elif parameter.sharded:
                parts = [self._weights.get(parameter.name, f"shard.{rank}") for rank in range(self.ranks)]
            else:
                parts = [self._weights.get(parameter.name, "plain")] * self.ranks
            for part in parts:
                _check_input(unit, parameter, part)
            self._held[parameter.name] = self._xla.put(parts)
        return self._held[parameter.name]


class SimPool(DeviceTensor):
    """A KV pool on the virtual devices: [num_blocks, block_size, kv_heads of a rank, head_dim]."""

    def __init__(self, xla: _Xla, parameter: Parameter, content: Tensor | None = None) -> None:
        super().__init__(parameter.shape, parameter.dtype)
        self._xla = xla
        zeros = torch.zeros(self.shape, dtype=getattr(torch, self.dtype)) if content is None else content
        self.array: Any = xla.put([zeros] * xla.ranks, owned=True)

    def host(self) -> Tensor:
        return self.parts()[0]

    def parts(self) -> list[Tensor]:
        """Every rank's part."""
        return [to_torch(part) for part in self._xla.parts(self.array)]

    def fill_(self, value: float) -> None:
        filled = torch.full(self.shape, value, dtype=getattr(torch, self.dtype))
        self.array = self._xla.put([filled] * self._xla.ranks, owned=True)

    def set_parts(self, parts: Sequence[Tensor]) -> None:
        """Give every rank its part."""
        self.array = self._xla.put(parts, owned=True)

    def nbytes(self) -> int:
        return self._xla.ranks * to_torch(self._xla.parts(self.array)[0]).nbytes


class _Xla:
    """XLA's CPU client with a virtual device for every rank: arrays in, arrays out."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        try:
            import jax
            from jax.extend.backend import get_backend
            from jaxlib import xla_client
        except ImportError:
            raise HostError(
                "The simulator needs XLA for the CPU",
                expected=f"jax {JAX}",
                found="none",
                repair="pip install 'eagle3-aot[sim]'",
            ) from None
        try:
            jax.config.update("jax_num_cpu_devices", MOST_RANKS)
            jax.config.update("jax_platforms", "cpu")
        except RuntimeError:
            pass  # XLA is running already, with as many devices as it was given then
        self._jax, self._client, self._backend = jax, xla_client, get_backend("cpu")
        devices = self._backend.devices()
        if len(devices) < ranks:
            raise HostError(
                "XLA has too few virtual devices in this process",
                expected=f"{ranks}, one for each rank",
                found=str(len(devices)),
                repair=f"set jax_num_cpu_devices to {MOST_RANKS} before jax is first used, or leave it alone",
            )
        self._devices = devices[:ranks]
        mesh = jax.sharding.Mesh(self._devices, ("rank",))
        self._sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())

    def compile(self, module: bytes, name: str) -> Any:
        """The program of a HloModuleProto; `name` is its unit's, for the error.

        Raises:
            IntegrityError: XLA does not take it.
        """
        client = self._client
        options = client.CompileOptions()
        options.num_replicas, options.num_partitions = self.ranks, 1
        import numpy

        ids = numpy.arange(self.ranks, dtype=numpy.int32).reshape(self.ranks, 1)
        options.device_assignment = client.DeviceAssignment.create(ids)
        try:
            program = client._xla.mlir.hlo_to_stablehlo(module)
            return self._backend.compile_and_load(program, client.DeviceList(tuple(self._devices)), options)
        except (ValueError, RuntimeError) as error:
            raise IntegrityError(
                f"The graph of unit {name} is no module that XLA can run",
                expected="a valid HloModuleProto",
                found=str(error).partition("\n")[0],
                repair="rebuild the bundle with eagle3-build",
            ) from None

    def put(self, parts: Sequence[Tensor], *, owned: bool = False) -> Any:
        """One array whose part on rank r is `parts[r]`; `owned` where a program will write to its memory."""
        put = self._jax.device_put
        arrays = [put(to_numpy(p), d, may_alias=not owned) for p, d in zip(parts, self._devices, strict=True)]
        return self.joined(arrays)

    def same_everywhere(self, value: Tensor) -> Any:
        return self.put([value] * self.ranks)

    def joined(self, arrays: Sequence[Any]) -> Any:
        # Parts may differ, though the sharding calls them copies of one another: nothing looks at more than its own
        return self._jax.make_array_from_single_device_arrays(arrays[0].shape, self._sharding, list(arrays))

    def parts(self, array: Any) -> list[Any]:
        """Each rank's part of an array."""
        return [shard.data for shard in sorted(array.addressable_shards, key=lambda shard: shard.device.id)]

    def execute(self, program: Any, arguments: Sequence[Any]) -> list[list[Any]]:
        """For each result its part on every rank."""
        made = program.execute_sharded(list(arguments))
        results: list[list[Any]] = made.disassemble_into_single_device_arrays()
        return results


def _check_input(unit: Unit, parameter: Parameter, value: Tensor) -> None:
    dtype = str(value.dtype).removeprefix("torch.")
    if tuple(value.shape) != parameter.shape or dtype != parameter.dtype:
        raise IntegrityError(
            f"Graph {unit.name} was given a wrong {parameter.name}",
            expected=f"{parameter.dtype} {list(parameter.shape)}",
            found=f"{dtype} {list(value.shape)}",
            repair="rebuild the bundle with eagle3-build",
        )


def _agreed(unit: Unit, index: int, parts: Sequence[Any]) -> Tensor:
    """A result, which must have the same bits on all ranks: none may hand on a partial sum."""
    first, *others = [to_torch(part) for part in parts]
    if any(not torch.equal(_bits(first), _bits(other)) for other in others):
        raise IntegrityError(
            f"The ranks of graph {unit.name} disagree on {unit.outputs[index].name}",
            expected="the same value on every rank",
            found="different ones",
            repair="this is a defect of the builder; please report it with build.json",
        )
    return first


def _bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().flatten().view(torch.uint8)


def to_numpy(tensor: Tensor) -> Any:
    """`tensor` as a NumPy array, bfloat16 as ml_dtypes has it."""
    tensor = tensor.detach().contiguous()
    if tensor.dtype is torch.bfloat16:
        import ml_dtypes

        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def to_torch(array: Any) -> Tensor:
    """A device's array as a tensor of its own."""
    import numpy

    host = numpy.asarray(array)
    if host.dtype.name == "bfloat16":
        return torch.from_numpy(host.view(numpy.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(host.copy())
