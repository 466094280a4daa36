"""Frozen dataclasses to JSON and back, strictly.

`from_json(T, to_json(x)) == x` for every dataclass T built of str, int, float, bool, None, tuples, string-keyed
mappings and other such dataclasses. Reading refuses unknown keys, missing keys without a default and wrong types, and
names the place (`graphs[3].calls[0].unit`), so a damaged or foreign manifest is a sentence and not a traceback.

`parse` is the step before: JSON text to plain values, as strict as RFC 8259 allows. Two readers never understand one
text differently, since a key that occurs twice, NaN and infinities are refused.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import reprlib
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from runtime.bundle.errors import IntegrityError

T = TypeVar("T")

_ADDED = "added"
# A damaged value may be megabytes long; the sentence that shows it is not.
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80


def added(default: T) -> T:
    """A dataclass field that came after its format was first written: left out of the JSON where it holds `default`.

    So that what was written before keeps its text, and with it its digest.
    """
    return dataclasses.field(default=default, metadata={_ADDED: True})


def to_json(value: Any) -> Any:
    """`value` as JSON types. Fields that hold their default are written too, but for `added` ones."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [(f, getattr(value, f.name)) for f in dataclasses.fields(value)]
        return {f.name: to_json(held) for f, held in fields if not (f.metadata.get(_ADDED) and held == f.default)}
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_json(item) for item in value]
    return value


def parse(text: str) -> object:
    """The value of a JSON text.

    Raises:
        ValueError: the text is not JSON, repeats a key in one object, holds NaN or an infinity, or nests too deeply.
    """
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("lists and objects nested too deeply") from None


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"the key {_SHORT.repr(key)} twice in one object")
            seen.add(key)
    return found


def _no_constant(name: str) -> object:
    raise ValueError(f"{name}, which is not a JSON number")


def from_json(kind: type[T], data: object, where: str = "manifest") -> T:
    """`data` (parsed JSON) as a `kind`.

    Raises:
        IntegrityError: naming the key path of the first thing that does not fit.
    """
    return typing.cast(T, _read(kind, data, where))


@functools.cache
def _fields(kind: type) -> dict[str, tuple[Any, bool]]:
    hints = typing.get_type_hints(kind)
    required = {
        f.name: f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        for f in dataclasses.fields(kind)
    }
    return {name: (hints[name], required[name]) for name in required}


def _refuse(where: str, expected: str, data: object) -> IntegrityError:
    found = type(data).__name__ if isinstance(data, dict | list) else _SHORT.repr(data)
    return _misfit(where, expected, found)


def _misfit(where: str, expected: str, found: str) -> IntegrityError:
    return IntegrityError(
        f"{where} is not readable",
        expected=expected,
        found=found,
        repair="rebuild the bundle with eagle3-build",
    )


def _read(kind: Any, data: object, where: str) -> Any:
    if dataclasses.is_dataclass(kind):
        return _read_record(typing.cast(type, kind), data, where)
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _read_union(args, data, where)
    if origin is typing.Literal:
        if data not in args:
            raise _refuse(where, " or ".join(map(str, args)), data)
        return data
    if origin is tuple:
        if not isinstance(data, list):
            raise _refuse(where, "a list", data)
        return tuple(_read(args[0], item, f"{where}[{i}]") for i, item in enumerate(data))
    if origin in (dict, Mapping):
        if not isinstance(data, dict):
            raise _refuse(where, "an object", data)
        return {key: _read(args[1], item, _below(where, key)) for key, item in data.items()}
    if kind is Any:
        return data
    if kind is float:
        return _read_float(data, where)
    if not isinstance(data, kind) or (kind is int and isinstance(data, bool)):
        raise _refuse(where, kind.__name__, data)
    return data


def _below(where: str, key: str) -> str:
    # Keys come from the file: one that would break the line or the terminal is shown quoted.
    return f"{where}.{key}" if key.isprintable() else f"{where}.{_SHORT.repr(key)}"


def _read_float(data: object, where: str) -> float:
    if isinstance(data, bool) or not isinstance(data, int | float):
        raise _refuse(where, "float", data)
    try:
        number = float(data)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _refuse(where, "a finite number", data)
    return number


def _read_record(kind: type, data: object, where: str) -> Any:
    if not isinstance(data, dict):
        raise _refuse(where, "an object", data)
    fields = _fields(kind)
    for key in data:
        if key not in fields:
            raise _misfit(_below(where, key), f"one of {', '.join(fields)}", "an unknown key")
    for key, (_, required) in fields.items():
        if required and key not in data:
            raise _misfit(f"{where}.{key}", "a value", "nothing")
    return kind(**{key: _read(fields[key][0], item, f"{where}.{key}") for key, item in data.items()})


def _read_union(options: tuple[Any, ...], data: object, where: str) -> Any:
    if data is None and type(None) in options:
        return None
    remaining = [option for option in options if option is not type(None)]
    if len(remaining) == 1:
        return _read(remaining[0], data, where)
    for option in remaining:
        try:
            return _read(option, data, where)
        except IntegrityError:
            continue
    raise _refuse(where, " or ".join(getattr(option, "__name__", str(option)) for option in remaining), data)
