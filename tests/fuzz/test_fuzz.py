"""Thousands of spoiled inputs, each refused in a sentence or answered right: nothing else may happen.

One case again, alone:  python -m tests.fuzz.run manifest --folder F --prepare, then the same with --only NUMBER.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.forking import ALLOWED, Ended, word_for

ROOT = Path(__file__).parents[2]
CASES = {"manifest": 1600, "files": 800, "config": 1500, "checkpoint": 1100, "http": 200, "cache": 400}
PARTS = 2


def run(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.fuzz.run", *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate()
    assert process.returncode == 0, err
    return out


@pytest.fixture
def pristine(request: pytest.FixtureRequest, target: str, tmp_path: Path) -> Path:
    if target in ("manifest", "files"):
        shutil.copytree(request.getfixturevalue("tiny_bundle"), tmp_path / "bundle")
    ended(run(target, "--folder", tmp_path, "--prepare"))
    return tmp_path


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("target", CASES)
def test_a_spoiled_input_is_refused_or_answered_right(target: str, pristine: Path) -> None:
    cases = CASES[target]
    started = [run(target, "--folder", pristine, "--cases", cases, "--part", f"{i}/{PARTS}") for i in range(PARTS)]
    found: list[dict[str, Any]] = [json.loads(ended(process)) for process in started]
    assert [one for part in found for one in part["bad"]] == []
    counts = {word: sum(part["counts"][word] for part in found) for word in ALLOWED}
    assert sum(counts.values()) == cases
    # A reader that takes everything, or nothing, is not being tried
    assert counts["right"] > 0
    # A damaged cache entry is no reason to refuse anything: it is compiled anew
    assert counts["refused"] > cases // 10 or target == "cache"


def test_there_are_five_thousand_of_them() -> None:
    assert sum(CASES.values()) >= 5000


@pytest.mark.parametrize(
    ("end", "word"),
    [
        (Ended(0, None, "yes", ""), "right"),
        (Ended(0, None, "no", ""), "wrong"),
        (Ended(5, None, "", "error: it is damaged"), "refused"),
        (Ended(5, None, "", ""), "traceback"),
        (Ended(1, None, "", "error: KeyError (this is a defect of eagle3-run)"), "traceback"),
        (Ended(3, None, "", "Traceback (most recent call last):"), "traceback"),
        (Ended(None, 11, "", ""), "signal"),
        (Ended(None, None, "", ""), "hang"),
    ],
)
def test_how_an_input_ended_has_one_word(end: Ended, word: str) -> None:
    assert word_for(end, lambda out: out == "yes") == word


ODD_ENDS = """
import os, sys, time
from pathlib import Path
from tests.fuzz.forking import forked, word_for
def work():
    what = sys.argv[1]
    if what == "right": print("yes")
    if what == "raise": raise KeyError("x")
    if what == "signal": os.kill(os.getpid(), 11)
    if what == "hang": time.sleep(60)
    if what == "memory": bytearray(1 << 40)
    return 0
seconds = 2.0 if sys.argv[1] == "hang" else 30.0
print(word_for(forked(work, Path(sys.argv[2]), seconds), lambda out: out.strip() == "yes"))
"""


@pytest.mark.parametrize(
    ("what", "word"),
    [
        ("right", "right"),
        ("nothing", "wrong"),
        ("raise", "traceback"),
        ("signal", "signal"),
        ("hang", "hang"),
        ("memory", "traceback"),
    ],
)
def test_a_fork_that_ends_badly_is_seen(what: str, word: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ODD_ENDS, what, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == word
