"""One problem of a configuration, before it is known where in the file it stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from runtime.bundle.errors import ConfigError

# Where a value stands in the YAML: mapping keys and list indices from the top.
Location = tuple[int | str, ...]


@dataclass(frozen=True)
class Problem:
    """A problem and the keys that it concerns, the one to blame first.

    The other fields are `ConfigError`'s.
    """

    keys: tuple[str, ...]
    what: str
    expected: str = ""
    found: str = ""
    repair: str = ""

    def error(self, places: Mapping[str, str] | None = None) -> ConfigError:
        """The typed error.

        `places` gives a key's place ("line 4"). The first key that has one is named, else a section's.
        """
        places = places or {}
        around = [section for key in self.keys for section in _sections(key)]
        place = next((places[key] for key in (*self.keys, *around) if key in places), "")
        what = f"{self.what} ({place})" if place else self.what
        return ConfigError(what, expected=self.expected, found=self.found, repair=self.repair)

    def concerns(self, key: str) -> bool:
        """Whether `key`, something inside it, or a section around it is among this problem's keys."""
        return any(_inside(mine, key) or _inside(key, mine) for mine in self.keys)


def _inside(inner: str, outer: str) -> bool:
    return inner == outer or inner.startswith((outer + ".", outer + "["))


def _sections(key: str) -> list[str]:
    """The sections around `key`, the innermost first: `a.b[1]` is in `a.b` and in `a`."""
    ends = [index for index, character in enumerate(key) if character in ".["]
    return [key[:end] for end in reversed(ends)]


def key_path(location: Location) -> str:
    """`("buckets", "num_seqs", 1)` as `buckets.num_seqs[1]`."""
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path


def show(value: object) -> str:
    """`value` as a sentence shows it: as YAML would spell it, long ones cut short."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "a mapping"
    try:
        if isinstance(value, list | tuple):
            text = "[" + ", ".join(show(item) for item in value) + "]"
        else:
            text = repr(value) if isinstance(value, str) else str(value)
    # A number of more digits than Python writes, or lists nested too deep
    except (ValueError, RecursionError):
        return f"a value of the type {type(value).__name__} that cannot be shown"
    return text if len(text) <= 80 else text[:77] + "..."
