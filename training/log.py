"""A run's log: one JSON object a line, with its step. A process that was killed may have left the last line torn."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from runtime.bundle.errors import UsageError

Entry = dict[str, Any]


def read_log(file: Path) -> list[Entry]:
    """The entries of a log, in order; a torn one at its end is passed over.

    Raises:
        UsageError: the file cannot be read, or is no log of a run.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        if lines and not lines[-1].endswith("\n") and not _whole(lines[-1]):
            del lines[-1]
        entries = [json.loads(line) for line in lines]
        if not all(isinstance(entry, dict) and type(entry.get("step")) is int for entry in entries):
            raise ValueError("a line without a step")
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(
            f"{file} is no log of a run",
            expected='lines like {"step": 10, ...}',
            found=str(error),
            repair="give a run's log.jsonl, or move this one away and resume without it",
        ) from None
    return entries


def write_log(file: Path, entries: list[Entry]) -> None:
    """Replace a log's content; whoever is killed here leaves the old one."""
    new = file.with_name(file.name + ".new")
    new.write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")
    os.replace(new, file)


def append_log(file: Path, entry: Entry) -> None:
    with file.open("a", encoding="utf-8") as log:
        log.write(json.dumps(entry) + "\n")


def _whole(line: str) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True
