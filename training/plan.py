"""What decides a training run, and how its corpus is cut into batches."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from runtime.bundle.errors import UsageError
from training.corpus import TrainingSequence

# Sequences that are sorted by length together
POOL = 512


@dataclass(frozen=True)
class Plan:
    """What decides a run's outcome, beside corpus and target.

    Attributes:
        unroll: J, the steps unrolled over the draft's own states; at least K of serving.
        decay: weight of each unrolled step's loss over the one before.
        tokens_per_step: about how many answer tokens a batch holds.
        learning_rate, matrix_learning_rate: see training.optimizer.
        warmup, cooldown: shares of the run over which the rate rises and falls.
        held_out: greedy answers that are measured on and not trained on.
    """

    steps: int
    unroll: int = 3
    decay: float = 0.8
    tokens_per_step: int = 2048
    learning_rate: float = 2e-3
    matrix_learning_rate: float = 5e-3
    warmup: float = 0.02
    cooldown: float = 0.4
    seed: int = 0
    held_out: int = 256


def batches(sequences: Sequence[TrainingSequence], plan: Plan, epoch: int) -> list[list[int]]:
    """Indexes of each batch of an epoch: about `tokens_per_step` answer tokens each, sequences of like length together,
    batches in random order."""
    shuffled = random.Random(plan.seed * 1_000_003 + epoch)
    order = list(range(len(sequences)))
    shuffled.shuffle(order)
    made: list[list[int]] = []
    for start in range(0, len(order), POOL):
        alike = sorted(
            order[start : start + POOL], key=lambda i: (sequences[i].answer_length, len(sequences[i].tokens))
        )
        batch: list[int] = []
        for index in alike:
            if batch and (len(batch) + 1) * sequences[index].answer_length > plan.tokens_per_step:
                made.append(batch)
                batch = []
            batch.append(index)
        made.append(batch)
    shuffled.shuffle(made)
    return made


def split(sequences: list[TrainingSequence], held_out: int) -> tuple[list[TrainingSequence], list[TrainingSequence]]:
    """Training sequences and held-out greedy ones, spread evenly over the corpus; fixed by the corpus alone."""
    usable = [s for s in sequences if s.answer_length > 1]
    greedy = [index for index, s in enumerate(usable) if s.temperature == 0]
    if held_out >= len(greedy):
        raise UsageError(
            "the corpus is too small",
            expected=f"more than {held_out} greedy answers",
            found=str(len(greedy)),
            repair="generate more, or lower --held-out",
        )
    kept = {greedy[index * len(greedy) // held_out] for index in range(held_out)}
    return [s for i, s in enumerate(usable) if i not in kept], [usable[i] for i in sorted(kept)]


def of_kinds(sequences: Sequence[TrainingSequence], count: int, seed: int) -> list[TrainingSequence]:
    """The sequences of `count` kinds drawn at random; fewer kinds of one seed are among its more kinds.

    Raises:
        UsageError: there are not so many kinds.
    """
    kinds = sorted({sequence.kind for sequence in sequences})
    if count > len(kinds):
        raise UsageError(
            "the corpus has too few kinds of prompt",
            expected=f"at most {len(kinds)}",
            found=str(count),
            repair="lower --kinds",
        )
    random.Random(seed).shuffle(kinds)
    kept = set(kinds[:count])
    return [sequence for sequence in sequences if sequence.kind in kept]


def first_tokens(sequences: Sequence[TrainingSequence], limit: int) -> list[TrainingSequence]:
    """The first sequences, up to `limit` answer tokens."""
    kept, total = [], 0
    for sequence in sequences:
        if total >= limit:
            break
        kept.append(sequence)
        total += sequence.answer_length
    return kept
