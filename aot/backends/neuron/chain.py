"""The unit of this backend: a whole graph, the straight line of its calls with every dimension a number.

Other backends compile a layer once and call it many times. A device program is one NEFF, so here the calls of a graph
are joined before anything is compiled: all weights become parameters of one module, under their full names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from aot.graphs.units import CONTEXT, POOL, UnitSpec
from aot.graphs.units import RANK as RANK_NAME
from runtime.bundle.manifest import Call, Graph, GraphKind, TensorSpec

RANK = TensorSpec(RANK_NAME, "int32", (1,))


@dataclass(frozen=True)
class ChainSpec:
    """One graph as a unit; it crosses process borders as JSON and its text is part of the cache key.

    Attributes:
        ranks: devices that share the model; the collectives inside have one group of all of them.
        units: the modules that the calls run, static.
        pools: the KV pools that the calls read or write, by name, in the shape that one rank holds.
        check: the same graph with few layers, which is lowered beside it and run on the CPU; None in that one itself.
    """

    name: str
    kind: GraphKind
    dtype: str
    ranks: int
    units: tuple[UnitSpec, ...]
    calls: tuple[Call, ...]
    pools: tuple[TensorSpec, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    check: ChainSpec | None = None


def chain(
    graph: Graph, units: Mapping[str, UnitSpec], dtype: str, *, block_size: int, num_blocks: int, ranks: int
) -> ChainSpec:
    """`graph` as one unit, its block table as wide as its context and its pools as large as the bundle's."""
    sizes = {CONTEXT: graph.context // block_size, POOL: num_blocks}
    used = {call.unit: static_unit(units[call.unit], sizes) for call in graph.calls}
    pools: dict[str, TensorSpec] = {}
    for call in graph.calls:
        for value, spec in zip(call.inputs, used[call.unit].inputs, strict=True):
            if value.startswith("kv."):
                pools[value] = TensorSpec(value, spec.dtype, spec.shape)
    return ChainSpec(
        name=graph.name,
        kind=graph.kind,
        dtype=dtype,
        ranks=ranks,
        units=tuple(used.values()),
        calls=graph.calls,
        pools=tuple(sorted(pools.values(), key=lambda pool: _pool_order(pool.name))),
        inputs=static(graph.inputs, sizes),
        outputs=static(graph.outputs, sizes),
    )


def static_unit(unit: UnitSpec, sizes: Mapping[str, int]) -> UnitSpec:
    """`unit` with its dynamic dimensions set."""
    return replace(unit, inputs=static(unit.inputs, sizes), outputs=static(unit.outputs, sizes))


def static(specs: tuple[TensorSpec, ...], sizes: Mapping[str, int]) -> tuple[TensorSpec, ...]:
    """`specs` with every named dimension replaced by its number."""
    return tuple(
        replace(spec, shape=tuple(sizes[dim] if isinstance(dim, str) else dim for dim in spec.shape)) for spec in specs
    )


def _pool_order(name: str) -> tuple[int, str]:
    """kv.10.k comes after kv.9.v."""
    _, layer, half = name.split(".")
    return int(layer), half
