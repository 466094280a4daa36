"""The last third of the Neuron path with stand-ins: NEFFs of the stand-in compiler on the stand-in runtime.

A stand-in's NEFF holds the HLO it was made of. The stand-in runtime calls back for each rank; the last rank to come
runs that HLO on the simulator for all of them.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from runtime.backends.sim import _Xla, to_torch
from runtime.bundle.manifest import Manifest, Unit
from tests.aot.backends.neuron.stand_in import hlo_of
from tests.runtime.backends.nrt.stand_in import StandIn


class Simulated:
    """What a unit computes on the stand-in runtime: its NEFF's HLO."""

    def __init__(self, bundle: Path, unit: Unit, ranks: int, scratch: Path) -> None:
        assert unit.neff is not None
        file = scratch / f"{unit.name}.hlo"
        file.write_bytes(hlo_of((bundle / unit.neff.path).read_bytes()))
        self._unit, self._ranks, self._xla = unit, ranks, _Xla(ranks)
        self._program = self._xla.compile(file.read_bytes(), file.name)
        self._barrier = threading.Barrier(ranks, action=self._run)
        self._taken: dict[int, Mapping[str, Tensor]] = {}
        self._made: list[list[Tensor]] = []

    def __call__(self, rank: int, taken: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
        self._taken[rank] = taken
        self._barrier.wait(timeout=60)
        for result, parts in zip(self._unit.results, self._made, strict=True):
            given[result.name].copy_(parts[rank])

    def _run(self) -> None:
        parameters = self._unit.parameters
        read = [[self._taken[rank][p.name].clone() for rank in range(self._ranks)] for p in parameters]
        arguments = [self._xla.put(parts, owned=True) for parts in read]
        self._made = [[to_torch(part) for part in parts] for parts in self._xla.execute(self._program, arguments)]


def simulate(stand_in: StandIn, bundle: Path, manifest: Manifest, scratch: Path) -> None:
    """Let the stand-in runtime compute every unit of `bundle`."""
    for unit in manifest.units:
        stand_in.add(unit, Simulated(bundle, unit, manifest.requires.ranks, scratch))


def tokens(count: int, seed: int, vocab: int = 256) -> tuple[int, ...]:
    """A prompt that no model has seen."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(0, vocab, (count,), generator=generator).tolist())
