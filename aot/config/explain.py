"""What pydantic found wrong, in one sentence each: the key, what was expected and found, and the repair.

A key that is not known is the commonest mistake, and three things can be behind it: a slip of the pen, a key
in the wrong section, or a vLLM key that has no counterpart here. Each gets its own repair.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticUndefined

from aot.config.fields import AotiBackend, BuildConfig, NeuronBackend
from aot.config.problems import Location, Problem, key_path, show
from aot.config.vllm_keys import UNSUPPORTED

# pydantic's error type -> (what is wrong, what was expected); {name} is filled from the error's context.
_SENTENCES: dict[str, tuple[str, str]] = {
    "bool_parsing": ("is not a truth value", "true or false"),
    "bool_type": ("is not a truth value", "true or false"),
    "float_type": ("is not a number", "a number"),
    "greater_than": ("is too small", "more than {gt}"),
    "greater_than_equal": ("is too small", "at least {ge}"),
    "int_type": ("is not an integer", "an integer"),
    "less_than_equal": ("is too large", "at most {le}"),
    "literal_error": ("is not a known value", "{expected}"),
    "model_attributes_type": ("is not a mapping", "a mapping"),
    "model_type": ("is not a mapping", "a mapping"),
    "path_type": ("is not a path", "a path"),
    "string_pattern_mismatch": (
        "is not a file name",
        "letters, digits, '.', '_' and '-', the first a letter or digit",
    ),
    "string_too_short": ("is empty", "text"),
    "string_type": ("is not text", "text"),
    "too_short": ("is empty", "at least one value"),
    "tuple_type": ("is not a list", "a list of integers"),
    "union_tag_invalid": ("is not a known value", "'aoti' or 'neuron'"),
}


@cache
def known_keys() -> dict[str, FieldInfo]:
    """Every key path that a YAML may hold, sections included, with its field."""
    keys: dict[str, FieldInfo] = {}
    for path, field in _walk(BuildConfig, ""):
        keys.setdefault(path, field)  # backend.name is a key of both backends.
    return keys


def explain(details: Iterable[ErrorDetails]) -> list[tuple[Location, Problem]]:
    """Each of pydantic's errors as (location of the offending value, problem).

    A missing key whose misspelling is among the unknown ones is not reported a second time.
    """
    placed = [(_location(detail), detail) for detail in details]
    renamed = {_nearest(key_path(location)) for location, detail in placed if detail["type"] == "extra_forbidden"}
    problems = []
    for location, detail in placed:
        path = key_path(location)
        if detail["type"] == "too_short" and detail["input"]:
            continue  # A list whose items are all wrong counts as empty; the items are reported.
        if detail["type"] == "extra_forbidden":
            problems.append((location, _unknown(location, detail["input"])))
        elif detail["type"] != "missing":
            problems.append((location, _wrong(path, detail)))
        elif path not in renamed:
            problems.append((location, _missing(path)))
    return problems


def _location(detail: ErrorDetails) -> Location:
    """The YAML's location: pydantic puts the chosen backend's name between `backend` and its keys."""
    location = detail["loc"]
    if location[0] == "backend":
        name = ("name",) if detail["type"] == "union_tag_invalid" else ()
        return ("backend", *location[2:], *name)
    return location


def _wrong(path: str, detail: ErrorDetails) -> Problem:
    what, expected = _SENTENCES.get(detail["type"], ("is not valid", detail["msg"]))
    value = detail["input"]
    if detail["type"] == "union_tag_invalid":
        value = value["name"]
    example = _example(path.split("[")[0])
    return Problem(
        (path,),
        f"{path} {what}",
        expected=expected.format(**detail.get("ctx", {})),
        found=show(value),
        repair=f"set {example}" if example else f"correct or remove {path}",
    )


def _missing(path: str) -> Problem:
    description = (known_keys()[path].description or "a value").rstrip(".")
    return Problem(
        (path,),
        f"{path} is missing",
        expected=description.replace("The ", "the ", 1),
        repair=f"add {_example(path)}",
    )


def _unknown(location: Location, value: object) -> Problem:
    path = key_path(location)
    parent, _, key = path.rpartition(".")
    if path in UNSUPPORTED:
        return Problem((path,), f"{path} is not supported yet", found=show(value), repair=UNSUPPORTED[path])
    if path in known_keys() and "." in str(location[-1]):
        return Problem(
            (path,),
            f"{path} is written as one key",
            expected=f"{key} inside {parent}",
            found=f"{path}: {show(value)}",
            repair=f"write {parent}: and, indented below it, {key}: {show(value)}",
        )
    siblings = _siblings(path)
    if parent == "backend" and path in known_keys():
        owner, other = ("aoti", "neuron") if key in AotiBackend.model_fields else ("neuron", "aoti")
        return Problem(
            (path,),
            f"{path} is a key of the {owner} backend",
            expected=f"keys of the {other} backend ({', '.join(siblings[other])})",
            found=f"{key}: {show(value)}",
            repair=f"remove {path}, or set backend.name: {owner}",
        )
    here = sorted({name for names in siblings.values() for name in names})
    nearest = _nearest(path)
    if nearest is None:
        expected, repair = f"one of {', '.join(here)}", "remove it"
    elif nearest.rpartition(".")[0] == parent:
        expected, repair = nearest, f"rename it to {nearest.rpartition('.')[2]}"
    else:
        expected, repair = nearest, f"move it to {nearest}"
    # What was probably meant is among the keys, so that it is not also reported as missing.
    keys = (path, nearest) if nearest else (path,)
    return Problem(keys, f"{path} is not a known key", expected=expected, found=key, repair=repair)


def _nearest(path: str) -> str | None:
    """The known key that was probably meant: this name in another section, else the nearest in this one."""
    parent, _, key = path.rpartition(".")
    elsewhere = [known for known in known_keys() if known.rpartition(".")[2] == key]
    if elsewhere:
        return elsewhere[0]
    here = sorted({name for names in _siblings(path).values() for name in names})
    close = get_close_matches(key, here, n=1)
    return (f"{parent}." if parent else "") + close[0] if close else None


def _siblings(path: str) -> dict[str, list[str]]:
    """The known keys of the section that `path` is in; the backend's sections go by their names."""
    parent = path.rpartition(".")[0]
    if parent == "backend":
        return {"aoti": list(AotiBackend.model_fields), "neuron": list(NeuronBackend.model_fields)}
    return {"": [known.rpartition(".")[2] for known in known_keys() if known.rpartition(".")[0] == parent]}


def _example(path: str) -> str:
    """A `key: value` that works for `path`, or "" where only the user can know one."""
    field = known_keys().get(path)
    if field is None:
        return ""
    value = field.examples[0] if field.examples else field.default
    if value is None or value is PydanticUndefined or isinstance(value, tuple | BaseModel):
        return ""
    if isinstance(value, str | Path):
        return f"{path}: {value}"
    return f"{path}: " + json.dumps(value).replace('"', "")


def _walk(section: type[BaseModel], prefix: str) -> Iterator[tuple[str, FieldInfo]]:
    for name, field in section.model_fields.items():
        path = prefix + (field.alias or name)
        yield path, field
        for inner in _sections(field.annotation):
            yield from _walk(inner, path + ".")


def _sections(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _sections(argument)
