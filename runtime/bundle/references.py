"""What a manifest's parts say of one another: every name that is used is defined, every file that is opened is listed.

A unit or a weight in a file outside `files` would be loaded without its digest having been compared, and a call of an
unknown unit would fail in the middle of loading. Both are refused before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from runtime.bundle.errors import Eagle3Error, IntegrityError, UsageError
from runtime.bundle.manifest import Graph, Manifest
from runtime.bundle.tables import table_problems


def reference_problems(manifest: Manifest) -> list[Eagle3Error]:
    """Every reference of a ready manifest that leads nowhere, and every name defined twice."""
    problems = [
        *_twice("unit", (unit.name for unit in manifest.units)),
        *_twice("graph", (graph.name for graph in manifest.graphs)),
    ]
    opened = {f"unit {unit.name}": unit.artifact for unit in manifest.units}
    opened |= {f"NEFF of unit {unit.name}": unit.neff.path for unit in manifest.units if unit.neff is not None}
    for weight, layouts in manifest.weights.items():
        opened |= {f"weight {weight} ({layout})": reference.file for layout, reference in layouts.items()}
    for user, file in opened.items():
        if file not in manifest.files:
            problems.append(_problem(f"The {user} lies in a file without a digest", "a listed file", file))
    units = {unit.name for unit in manifest.units}
    for graph in manifest.graphs:
        problems += _graph_problems(graph, units)
    return [*problems, *_schedule_problems(manifest), *table_problems(manifest)]


def _schedule_problems(manifest: Manifest) -> Iterator[Eagle3Error]:
    try:
        _ = manifest.speculation.schedule
    except UsageError as error:
        yield _problem(error.what, error.expected, error.found)


def _graph_problems(graph: Graph, units: set[str]) -> Iterator[Eagle3Error]:
    known = {value.name for value in graph.inputs}
    for call in graph.calls:
        if call.unit not in units:
            yield _problem(f"The graph {graph.name} calls an unknown unit", "a unit of the manifest", call.unit)
        # kv.N.k and kv.N.v are the pools and rank is the device's own number: the backend hands them to every graph
        for name in call.inputs:
            if name not in known and name != "rank" and not name.startswith("kv."):
                yield _problem(f"The graph {graph.name} reads a value before it is made", "a known value", name)
        known |= set(call.outputs)
    for value in graph.outputs:
        if value.name not in known:
            yield _problem(f"The graph {graph.name} returns a value that no call makes", "a known value", value.name)


def _twice(kind: str, names: Iterable[str]) -> Iterator[Eagle3Error]:
    for name, count in Counter(names).items():
        if count > 1:
            yield _problem(f"Several {kind}s have one name", "names that differ", f"{name} {count} times")


def _problem(what: str, expected: str, found: str) -> Eagle3Error:
    return IntegrityError(what, expected=expected, found=found, repair="rebuild the bundle with eagle3-build")
