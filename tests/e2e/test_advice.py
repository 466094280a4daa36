"""An option that a message names exists in the command that prints the message."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click
import pytest

from aot.cli import cli as build
from runtime.cli import command as run

ROOT = Path(__file__).parents[2]
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
# What a message is made of: an error's parts, and what is printed or logged
PARTS = {"what", "expected", "found", "repair", "help", "epilog", "message", "hint"}
PRINTERS = re.compile(
    r"(Error|Exception|Parameter|echo|line|info|warning|error|wrong|invalid|note|hint|_fail|_wrong|append)$"
)
# Of pip, and of the compiler that is looked for
FOREIGN = {"--no-deps", "--version"}
TRAINING = ("generate", "fit", "measure", "plot")


def options(command: click.Command) -> set[str]:
    """Those of a command itself."""
    return {name for parameter in command.params for name in parameter.opts} | {"--help"}


def everywhere(group: click.Group) -> set[str]:
    return options(group).union(*map(options, group.commands.values()))


def known(file: Path) -> set[str]:
    """The options of the commands that may print what stands in `file`."""
    place = file.relative_to(ROOT).parts
    if place[0] == "runtime":
        own = {"serve": "serve", "bench": "bench", "tune": "tune", "export.py": "export-config"}.get(place[1])
        return options(run.commands[own]) if own else options(run)
    if place[0] == "aot":
        return everywhere(build)
    return set().union(*(options(import_module(f"training.{name}").main) for name in TRAINING))


def texts(file: Path) -> Iterator[tuple[int, str]]:
    """(line, text) of what a source file says to a user."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func).rpartition(".")[2]
        said = [word.value for word in node.keywords if word.arg in PARTS]
        if PRINTERS.search(name):
            said += node.args
        for part in said:
            yield (
                node.lineno,
                " ".join(
                    piece.value
                    for piece in ast.walk(part)
                    if isinstance(piece, ast.Constant) and isinstance(piece.value, str)
                ),
            )


def strangers(half: str) -> list[str]:
    found = []
    for file in sorted((ROOT / half).rglob("*.py")):
        for line, text in texts(file):
            allowed = known(file) | FOREIGN
            if "eagle3-build" in text:
                allowed |= everywhere(build)
            if "eagle3-run" in text:
                allowed |= everywhere(run)
            found += [f"{file.relative_to(ROOT)}:{line} {name}" for name in OPTION.findall(text) if name not in allowed]
    return found


@pytest.mark.parametrize("half", ["runtime", "aot", "training"])
def test_m9_every_option_in_an_advice_exists(half: str) -> None:
    """M9: `run without --kv-blocks` was said by a command that has no such option."""
    assert strangers(half) == []


def test_m9_an_option_that_is_missing_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runtime" / "serve").mkdir(parents=True)
    for place, advice in (("x.py", "leave --raw and --kv-blocks out"), ("serve/x.py", "pass --raw, or --port")):
        (tmp_path / "runtime" / place).write_text(f"raise UsageError('x', repair={advice!r})\nf('--none of this')\n")
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    assert strangers("runtime") == ["runtime/serve/x.py:1 --raw", "runtime/x.py:1 --kv-blocks"]
