"""What a draft would be accepted: its chains on answers it was not trained on, without running a target.

The target's greedy text is already known, and a chain's j-th guess counts only when those before it were right, that is
when its rows held the very tokens of that text. So one unrolled pass says for every place of an answer how many drafts
would be accepted there, and a walk over the answer visits the places that serving would: after n accepted drafts the
next chain starts n+1 places on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from training.batch import Batch, collate
from training.corpus import TrainingSequence
from training.draft import TrainableDraft


@dataclass
class Walk:
    """Counts over the verify steps of a walk over stored answers.

    Attributes:
        steps: verify steps.
        accepted: [K], in how many of them the first i+1 drafts were all accepted.
        correct, judged: [K], over all places and not only those a walk visits: guesses that were right, given that
            those before were, and how many there were.
    """

    num_speculative_tokens: int
    steps: int = 0
    accepted: list[int] = field(default_factory=list)
    correct: list[int] = field(default_factory=list)
    judged: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        for counts in (self.accepted, self.correct, self.judged):
            counts.extend([0] * (self.num_speculative_tokens - len(counts)))

    @property
    def mean_acceptance_length(self) -> float:
        """Tokens a verify step yields: accepted drafts and the one that the target adds."""
        return 1 + sum(self.accepted) / max(1, self.steps)

    @property
    def rates(self) -> list[float]:
        """Unconditional acceptance of each position."""
        return [count / self.steps if self.steps else 0.0 for count in self.accepted]

    def observe(self, hits: Tensor, length: int) -> None:
        """Walk one answer.

        Args:
            hits: [M, K] bool, whether guess j of the chain at place r is the target's choice there.
            length: the answer's tokens m; the chain at place r has m-1-r guesses that can be judged.
        """
        run = hits.long().cumprod(-1)
        places = length - 1
        for j in range(self.num_speculative_tokens):
            judged = max(0, places - j)
            before = run[:judged, j - 1] if j else torch.ones(judged, dtype=torch.int64)
            self.judged[j] += int(before.sum())
            self.correct[j] += int(run[:judged, j].sum())
        lengths = run.sum(-1).tolist()
        place = 0
        while place < places:
            self.steps += 1
            taken = min(lengths[place], places - place)
            for j in range(taken):
                self.accepted[j] += 1
            place += taken + 1


def guesses(draft: TrainableDraft, draft_ids: Tensor, batch: Batch, steps: int, dtype: torch.dtype) -> Tensor:
    """Every chain's greedy guesses as the target's ids, [B, M, steps] int64."""
    with torch.no_grad(), torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
        made = [draft.lm_head(states).argmax(-1) for states in draft.unroll(batch, steps)]
    return draft_ids[torch.stack(made, dim=-1)]


def measure(
    draft: TrainableDraft,
    draft_ids: Tensor,
    sequences: Iterable[TrainingSequence],
    num_speculative_tokens: int,
    dtype: torch.dtype = torch.bfloat16,
    at_once: int = 16,
) -> Walk:
    """The acceptance of `draft` on greedy answers (of a temperature of 0; others are passed over)."""
    steps = num_speculative_tokens
    result = Walk(steps)
    chosen = sorted((s for s in sequences if s.temperature == 0 and s.answer_length > 1), key=lambda s: len(s.tokens))
    for start in range(0, len(chosen), at_once):
        part = chosen[start : start + at_once]
        batch = collate(part, steps)
        made = guesses(draft, draft_ids, batch, steps, dtype)
        wanted = batch.choices.unfold(1, steps, 1)  # [B, M, steps]: entry (r, j) is the choice at r + j
        hits = made == wanted
        for index, sequence in enumerate(part):
            result.observe(hits[index], sequence.answer_length)
    return result
