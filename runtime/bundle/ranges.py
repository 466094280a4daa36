"""What a field can hold beyond its type, said at the field: `block_size: Annotated[int, Between(1, 4096)]`.

`from_json` reads structure alone, so that a manifest of any numbers can be shown and compared. `range_problems` then
walks the dataclasses and compares every value with the rules at its field, at an item of a tuple, at a key or a value
of a mapping, and names each place that breaks one (`manifest.kv_cache.block_size`).
"""

from __future__ import annotations

import dataclasses
import functools
import re
import reprlib
import types
import typing
from collections.abc import Iterator, Mapping, Sized
from itertools import islice, pairwise
from typing import Any, Protocol

from runtime.bundle.errors import Eagle3Error, IntegrityError

# A damaged value may be megabytes long, and every number of a hostile manifest may be wrong
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80
MOST_TOLD = 20


class Rule(Protocol):
    """A rule of a field: `expected` in words, and whether a value of the field's type keeps it."""

    @property
    def expected(self) -> str: ...

    def holds(self, value: Any) -> bool: ...


@dataclasses.dataclass(frozen=True)
class Between:
    """A number from `least` to `most`, both included."""

    least: float
    most: float

    @property
    def expected(self) -> str:
        return f"a number from {self.least} to {self.most}"

    def holds(self, value: float) -> bool:
        return self.least <= value <= self.most


@dataclasses.dataclass(frozen=True)
class OneOf:
    """One of the names."""

    names: tuple[str, ...]

    @property
    def expected(self) -> str:
        return " or ".join(self.names)

    def holds(self, value: str) -> bool:
        return value in self.names


@dataclasses.dataclass(frozen=True)
class Matching:
    """Text that `pattern` describes as a whole; `meaning` is the same for people."""

    pattern: str
    meaning: str

    @property
    def expected(self) -> str:
        return self.meaning

    def holds(self, value: str) -> bool:
        return re.fullmatch(self.pattern, value) is not None


@dataclasses.dataclass(frozen=True)
class Entries:
    """A list, text or table of `least` to `most` entries."""

    least: int
    most: int

    @property
    def expected(self) -> str:
        return f"{self.least} to {self.most} entries"

    def holds(self, value: Sized) -> bool:
        return self.least <= len(value) <= self.most


@dataclasses.dataclass(frozen=True)
class Ascending:
    """Numbers each of which is above the one before."""

    expected: str = "ascending numbers, none twice"

    def holds(self, value: tuple[int, ...]) -> bool:
        return all(low < high for low, high in pairwise(value))


def range_problems(value: object, where: str = "manifest") -> list[Eagle3Error]:
    """Every place in the dataclass `value` that breaks a rule of its field, the first few of them."""
    return list(islice(_record(value, where), MOST_TOLD))


@functools.cache
def _fields(kind: type) -> dict[str, Any]:
    hints = typing.get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _record(value: Any, where: str) -> Iterator[Eagle3Error]:
    for name, hint in _fields(type(value)).items():  # type: ignore[arg-type]
        yield from _check(hint, getattr(value, name), f"{where}.{name}")


def _check(hint: Any, value: Any, where: str) -> Iterator[Eagle3Error]:
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        hint, *rules = typing.get_args(hint)
        broken = next((rule for rule in rules if not rule.holds(value)), None)
        if broken is not None:
            yield _problem(where, broken, value)
            return
        origin = typing.get_origin(hint)
    if dataclasses.is_dataclass(value):
        yield from _record(value, where)
    elif origin in (typing.Union, types.UnionType):
        yield from _check(_option(hint, value), value, where)
    elif origin is tuple:
        for index, item in enumerate(value):
            yield from _check(typing.get_args(hint)[0], item, f"{where}[{index}]")
    elif origin in (dict, Mapping):
        of_key, of_value = typing.get_args(hint)
        for key, item in value.items():
            place = f"{where}.{key if key.isprintable() else _SHORT.repr(key)}"
            yield from _check(of_key, key, f"the name {place}")
            yield from _check(of_value, item, place)


def _option(hint: Any, value: object) -> Any:
    """The member of a union that `value` belongs to."""
    for option in typing.get_args(hint):
        plain = typing.get_args(option)[0] if typing.get_origin(option) is typing.Annotated else option
        if isinstance(plain, type) and isinstance(value, plain):
            return option
    return Any


def _problem(where: str, rule: Rule, value: object) -> Eagle3Error:
    return IntegrityError(
        f"{where} is out of range",
        expected=rule.expected,
        found=f"{len(value)} entries" if isinstance(rule, Entries) and isinstance(value, Sized) else _SHORT.repr(value),
        repair="rebuild the bundle with eagle3-build",
    )
