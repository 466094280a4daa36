"""Typed reading of a config.json: a wrong type or a missing key is one sentence with file and key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aot.checkpoint.ranges import integer_range, largest_number
from runtime.bundle.errors import ConfigError

_MISSING: Any = object()


def read_json(path: Path, *, repair: str = "") -> dict[str, Any]:
    """The JSON object in `path`.

    Raises:
        ConfigError: the file is missing, is not JSON, holds something other than an object, or has a key twice with
            different values.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_once)
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist", repair=repair or f"give a folder that has {path.name}") from None
    # ValueError: no UTF-8, no JSON, or a number of more digits than Python reads
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"{path} cannot be read as JSON",
            found=str(error),
            repair="fetch the file again from where it came",
        ) from None
    if not isinstance(found, dict):
        raise ConfigError(
            f"{path} is not a model's configuration",
            expected="a JSON object",
            found=type(found).__name__,
            repair="fetch the file again from where it came",
        )
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of `pairs`. JSON's readers let the last of two equal keys win in silence."""
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made and made[key] != value:
            raise ValueError(f"the key {brief(key)} is there twice, with different values")
        made[key] = value
    return made


def brief(value: object, most: int = 80) -> str:
    """A foreign value as a sentence shows it, in at most `most` characters."""
    try:
        text = repr(value)
    # A number of more digits than Python writes, or a list nested too deep
    except (ValueError, RecursionError):
        return f"a value of the type {type(value).__name__} that cannot be shown"
    return text if len(text) <= most else text[: most - 3] + "..."


@dataclass(frozen=True)
class Fields:
    """A JSON object and the place it came from, for sentences.

    Attributes:
        raw: the object.
        where: what errors call it, such as "draft/config.json".
    """

    raw: Mapping[str, Any]
    where: str

    def has(self, key: str) -> bool:
        """Whether `key` is there with a value other than null."""
        return self.raw.get(key) is not None

    def _value(self, key: str, default: Any) -> Any:
        if self.has(key):
            return self.raw[key]
        if default is _MISSING:
            raise ConfigError(f"{self.where} has no {key}", repair=f"add {key} to it, or fetch the file again")
        return default

    def _wrong(self, key: str, expected: str, found: Any) -> ConfigError:
        return ConfigError(
            f"{key} of {self.where} is wrong", expected=expected, found=brief(found), repair=f"correct {key}"
        )

    def integer(self, key: str, default: int = _MISSING) -> int:
        """An integer in the range that `ranges` has for `key`; `default` where the key is absent or null."""
        return self.in_range(key, self._value(key, default))

    def in_range(self, key: str, value: object) -> int:
        """`value`, which stands for `key`, checked as if it were written there."""
        least, most = integer_range(key)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self._wrong(key, f"an integer from {least} to {most}", value)
        return value

    def number(self, key: str, default: float = _MISSING) -> float:
        """A number above 0 and at most what `ranges` has for `key`, as float."""
        value, most = self._value(key, default), largest_number(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
            raise self._wrong(key, f"a number above 0 and at most {most:g}", value)
        return float(value)

    def flag(self, key: str, default: bool = _MISSING) -> bool:
        value = self._value(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false", value)
        return value

    def text(self, key: str, default: str = _MISSING) -> str:
        value = self._value(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, "a string", value)
        return value

    def integers(self, key: str, default: tuple[int, ...] = _MISSING) -> tuple[int, ...]:
        """A list of integers in the range that `ranges` has for `key`; a single integer reads as a list of one."""
        value = self._value(key, default)
        listed = [value] if isinstance(value, int) else value
        least, most = integer_range(key)
        if not isinstance(listed, list | tuple) or any(
            isinstance(item, bool) or not isinstance(item, int) or not least <= item <= most for item in listed
        ):
            raise self._wrong(key, f"a list of integers from {least} to {most}", value)
        return tuple(listed)

    def mapping(self, key: str) -> Fields:
        """The object under `key`; an empty one where the key is absent or null."""
        value = self._value(key, {})
        if not isinstance(value, dict):
            raise self._wrong(key, "an object", value)
        return Fields(value, f"{key} of {self.where}")
