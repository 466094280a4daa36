"""The README's file tree names every source file there is, and no other."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HEADING = re.compile(r"^(\S+)/$")
ENTRY = re.compile(r"^  (\S+) ")


def named() -> set[str]:
    """The paths in the tree: lines that end in a slash name a folder, indented ones a file in it."""
    tree = (ROOT / "README.md").read_text(encoding="utf-8").rpartition("\n```\n")[0].rpartition("```\n")[2]
    found, folder = set(), ""
    for line in tree.splitlines():
        if heading := HEADING.match(line):
            folder = "" if heading[1] == "." else f"{heading[1]}/"
        elif entry := ENTRY.match(line):
            found.add(folder + entry[1])
    return found


def test_the_tree_names_every_file_once_and_no_other() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    files = {name for name in listed.stdout.splitlines() if not name.startswith("tests/") and (ROOT / name).is_file()}
    assert named() == files
