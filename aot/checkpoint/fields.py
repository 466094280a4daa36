"""Typed reading of a config.json: a wrong type or a missing key is one sentence with file and key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime.bundle.errors import ConfigError

_MISSING: Any = object()


def read_json(path: Path, *, repair: str = "") -> dict[str, Any]:
    """The JSON object in `path`.

    Raises:
        ConfigError: the file is missing, is not JSON, or holds something other than an object.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist", repair=repair or f"give a folder that has {path.name}") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
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
            f"{key} of {self.where} is wrong", expected=expected, found=repr(found), repair=f"correct {key}"
        )

    def integer(self, key: str, default: int = _MISSING, *, least: int = 1) -> int:
        """An integer of at least `least`; `default` where the key is absent or null."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self._wrong(key, f"an integer of at least {least}", value)
        return value

    def number(self, key: str, default: float = _MISSING) -> float:
        """A positive finite number, as float."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise self._wrong(key, "a positive number", value)
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
        """A list of integers of at least 0; a single integer reads as a list of one."""
        value = self._value(key, default)
        listed = [value] if isinstance(value, int) else value
        if not isinstance(listed, list | tuple) or any(
            isinstance(item, bool) or not isinstance(item, int) or item < 0 for item in listed
        ):
            raise self._wrong(key, "a list of integers of at least 0", value)
        return tuple(listed)

    def mapping(self, key: str) -> Fields:
        """The object under `key`; an empty one where the key is absent or null."""
        value = self._value(key, {})
        if not isinstance(value, dict):
            raise self._wrong(key, "an object", value)
        return Fields(value, f"{key} of {self.where}")
