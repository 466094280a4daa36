"""Lowered graphs on XLA:CPU beside eager PyTorch: the same bytes that the device's compiler gets.

Two checks. Every graph is lowered a second time with few layers, and that one runs with random weights: it fits any
machine, at the widths, the vocabulary and the ranks of the real one, and it is what tells of a wrong operator. Where
the bundle holds weights small enough, the graphs run with those too, and the whole loop with a scripted draft.

The reference is always the model of one device, however many ranks a graph is for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from aot.build.scopes import Scope
from aot.graphs.geometry import Geometry, Padding
from aot.graphs.table import graph_table
from aot.graphs.units import UnitSpec
from aot.models.fused import FusedChain
from aot.verify.eager import EagerBackend, eager_bundle
from aot.verify.graphs import chain_agrees, kv_errors, row_errors, tokens_agree
from aot.verify.whole_cases import graph_cases
from runtime.backends.sim import SimBackend, SimPool, WeightSource
from runtime.bundle.manifest import Check, Graph, Manifest, Requires, Unit
from runtime.bundle.open import Bundle

# Largest error of a whole graph: norm of the difference over norm of the output. Several layers add to one another
# what a single call of `aot.verify.graphs.TOLERANCE` may differ by, and XLA keeps some sums wider than PyTorch does.
TOLERANCE = {"float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}


@dataclass(frozen=True)
class Reference:
    """A geometry's graphs in eager PyTorch on one device.

    Attributes:
        graphs: by name, as lines of calls.
        manifest: of these graphs; it lies nowhere.
    """

    sizes: Geometry
    graphs: Mapping[str, Graph]
    manifest: Manifest
    eager: EagerBackend
    units: Mapping[str, Unit]

    @classmethod
    def make(cls, sizes: Geometry, weights: Mapping[str, Scope]) -> Reference:
        """The reference for `sizes`, whose weights are those of `aot.build.scopes` for `alone(sizes)`."""
        table = graph_table(sizes)
        manifest = eager_bundle(sizes, table).manifest
        specs: dict[str, UnitSpec] = {unit.name: unit for unit in table.units}
        units = {unit.name: unit for unit in manifest.units}
        return cls(sizes, {g.name: g for g in table.graphs}, manifest, EagerBackend(specs, weights), units)

    def eager_heads(self, pool: str) -> int:
        """KV heads of the pool "kv.N.k" of one device."""
        layer = int(pool.split(".")[1])
        groups = self.manifest.kv_cache.groups
        return next(g.kv_heads for g in groups if g.first_layer <= layer < g.first_layer + g.layers)

    def run(self, graph: Graph, values: Mapping[str, Tensor]) -> tuple[nn.Module, list[Tensor], list[Tensor]]:
        """`graph` over `values`, pools among them, which it updates in place.

        Returns:
            The module of the last call with what it read and what it gave.
        """
        known = dict(values)
        with torch.inference_mode():
            for call in graph.calls:
                read = [known[name] for name in call.inputs]
                made = self.eager.open(self.units[call.unit], call.scope)(read)
                known |= dict(zip(call.outputs, made, strict=True))
        return self.eager.module(call.unit, call.scope), read, made


def alone(sizes: Geometry) -> Geometry:
    """The geometry of one device, without the padding that sharing needs."""
    return replace(sizes, ranks=1, target_padding=Padding(), draft_padding=Padding())


def sim_backend(
    root: Path, reference: Reference, units: Sequence[Unit], weights: WeightSource, ranks: int
) -> SimBackend:
    """A simulator over units whose files lie under `root`."""
    requires = Requires("neuron", "", "", "", (), "", False, ranks=ranks)
    return SimBackend(Bundle(root, replace(reference.manifest, units=tuple(units), requires=requires)), weights)


def content(reference: Reference, seed: int) -> dict[str, Tensor]:
    """Normal noise for every KV pool of one device."""
    generator = torch.Generator().manual_seed(seed)
    pools = reference.eager.pools(reference.manifest.kv_cache, reference.sizes.num_blocks)
    return {name: torch.randn(pool.shape, generator=generator).to(pool.dtype) for name, pool in pools.items()}


def compare(
    graph: Graph, unit: Unit, reference: Reference, sim: SimBackend, pools: Mapping[str, Tensor], seed: int = 0
) -> tuple[float, float, bool]:
    """One graph on the simulator beside eager PyTorch, on the same inputs and KV content, in all cases that
    `aot.verify.whole_cases` makes.

    Returns:
        The largest absolute and relative error over its floating-point outputs and the KV it wrote, and whether all
        tokens agree but for near ties of the dtype.
    """
    generator = torch.Generator().manual_seed(seed)

    def ends(values: Mapping[str, Tensor]) -> tuple[nn.Module, list[Tensor]]:
        head, read, _ = reference.run(graph, {**values, **{name: pool.clone() for name, pool in pools.items()}})
        return head, read

    found = [
        _compare_case(graph, unit, reference, sim, pools, values)
        for values in graph_cases(graph, reference.manifest, ends, generator)
    ]
    return max(case[0] for case in found), max(case[1] for case in found), all(case[2] for case in found)


def _compare_case(
    graph: Graph,
    unit: Unit,
    reference: Reference,
    sim: SimBackend,
    pools: Mapping[str, Tensor],
    values: Mapping[str, Tensor],
) -> tuple[float, float, bool]:
    """As `compare`, on these inputs."""
    used = [spec.name for spec in unit.inputs if spec.name.startswith("kv.")]
    theirs = {name: pools[name].clone() for name in used}
    head, read, want = reference.run(graph, {**values, **theirs})
    ours = {name: _on_ranks(sim, unit, name, pools[name]) for name in used}
    given: dict[str, Any] = {**values, **ours}
    got = sim.open(unit, "")([given[spec.name] for spec in unit.inputs])
    if isinstance(head, FusedChain) and not torch.equal(got[0], want[0]):
        theirs = {name: pools[name].clone() for name in used}
        before = {**values, **theirs}
        with torch.inference_mode():
            tokens = chain_agrees(head, [before[name] for name in graph.calls[-1].inputs], got[0])
    else:
        tokens = tokens_agree(head, read, got, want)
    found = [row_errors(g, w) for g, w in zip(got, want, strict=True) if w.is_floating_point()]
    for name in used:
        whole = (heads_of(pool, sim.ranks) for pool in (pools[name], theirs[name]))
        for old, right, mine in zip(*whole, ours[name].parts(), strict=True):
            found.append(kv_errors(old, mine, right, values["slot_mapping"]))
    absolute, relative = (max((pair[i] for pair in found), default=0.0) for i in (0, 1))
    return absolute, relative, tokens


def _on_ranks(sim: SimBackend, unit: Unit, name: str, pool: Tensor) -> SimPool:
    parameter = next(p for p in unit.parameters if p.name == name)
    made = sim.pool(parameter)
    made.set_parts(heads_of(pool, sim.ranks))
    return made


def heads_of(pool: Tensor, ranks: int) -> list[Tensor]:
    """Each rank's KV heads of a pool [blocks, block_size, kv_heads, head_dim]; fewer heads than ranks are repeated."""
    heads = pool.shape[2]
    each = max(1, heads // ranks)
    first = [rank * heads // ranks for rank in range(ranks)]
    return [pool[:, :, start : start + each].contiguous() for start in first]


def checked(
    names: Sequence[str],
    reference: Reference,
    sim: SimBackend,
    units: Mapping[str, Unit],
    what: str,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, tuple[Check, float]]:
    """Compare graphs one by one; by name the check for the manifest, and the relative error."""
    pools = content(reference, 0)
    found = {}
    # The target's graphs first, so that only one model's weights are on the simulator at a time
    order = sorted(names, key=lambda name: reference.graphs[name].kind.startswith("draft"))
    for index, name in enumerate(order):
        if index and _model(reference, name) != _model(reference, order[index - 1]):
            sim.forget_weights()
        absolute, relative, tokens = compare(reference.graphs[name], units[name], reference, sim, pools)
        sim.forget(units[name])
        found[name] = (Check(f"eager PyTorch, {what}", round(absolute, 9), tokens), relative)
        say(name)
    return found


def _model(reference: Reference, graph: str) -> str:
    """Whose graph it is, "target" or "draft"."""
    return reference.graphs[graph].kind.partition("_")[0]


def with_checks(manifest: Manifest, checks: Mapping[str, Check]) -> Manifest:
    """`manifest` with the checks of its graphs set."""
    graphs = tuple(dataclasses.replace(g, check=checks.get(g.name, g.check)) for g in manifest.graphs)
    return dataclasses.replace(manifest, graphs=graphs)
