"""A graph's calls: what each hands to its unit is what the unit takes, and the line of calls is that of its kind.

Shapes alone would let a layer read another layer's KV, or a head another layer's state. So a graph of many calls is
compared with the line that its kind has: embedding, layers in order, head; or one call of the draft.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from runtime.bundle.contract import PAGING, asked, shown
from runtime.bundle.errors import Eagle3Error
from runtime.bundle.manifest import Call, Graph, Manifest, TensorSpec, Unit
from runtime.bundle.sizes import problem

RANK = TensorSpec("rank", "int32", (1,))


@dataclass(frozen=True)
class Step:
    """A call as its graph's kind has it. The unit's name begins so; a layer's may end in its window, ".w512"."""

    unit: str
    call: Call


def call_problems(manifest: Manifest) -> Iterator[Eagle3Error]:
    """Every call that hands a unit something else than it takes, or stands where its kind of graph has another."""
    units = {unit.name: unit for unit in manifest.units}
    pools = kv_pools(manifest)
    for graph in manifest.graphs:
        yield from _flow_problems(graph, units, pools)
        if manifest.requires.backend == "aoti":
            yield from _line_problems(manifest, graph)
        else:
            yield from _whole_problems(manifest, graph, units)
    yield from _window_problems(manifest)
    used = {call.unit for graph in manifest.graphs for call in graph.calls}
    for name in units:
        if name not in used:
            yield problem(f"No graph calls the unit {name}", "a call", "none")


def kv_pools(manifest: Manifest) -> dict[str, TensorSpec]:
    """The pools of `kv_cache` by name; the number of blocks is the caller's where a unit's code can tell it."""
    cache = manifest.kv_cache
    pools: dict[str, TensorSpec] = {}
    for group in cache.groups:
        shape = (cache.num_blocks, cache.block_size, group.kv_heads, group.head_dim)
        for layer in range(group.first_layer, group.first_layer + group.layers):
            pools |= {name: TensorSpec(name, group.dtype, shape) for name in (f"kv.{layer}.k", f"kv.{layer}.v")}
    return pools


def _flow_problems(graph: Graph, units: Mapping[str, Unit], pools: Mapping[str, TensorSpec]) -> Iterator[Eagle3Error]:
    known = {**pools, RANK.name: RANK, **{value.name: value for value in graph.inputs}}
    if len(known) != len(pools) + 1 + len(graph.inputs):
        yield problem(
            f"Graph {graph.name} has an input twice, or one that the backend holds", "names that differ", "one"
        )
    for call in graph.calls:
        unit = units[call.unit]
        counts = (len(unit.inputs), len(unit.outputs))
        if (len(call.inputs), len(call.outputs)) != counts:
            found = f"{len(call.inputs)} and {len(call.outputs)}"
            expected = f"{counts[0]} inputs and {counts[1]} outputs"
            yield problem(f"Graph {graph.name} calls {unit.name} with other numbers of values", expected, found)
            return
        for name, taken in zip(call.inputs, unit.inputs, strict=True):
            given = known.get(name)
            if given is None or not _fits(given, taken, pool=name in pools):
                found = "nothing of that name" if given is None else f"{shown(given)}, {name}"
                source = " than kv_cache has" if name in pools else ""
                what = f"Unit {unit.name} of graph {graph.name} takes another {taken.name}{source}"
                yield problem(what, shown(taken), found)
        for name, made in zip(call.outputs, unit.outputs, strict=True):
            if name in known:
                yield problem(f"Graph {graph.name} makes {name} again", "a name of its own", f"{name} of {unit.name}")
            known[name] = made
    for value in graph.outputs:
        made_as = known.get(value.name)
        if made_as is not None and (made_as.dtype, made_as.shape) != (value.dtype, value.shape):
            yield problem(f"Graph {graph.name} gives another {value.name} than is made", shown(made_as), shown(value))


def _fits(given: TensorSpec, taken: TensorSpec, *, pool: bool) -> bool:
    shape = given.shape
    if pool and taken.shape[:1] == ("num_blocks",):
        shape = ("num_blocks", *shape[1:])
    return (given.dtype, shape) == (taken.dtype, taken.shape)


def _line_problems(manifest: Manifest, graph: Graph) -> Iterator[Eagle3Error]:
    steps = line(manifest, graph)
    if len(steps) != len(graph.calls):
        yield problem(f"Graph {graph.name} has another number of calls than its kind", len(steps), len(graph.calls))
        return
    for number, (step, call) in enumerate(zip(steps, graph.calls, strict=True)):
        where = f"graphs {graph.name}, calls[{number}]"
        if call.unit != step.unit and not call.unit.startswith(f"{step.unit}.w"):
            yield problem(f"{where}.unit is not that of its place", step.unit, call.unit)
        for field in ("scope", "inputs", "outputs"):
            expected, found = getattr(step.call, field), getattr(call, field)
            if expected != found:
                texts = [value if isinstance(value, str) else ", ".join(value) for value in (expected, found)]
                yield problem(f"{where}.{field} is not that of its place", *texts)


