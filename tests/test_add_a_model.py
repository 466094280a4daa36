"""docs/add-a-model.md quotes the sources as they are, and what it adds up to is what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
QUOTE = re.compile(r"^```python (\S+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
QUOTES: list[tuple[str, str]] = QUOTE.findall((ROOT / "docs" / "add-a-model.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("file", "lines"), QUOTES)
def test_quoted_lines_are_the_files_own(file: str, lines: str) -> None:
    assert lines in (ROOT / file).read_text(encoding="utf-8")


def test_a_family_takes_less_than_a_hundred_lines() -> None:
    quoted = sum(len(lines.splitlines()) for _, lines in QUOTES)
    family = (ROOT / "aot" / "checkpoint" / "families" / "qwen3.py").read_text(encoding="utf-8")
    assert len(family.splitlines()) + quoted < 100
    assert len(QUOTES) >= 10
