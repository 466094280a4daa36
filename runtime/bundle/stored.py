"""The bundle's files and weights against its units: each file has a use, and each weight the shape that is taken.

A compiled unit gets pointers and no shapes: a smaller tensor than its code was made for would be read beyond its end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from runtime.bundle.errors import Eagle3Error
from runtime.bundle.manifest import Constant, Manifest, Unit, WeightRef
from runtime.bundle.sizes import problem
from runtime.bundle.tensors import Stored, Tensors

TOKENIZER_FILES = ("tokenizer/tokenizer.json", "tokenizer/tokenizer_info.json", "tokenizer/chat_template.jinja")
# What a unit's folder can hold: its artifact first
UNIT_FILES = {"aoti": ("unit.so",), "neuron": ("graph.hlo", "command.json", "graph.neff")}
_WEIGHTS = re.compile(r"weights/(?P<scope>[A-Za-z0-9_.]+)-[0-9a-f]{16}\.safetensors")
SHARD = "shard"


def file_use_problems(manifest: Manifest) -> Iterator[Eagle3Error]:
    """Every listed file that is none of a bundle's kinds, and every unit whose files have other names than its own.

    A library may look for files beside the one that it is given, so a listed one must not have a name of its choice.
    """
    known = UNIT_FILES[manifest.requires.backend]
    used = {f"graphs/{unit.name}/{name}" for unit in manifest.units for name in known}
    used |= {reference.file for layouts in manifest.weights.values() for reference in layouts.values()}
    for name in manifest.files:
        if name not in used and name not in TOKENIZER_FILES:
            yield problem("files lists a file that nothing uses", "graphs, weights and the tokenizer's files", name)
    for unit in manifest.units:
        own = f"graphs/{unit.name}/{known[0]}"
        if unit.artifact != own:
            yield problem(f"Unit {unit.name} lies in a file of another name", own, unit.artifact)
        if unit.neff is not None and unit.neff.path != f"graphs/{unit.name}/graph.neff":
            yield problem(
                f"The NEFF of unit {unit.name} has another name", "graph.neff beside the unit", unit.neff.path
            )
    for name in sorted(used - {f"graphs/{unit.name}/{name}" for unit in manifest.units for name in known}):
        if not _WEIGHTS.fullmatch(name):
            yield problem("weights are in a file of another name", "weights/SCOPE-DIGEST.safetensors", name)
    tokenizer = [name for name in TOKENIZER_FILES if name in manifest.files]
    if tokenizer and not {*TOKENIZER_FILES[:2]} <= set(tokenizer):
        yield problem("files lists a part of a tokenizer", ", ".join(TOKENIZER_FILES[:2]), ", ".join(tokenizer))


def weight_problems(manifest: Manifest, tensors: Tensors) -> Iterator[Eagle3Error]:
    """Every weight that is missing, of another dtype or shape than its unit takes, or another weight's.

    Args:
        tensors: what the files hold.
    """
    if not manifest.weights:
        return
    units = {unit.name: unit for unit in manifest.units}
    wanted: set[tuple[str, str]] = set()
    told: set[tuple[str, str, str]] = set()
    for unit, scope in sorted({(call.unit, call.scope) for graph in manifest.graphs for call in graph.calls}):
        yield from _parameter_problems(units[unit])
        for constant in units[unit].constants:
            name = f"{scope}.{constant.weight}" if scope else constant.weight
            for layout in _layouts(constant, manifest.requires.ranks):
                wanted.add((name, layout))
                for found in _taken_problems(manifest, tensors, units[unit], constant, name, layout):
                    if (key := (unit, name, layout)) not in told:
                        told.add(key)
                        yield found
    yield from _kind_problems(manifest, units)
    for name, layouts in manifest.weights.items():
        for layout in layouts:
            if (name, layout) not in wanted:
                yield problem(f"No unit takes the weight {name} in layout {layout}", "a unit that does", "none")
    yield from _place_problems(manifest, tensors)


def _kind_problems(manifest: Manifest, units: Mapping[str, Unit]) -> Iterator[Eagle3Error]:
    """Units of one kind, "target_layer", take the same weights of a scope, whatever their rows."""
    first: dict[tuple[str, str], set[str]] = {}
    calls = {(call.unit, call.scope) for graph in manifest.graphs for call in graph.calls if call.scope}
    for unit, scope in sorted(calls):
        taken = {constant.weight for constant in units[unit].constants}
        expected = first.setdefault((unit.partition(".")[0], scope), taken)
        if taken != expected:
            names = [", ".join(sorted(names)) or "no others" for names in (expected - taken, taken - expected)]
            yield problem(f"Unit {unit} takes other weights of {scope} than its kind does", *names)


def _layouts(constant: Constant, ranks: int) -> list[str]:
    return [f"{SHARD}.{rank}" for rank in range(ranks)] if constant.layout == SHARD else [constant.layout]


def _taken_problems(
    manifest: Manifest, tensors: Tensors, unit: Unit, constant: Constant, name: str, layout: str
) -> Iterator[Eagle3Error]:
    reference = manifest.weights.get(name, {}).get(layout)
    if reference is None:
        yield problem(f"Unit {unit.name} takes a weight that the bundle has not", f"{name} in layout {layout}", "none")
        return
    stored = tensors.get(reference.file, {}).get(reference.tensor)
    expected = Stored(constant.dtype, constant.shape)
    if stored is None:
        yield problem(f"{reference.file} holds no tensor for the weight {name}", reference.tensor, "none")
    elif stored != expected:
        yield problem(f"Unit {unit.name} takes another {name} than is stored", expected, stored)


def _parameter_problems(unit: Unit) -> Iterator[Eagle3Error]:
    """Of a unit with a table: its weights there are its constants. Of another: they are in the order of their names.

    What the code calls a packed constant says nothing of its weight, so that two exchanged names would not show.
    """
    if not unit.parameters:
        names = [constant.name for constant in unit.constants]
        if names != sorted(set(names)):
            yield problem(
                f"Unit {unit.name} has constants out of order", "names in order, none twice", ", ".join(names)
            )
        return
    listed = {p.name: (p.dtype, p.shape, p.sharded) for p in unit.parameters if p.role == "weight"}
    taken = {c.name: (c.dtype, c.shape, c.layout == SHARD) for c in unit.constants}
    for name in sorted(listed.keys() | taken.keys()):
        if listed.get(name) != taken.get(name):
            yield problem(f"Unit {unit.name} lists another {name} than it takes", listed.get(name), taken.get(name))
    for constant in unit.constants:
        if constant.name != constant.weight:
            yield problem(f"Unit {unit.name} takes a weight under another name", constant.name, constant.weight)


def _place_problems(manifest: Manifest, tensors: Tensors) -> Iterator[Eagle3Error]:
    """A stored tensor is the weight that its file and key name; equal contents, and they alone, share a place."""
    contents: dict[tuple[str, str], str] = {}
    places: dict[str, tuple[str, str]] = {}
    for name, layouts in manifest.weights.items():
        for reference in layouts.values():
            place = (reference.file, reference.tensor)
            if contents.setdefault(place, reference.content) != reference.content:
                yield problem(
                    f"The weight {name} shares a place with another content", contents[place], reference.content
                )
            elif places.setdefault(reference.content, place) != place:
                yield problem(f"The weight {name} is stored in two places", places[reference.content], place)
    for file, held in tensors.items():
        named = _WEIGHTS.fullmatch(file)
        for tensor in held if named is not None else ():
            weight, _, layout = tensor.partition("@")
            name = f"{named['scope']}.{weight}" if named is not None else weight
            owner = _reference(manifest.weights, name, layout or "plain")
            if owner is None or (owner.file, owner.tensor) != (file, tensor):
                found = "none" if owner is None else f"{owner.tensor} of {owner.file}"
                yield problem(
                    f"The weight {name} is taken from another place than its own", f"{tensor} of {file}", found
                )


def _reference(weights: Mapping[str, Mapping[str, WeightRef]], name: str, layout: str) -> WeightRef | None:
    return weights.get(name, {}).get(layout)