def line(manifest: Manifest, graph: Graph) -> list[Step]:
    """The calls that a graph of this kind has where layers are units of their own."""
    r, n = graph.requests, graph.rows
    by_request, by_row = f"r{r}x{n // r}", f"t{n}"
    outputs = tuple(value.name for value in graph.outputs)
    if graph.kind.startswith("target"):
        return _target_line(manifest, graph.kind == "target_prefill", by_request, by_row, outputs)
    first = manifest.kv_cache.groups[0].layers
    layers = range(first, first + manifest.kv_cache.groups[1].layers)
    pools = tuple(f"kv.{layer}.{half}" for layer in layers for half in "kv")
    unit, values = {
        "draft_initial": (f"draft_initial.{by_request}", ("tokens", *PAGING, "features", "last_index")),
        "draft_initial_prefill": (f"draft_initial.{by_request}", ("tokens", *PAGING, "features", "last_index")),
        "draft_recurrent": (f"draft_recurrent.r{r}", ("tokens", "state", *PAGING)),
        "draft_fused": (f"draft_fused.{by_request}", ("accepted", *PAGING, "features", "length_limits")),
        "draft_fused_prefill": (
            f"draft_fused_prefill.{by_row}",
            ("tokens", "next_token", "last_index", *PAGING, "features", "length_limits"),
        ),
    }[graph.kind]
    return [Step(unit, Call(unit, "draft", (*values, *pools), outputs))]


def _target_line(
    manifest: Manifest, prefill: bool, by_request: str, by_row: str, outputs: tuple[str, ...]
) -> list[Step]:
    layers, aux = manifest.kv_cache.groups[0].layers, manifest.speculation.aux_layers
    steps = [Step(f"target_embed.{by_row}", Call("", "target.embed", ("tokens", "positions"), ("hidden.0", "angles")))]
    for i in range(layers):
        values = (f"hidden.{i}", "angles", *PAGING, f"kv.{i}.k", f"kv.{i}.v")
        steps.append(Step(f"target_layer.{by_request}", Call("", f"target.layers.{i}", values, (f"hidden.{i + 1}",))))
    last, taps = f"hidden.{layers}", tuple(f"hidden.{position}" for position in aux)
    if not aux:
        taps = ("final",)
        steps.append(Step(f"target_final_features.{by_row}", Call("", "target.head", (last,), taps)))
    head = f"target_prefill_head.{by_row}" if prefill else f"target_verify_head.{by_request}"
    own = ("last_index",) if prefill else ("tokens", "num_draft_tokens")
    steps.append(Step(head, Call("", "target.head", (last, *own, *asked(manifest), *taps), outputs)))
    return steps


def _whole_problems(manifest: Manifest, graph: Graph, units: Mapping[str, Unit]) -> Iterator[Eagle3Error]:
    """Of a graph that is one unit: it is the unit of its name, and takes each value under the value's own name."""
    if [(call.unit, call.scope) for call in graph.calls] != [(graph.name, "")]:
        found = ", ".join(f"{call.unit} with {call.scope or 'no scope'}" for call in graph.calls) or "none"
        yield problem(f"Graph {graph.name} is not one call of the unit of its name", f"{graph.name}, no scope", found)
        return
    call, unit = graph.calls[0], units[graph.name]
    role = "target" if graph.kind.startswith("target") else "draft"
    (group,) = [group for group in manifest.kv_cache.groups if group.role == role]
    layers = range(group.first_layer, group.first_layer + group.layers)
    pools = {f"kv.{layer}.{half}" for layer in layers for half in "kv"}
    for values, specs in ((call.inputs, unit.inputs), (call.outputs, unit.outputs)):
        names = tuple(spec.name for spec in specs)
        if values != names:
            yield problem(
                f"Graph {graph.name} hands over values under other names", ", ".join(names), ", ".join(values)
            )
    if {name for name in call.inputs if name.startswith("kv.")} != pools:
        found = ", ".join(name for name in call.inputs if name.startswith("kv."))
        yield problem(f"Graph {graph.name} takes other pools than the {role}'s", ", ".join(sorted(pools)), found)


def _window_problems(manifest: Manifest) -> Iterator[Eagle3Error]:
    """A layer has one window, whichever graph runs it."""
    windows: dict[str, str] = {}
    for graph in manifest.graphs:
        for call in graph.calls:
            if call.scope.startswith("target.layers."):
                window = call.unit.partition(".w")[2]
                if windows.setdefault(call.scope, window) != window:
                    expected = windows[call.scope] or "none"
                    yield problem(f"Graph {graph.name} gives {call.scope} another window", expected, window or "none")
