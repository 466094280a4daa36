"""Graphs of a toy lowered in this process, and run on the simulator beside eager PyTorch."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from aot.backends.neuron.backend import _with_sharding
from aot.backends.neuron.chain import RANK, ChainSpec, chain
from aot.backends.neuron.hlo.lint import findings
from aot.backends.neuron.hlo.passes import Lowered, canonical, noted_from_json
from aot.backends.neuron.lowering import lower
from aot.build.verify_lowered import ScopeWeights
from aot.graphs.geometry import Geometry, over_ranks
from aot.graphs.table import graph_table
from aot.verify.lowered import Reference, compare, content, sim_backend
from runtime.backends.sim import SimBackend
from runtime.bundle.manifest import Unit
from tests.runtime.loop.rig import Rig


def chains(geometry: Geometry) -> dict[str, ChainSpec]:
    """Every graph of a geometry as one unit."""
    table = graph_table(geometry)
    units = {unit.name: unit for unit in table.units}
    sizes = {"block_size": geometry.block_size, "num_blocks": geometry.num_blocks, "ranks": geometry.ranks}
    return {graph.name: chain(graph, units, geometry.dtype, **sizes) for graph in table.graphs}


def lowered(spec: ChainSpec) -> Lowered:
    """A chain in our form, without a finding of the lint."""
    raw, noted = lower(spec)
    facts = noted_from_json(json.loads(json.dumps(dataclasses.asdict(noted))))
    weights = [name for _, name, role in facts.parameters if role == "weight"]
    order = [*weights, *(pool.name for pool in spec.pools), RANK.name, *(value.name for value in spec.inputs)]
    made = canonical(raw, facts, name=spec.name, ranks=spec.ranks, order=order)
    made = dataclasses.replace(made, parameters=tuple(_with_sharding(p, spec.ranks) for p in made.parameters))
    assert findings(made.data, made.parameters, made.results, spec.ranks) == []
    return made


class OnSimulator:
    """The graphs `names` of a toy over `ranks` ranks, on the simulator with the toy's own weights."""

    def __init__(self, rig: Rig, folder: Path, names: list[str], ranks: int = 1) -> None:
        sizes = over_ranks(rig.geometry, ranks) if ranks > 1 else rig.geometry
        held = rig.backend._weights
        self.reference = Reference.make(rig.geometry, held)
        self.units: dict[str, Unit] = {}
        self.modules: dict[str, Lowered] = {}
        for name in names:
            spec = chains(sizes)[name]
            made = self.modules[name] = lowered(spec)
            (folder / f"{name}.hlo").write_bytes(made.data)
            inputs = (*spec.inputs, *spec.pools)
            self.units[name] = Unit(name, f"{name}.hlo", "", (), inputs, spec.outputs, made.parameters, made.results)
        self.sim: SimBackend = sim_backend(
            folder, self.reference, list(self.units.values()), ScopeWeights(held, sizes), ranks
        )

    def compare(self, name: str, seed: int = 0) -> tuple[float, float, bool]:
        """As `aot.verify.lowered.compare`."""
        pools = content(self.reference, seed)
        return compare(self.reference.graphs[name], self.units[name], self.reference, self.sim, pools, seed)
