"""B10, B14: whatever a file holds, a build reads it or refuses it in one sentence, soon and in little memory.

A few seeded mutants of each kind here; the generators are tests/aot/hostile.py.
"""

from __future__ import annotations

import random
import traceback
from pathlib import Path

import pytest

from tests.aot.hostile import INPUTS, read, write_whole

MUTANTS = 60


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    write_whole(folder)
    return folder


@pytest.mark.parametrize("kind", INPUTS)
def test_what_is_whole_is_right(kind: str, whole: Path) -> None:
    assert read(kind, whole, (whole / INPUTS[kind].file).read_bytes()) == "right"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", INPUTS)
def test_B10_a_mutant_is_read_or_refused(kind: str, whole: Path) -> None:
    chance, content = random.Random(f"{kind} 1"), (whole / INPUTS[kind].file).read_bytes()
    came, wrong = {"right": 0, "refused": 0}, []
    for number in range(MUTANTS):
        mutant = INPUTS[kind].mutate(content, chance)
        try:
            came[read(kind, whole, mutant)] += 1
        # Panics of the libraries derive from BaseException alone
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            wrong.append(f"mutant {number}: {''.join(traceback.format_exception(error)[-3:])}")
    assert wrong == []
    # Neither is the mutation without effect nor everything refused for one and the same reason
    assert came["refused"] > MUTANTS // 10
