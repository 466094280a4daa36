"""Strict YAML: what the file says, and at which line it says it.

Plain YAML readers drop what a person would want to hear: of two equal keys the last one wins in silence, and
line numbers are gone once values are Python objects. This reader keeps both. Only plain data is built
(yaml.SafeLoader); anchors and aliases are refused, which also rules out files that expand without bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import yaml

from aot.config.problems import Location, Problem, key_path, show
from runtime.bundle.errors import ConfigError


@dataclass(frozen=True)
class YamlFile:
    """A parsed file.

    Attributes:
        values: the top-level mapping; keys of every mapping inside are text.
        places: key path (`buckets.num_seqs[1]`) -> place ("line 9").
        problems: keys that occur twice.
    """

    values: dict[str, object]
    places: dict[str, str]
    problems: list[Problem]


class _AliasError(yaml.MarkedYAMLError):
    """The file uses an alias, which this reader refuses."""


class _Loader(yaml.SafeLoader):
    """SafeLoader without aliases."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.get_event().start_mark  # type: ignore[no-untyped-call]
            raise _AliasError(problem="aliases (*name) are not read", problem_mark=mark)
        return super().compose_node(parent, index)


def read_yaml(path: Path) -> YamlFile:
    """Read the YAML mapping at `path`.

    Raises:
        ConfigError: the file is missing, cannot be read, is not YAML, or is not a mapping.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist", repair=_nearest_file(path)) from None
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read",
            expected="a readable YAML file",
            found=error.strerror or str(error),
            repair="name a YAML file that you may read",
        ) from None
    try:
        loader = _Loader(content)
        root = loader.get_single_node()
        if not isinstance(root, yaml.MappingNode):
            found = "an empty file" if root is None else show(loader.construct_document(root))
            raise ConfigError(
                f"{path} does not hold a mapping",
                expected="key: value lines",
                found=found,
                repair="start from one of the files in configs/",
            )
        _refuse_surrogates(path, root)
        places: dict[str, str] = {}
        problems: list[Problem] = []
        for location, key in _keys(root):
            _place(key_path(location), key.start_mark.line + 1, places, problems)
        values = loader.construct_document(root)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _broken(path, error) from None
    return YamlFile(text_keys(values), places, problems)


def _refuse_surrogates(path: Path, node: yaml.Node) -> None:
    """Refuse half a character, which YAML can spell as "\\ud800" and no text, file name or JSON can hold."""
    inner = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
    if not isinstance(node, yaml.ScalarNode):
        for part in inner:
            _refuse_surrogates(path, part)
    elif not is_text(node.value):
        raise ConfigError(
            f"{path} holds half a character at line {node.start_mark.line + 1}, column {node.start_mark.column + 1}",
            expected="Unicode text",
            found=show(node.value),
            repair="correct that text",
        )


def is_text(value: str) -> bool:
    """Whether `value` is Unicode text: without lone surrogates, which names of files that are not UTF-8 come as."""
    return not any("\ud800" <= character <= "\udfff" for character in value)


def _keys(node: yaml.Node, location: Location = ()) -> Iterator[tuple[Location, yaml.Node]]:
    """Every key and list item under `node`, in the file's order, with its path."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = (*location, str(key.value))
            yield inner, key
            yield from _keys(value, inner)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield (*location, index), item
            yield from _keys(item, (*location, index))


def _place(path: str, line: int, places: dict[str, str], problems: list[Problem]) -> None:
    if path in places and not path.endswith("]"):
        problems.append(
            Problem(
                (path,),
                f"{path} is given twice",
                expected="each key once",
                found=f"it at {places[path]} and line {line}",
                repair=f"keep one of the two {path} lines",
            )
        )
    places.setdefault(path, f"line {line}")


def text_keys(value: dict[object, object]) -> dict[str, object]:
    """`value` with every mapping's keys as text: `4: x` is then an unknown key like any other."""
    return {str(key): text_keys(item) if isinstance(item, dict) else item for key, item in value.items()}


def _nearest_file(path: Path) -> str:
    siblings = sorted(p.name for p in path.parent.glob("*.y*ml")) if path.parent.is_dir() else []
    nearest = get_close_matches(path.name, siblings, n=1)
    return f"did you mean {path.parent / nearest[0]}?" if nearest else "check the path given with --config"


def _broken(path: Path, error: Exception) -> ConfigError:
    reason, place = str(error).splitlines()[0], ""
    if isinstance(error, yaml.MarkedYAMLError):
        reason = error.problem or reason
        if error.problem_mark is not None:
            place = f" at line {error.problem_mark.line + 1}, column {error.problem_mark.column + 1}"
    elif isinstance(error, RecursionError):
        reason = "values are nested too deep"
    return ConfigError(
        f"{path} is not valid YAML{place}",
        found=reason,
        repair="correct that place; indent nested keys with spaces, quote text that holds ': ' or '#'",
    )
