"""The draft vocabulary: the ids that the target's answers use most.

The head is most of a small draft, so it predicts a few thousand ids and never the rest. What that costs is the
coverage: the share of the target's choices that the draft can name at all, an upper bound of its first acceptance rate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from training.corpus import TrainingSequence


def count_tokens(sequences: Iterable[TrainingSequence], vocab_size: int) -> Tensor:
    """How often each id stands in the answers, or would have been chosen there by the target, [V] int64."""
    counts = torch.zeros(vocab_size, dtype=torch.int64)
    for sequence in sequences:
        for ids in (sequence.tokens[sequence.prompt_length :], sequence.choices):
            counts += torch.bincount(ids.long(), minlength=vocab_size)
    return counts


def most_frequent(counts: Tensor, size: int, always: Sequence[int] = ()) -> Tensor:
    """The `size` most frequent ids, ascending [size] int64; `always` are in it whatever their count, ties go to the
    lower id."""
    ranked = counts.clone()
    ranked[list(always)] = counts.max() + 1
    return torch.sort(torch.argsort(ranked, descending=True, stable=True)[:size]).values


def coverage(counts: Tensor, ids: Tensor) -> float:
    """Share of the counted tokens that the ids cover, from 0 to 1."""
    total = int(counts.sum())
    return int(counts[ids].sum()) / total if total else 0.0
