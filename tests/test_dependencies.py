"""What the two packages import is what pyproject.toml declares."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# Distributions whose modules have other names
DISTRIBUTION = {"google": "protobuf", "yaml": "pyyaml"}
# torch's own parts, and what each extra is for: nothing else may import them
OURS = {"aot", "runtime"}


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements() -> dict[str, str]:
    """Distribution -> what is required of its release, of the dependencies and of every extra."""
    extras = PROJECT["optional-dependencies"].values()
    found = {}
    for text in (*PROJECT["dependencies"], *(text for extra in extras for text in extra)):
        match = re.match(r"([A-Za-z0-9._-]+)(\[[^]]*\])?([^;]*)", text)
        assert match is not None, text
        found[plain(match.group(1))] = match.group(3).strip()
    return found


def imported() -> Iterator[tuple[str, str]]:
    """(file, package) of every import of somebody else's, also inside functions."""
    for half in sorted(OURS):
        for file in sorted((ROOT / half).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                names = []
                if isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom):
                    names = [node.module or ""]
                for name in names:
                    package = name.partition(".")[0]
                    if package not in OURS | sys.stdlib_module_names:
                        yield str(file.relative_to(ROOT)), package


def test_m8_every_package_that_is_imported_is_declared() -> None:
    declared = requirements()
    found = list(imported())
    assert len({package for _, package in found}) > 15
    missing = [(file, name) for file, name in found if plain(DISTRIBUTION.get(name, name)) not in declared]
    assert missing == []


@pytest.mark.parametrize(
    ("name", "least"),
    [("uvicorn", (0, 36))],  # Config.get_loop_factory, which run_to_end calls
)
def test_m8_a_lower_bound_is_a_release_that_has_what_is_called(name: str, least: tuple[int, ...]) -> None:
    bound = re.fullmatch(r">=([0-9.]+)", requirements()[name])
    assert bound is not None
    assert tuple(int(part) for part in bound.group(1).split(".")) >= least
