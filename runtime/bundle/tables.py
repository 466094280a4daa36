"""What a Neuron unit's table of parameters and results says, against the rest of the manifest.

The backends bind weights, pools and inputs by these tables alone. A table that asks for a weight that the bundle has
not, or for a pool of another size, is refused when the bundle opens and not while a device is being filled.
"""

from __future__ import annotations

from collections.abc import Iterator

from runtime.bundle.errors import Eagle3Error, IntegrityError
from runtime.bundle.interface import Parameter, Result
from runtime.bundle.manifest import Manifest, TensorSpec, Unit


def table_problems(manifest: Manifest) -> list[Eagle3Error]:
    """Every contradiction between the tables of the units and the manifest; none where units have no tables."""
    if manifest.requires.backend != "neuron":
        return []
    pools = _pools(manifest)
    return [problem for unit in manifest.units for problem in _unit_problems(manifest, unit, pools)]


def _unit_problems(manifest: Manifest, unit: Unit, pools: dict[str, str]) -> Iterator[Eagle3Error]:
    inputs = {spec.name: _spec(spec) for spec in unit.inputs}
    taken: set[str] = set()
    for parameter in unit.parameters:
        name, found = parameter.name, _spec(parameter)
        if name in taken:
            yield _problem(f"Unit {unit.name} takes {name} twice", "one parameter of each name", "several")
        taken.add(name)
        match parameter.role:
            case "weight":
                yield from _weight_problems(manifest, unit, parameter)
                continue
            case "rank":
                expected = "int32 [1]"
            case "kv":
                expected = pools.get(name, "a layer of kv_cache")
                if name in inputs and inputs[name] != found:
                    expected = inputs[name]
            case "input":
                expected = inputs.get(name, "an input of the unit")
        if found != expected:
            yield _problem(f"Unit {unit.name} takes another {name} than it is given", expected, found)
    for name in inputs:
        # XLA keeps a parameter that nothing reads, so every input has its place in the table
        if name not in taken:
            yield _problem(f"Unit {unit.name} has no parameter for its input {name}", "one", "none")
    yield from _result_problems(unit)


def _weight_problems(manifest: Manifest, unit: Unit, parameter: Parameter) -> Iterator[Eagle3Error]:
    if not manifest.weights:  # graphs alone
        return
    layouts = [f"shard.{rank}" for rank in range(manifest.requires.ranks)] if parameter.sharded else ["plain"]
    stored = manifest.weights.get(parameter.name, {})
    if missing := [layout for layout in layouts if layout not in stored]:
        what = f"Unit {unit.name} takes a weight that the bundle has not, {parameter.name}"
        yield _problem(what, ", ".join(missing), ", ".join(sorted(stored)) or "none")


def _result_problems(unit: Unit) -> Iterator[Eagle3Error]:
    pools = {parameter.name: _spec(parameter) for parameter in unit.parameters if parameter.role == "kv"}
    given = [(result.name, _spec(result)) for result in unit.results if not result.alias_of]
    outputs = [(spec.name, _spec(spec)) for spec in unit.outputs]
    if given != outputs:
        yield _problem(f"Unit {unit.name} gives other results than its outputs", _listed(outputs), _listed(given))
    written = [result.alias_of for result in unit.results if result.alias_of]
    if sorted(written) != sorted(pools):
        expected, found = ", ".join(sorted(pools)) or "none", ", ".join(sorted(written)) or "none"
        yield _problem(f"Unit {unit.name} writes other pools than it takes", expected, found)
    for result in unit.results:
        if result.alias_of in pools and _spec(result) != pools[result.alias_of]:
            what = f"Unit {unit.name} writes another {result.alias_of} than it takes"
            yield _problem(what, pools[result.alias_of], _spec(result))


def _pools(manifest: Manifest) -> dict[str, str]:
    """The pools that `kv_cache` describes, "float32 [9, 16, 1, 16]" for each."""
    cache = manifest.kv_cache
    pools: dict[str, str] = {}
    for group in cache.groups:
        text = f"{group.dtype} {[cache.num_blocks, cache.block_size, group.kv_heads, group.head_dim]}"
        for layer in range(group.first_layer, group.first_layer + group.layers):
            pools |= {f"kv.{layer}.k": text, f"kv.{layer}.v": text}
    return pools


def _spec(value: TensorSpec | Parameter | Result) -> str:
    return f"{value.dtype} {list(value.shape)}"


def _listed(values: list[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {spec}" for name, spec in values) or "none"


def _problem(what: str, expected: str, found: str) -> Eagle3Error:
    return IntegrityError(what, expected=expected, found=found, repair="rebuild the bundle with eagle3-build")
