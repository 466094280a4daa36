"""P5, B7: a manifest that was changed and sealed again is refused, or the bundle gives the right text. Nothing else.

The changes are drawn from a seed (`mutants.py`), over bundles whose units eager PyTorch runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import torch

from runtime.bundle.errors import Eagle3Error
from runtime.bundle.open import MANIFEST
from runtime.bundle.schedule import KSchedule
from tests.runtime.bundle.mutants import mutate
from tests.runtime.bundle.toy import SMALL, TOKENS, answer, requests, right, seal, write_toy
from tests.runtime.loop.rig import Shape

SHAPES = {
    "greedy": SMALL,
    "logits and a graph for plain decoding": replace(SMALL, greedy_only=False, exact_greedy=False),
    "draws, bfloat16": replace(SMALL, sampled=True, dtype="bfloat16"),
    "fused": replace(SMALL, draft_fused=True),
    "schedule": replace(SMALL, schedule=KSchedule.of([[1, 1, 2], [2, 2, 1]])),
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads cost more than they bring on layers of width 32."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def right_of(toy: Path, shape: Shape) -> list[list[int]]:
    """The right answers of the bundle at `toy`: the reference's, where no rounding can part the two.

    Two bfloat16 computations may part at a near tie, so such a bundle's own plain decoding is what is right.
    """
    return right(shape) if shape.dtype == "float32" else answer(toy, shape, plain=True)


def outcomes(toy: Path, shape: Shape, seeds: range) -> list[str]:
    """What was changed, of every mutant that was neither refused with exit code 5 nor right."""
    wrong, good = [], (toy / MANIFEST).read_bytes()
    expected = right_of(toy, shape)
    for seed in seeds:
        rng = Random(seed)
        data = json.loads(good)
        done = [mutate(data, rng) for _ in range(rng.choice((1, 1, 2)))]
        seal(toy, data)
        try:
            outcome = "right" if answer(toy, shape) == expected else "wrong text"
        except Eagle3Error as error:
            outcome = "refused" if error.exit_code == 5 else f"exit code {error.exit_code}"
        except Exception as error:
            outcome = f"{type(error).__name__}: {error}"
        if outcome not in ("right", "refused"):
            wrong.append(f"seed {seed}: {', '.join(done)}: {outcome}")
    return wrong


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_the_toy_bundles_answer_right(shape: Shape, tmp_path: Path) -> None:
    write_toy(tmp_path / "toy", shape)
    expected = right_of(tmp_path / "toy", shape)
    assert [len(tokens) for tokens in expected] == [TOKENS] * len(requests())
    assert answer(tmp_path / "toy", shape) == expected


@pytest.mark.parametrize("start", range(0, 120, 30))
def test_p5_b7_a_mutant_is_refused_or_right(toy: Path, start: int) -> None:
    assert outcomes(toy, SMALL, range(start, start + 30)) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_p5_b7_many_mutants_are_refused_or_right(name: str, tmp_path: Path) -> None:
    write_toy(tmp_path / "toy", SHAPES[name])
    assert outcomes(tmp_path / "toy", SHAPES[name], range(1000, 1600)) == []
