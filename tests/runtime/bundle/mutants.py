"""Seeded damage to a parsed manifest: one or two small changes anywhere in it, most of them of the right type.

`mutate(data, rng)` changes `data` in place and says what it did; with `tests.runtime.bundle.toy.forge` the result gets
the id of its new content, so nothing but the sense of the manifest can give it away.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

# Numbers at and beyond edges, and names that mean something elsewhere in a manifest
NUMBERS = (-1, 0, 1, 2, 3, 4, 7, 8, 16, 17, 64, 2**16, 2**31 - 1, 2**31, 2**63, 10**30)
TEXTS = (
    "", "load", "int32", "float32", "bfloat16", "float64", "../secret", "/etc/passwd", "kv.0.k", "kv.1.v", "rank",
    "hidden.0", "hidden.2", "target.layers.0", "target.layers.1", "draft", "plain", "block32_pair2", "shard", "neuron",
    "eager", "\u202e", "a" * 5000,
)  # fmt: skip
ODD = (None, True, [], {}, 0.5, "text", -0.0)


def places(data: Any, where: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value below `data`."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield (*where, key)
        yield from places(value, (*where, key))


def parent_of(data: Any, path: tuple[Any, ...]) -> Any:
    for key in path[:-1]:
        data = data[key]
    return data


def named(path: tuple[Any, ...]) -> str:
    return "manifest" + "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)


def _of_a_kind(every: list[tuple[Any, ...]], path: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """The places whose path differs from `path` in numbers and table keys alone."""

    return [place for place in every if place != path and _kind(place) == _kind(path)]


def _kind(path: tuple[Any, ...]) -> tuple[Any, ...]:
    """A place without its numbers and table keys; all of a model's configuration is one kind."""
    if len(path) > 2 and path[1] == "config":
        return path[:2]
    return tuple("#" if isinstance(key, int) or "." in key or "/" in key else key for key in path)


def mutate(data: dict[str, Any], rng: Random) -> str:
    """One change of `data`; the place and what became of it.

    Places are drawn by their kind first, so that the few numbers of a bundle are hit as often as its thousand names.
    """
    every = [path for path in places(data) if path[0] not in ("bundle_id", "format_version")]
    kinds: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    for path in every:
        kinds.setdefault(_kind(path), []).append(path)
    path = rng.choice(kinds[rng.choice(sorted(kinds))])
    parent, key = parent_of(data, path), path[-1]
    value = parent[key]
    siblings = _of_a_kind(every, path)
    how = rng.random()
    if how < 0.4 and siblings:  # what another place of the kind holds, or both exchanged
        other = rng.choice(siblings)
        theirs = parent_of(data, other)
        parent[key], swapped = theirs[other[-1]], value
        if how < 0.15 and not (set(map(str, other)) <= set(map(str, path))):
            theirs[other[-1]] = swapped
            return f"{named(path)} and {named(other)} exchanged"
        return f"{named(path)} as {named(other)}"
    if how < 0.55 and isinstance(parent, list):
        if rng.random() < 0.5:
            del parent[key]
            return f"{named(path)} removed"
        parent.insert(rng.randrange(len(parent) + 1), value)
        return f"{named(path)} twice"
    if how < 0.6:
        del parent[key]
        return f"{named(path)} removed"
    if how < 0.65:
        parent[key] = rng.choice(ODD)
    elif isinstance(value, bool):
        parent[key] = not value
    elif isinstance(value, int):
        parent[key] = rng.choice((value - 1, value + 1, value * 2, value // 2, rng.choice(NUMBERS)))
    elif isinstance(value, str):
        parent[key] = rng.choice(TEXTS)
    elif isinstance(value, list):
        rng.shuffle(value)
    elif isinstance(value, dict) and value:
        first, second = rng.choice(sorted(value)), rng.choice(sorted(value))
        value[first], value[second] = value[second], value[first]
    else:
        parent[key] = rng.choice(NUMBERS)
    return f"{named(path)} = {parent[key]!r:.60}"
