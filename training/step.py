"""One training step: the loss of a batch, unrolled."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from training.batch import Batch
from training.draft import TrainableDraft
from training.loss import SoftCrossEntropy, target_shares
from training.plan import Plan


@dataclass
class Tally:
    """Sums since the last progress line: loss, and per unrolled step the right guesses among the judged."""

    unroll: int
    loss: float = 0.0
    batches: int = 0
    right: list[int] = field(default_factory=list)
    judged: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.right, self.judged = [0] * self.unroll, [0] * self.unroll


def batch_loss(
    draft: TrainableDraft,
    batch: Batch,
    draft_ids: Tensor,
    id_of: Tensor,
    target_head: Tensor,
    plan: Plan,
    dtype: torch.dtype,
    tally: Tally,
) -> Tensor:
    """The loss of one batch: the unrolled steps' losses, weighted and summed, over the places of step 0.

    Args:
        draft_ids: [Vd] int64, the target's id of each draft id.
        id_of: [V] int64, the draft's id of each target id, -1 where the draft vocabulary lacks it: places where the
            target's choice is such an id are not trained on.
        target_head: [Vd, H], the target's head rows of the draft vocabulary.
    """
    places = batch.choices.numel()
    shares = target_shares(batch.finals.view(places, -1), target_head).view(*batch.choices.shape, -1)
    known = (batch.choices >= 0) & (id_of[batch.choices.clamp(min=0)] >= 0)
    total = torch.zeros(())
    scale = 1.0 / max(1, int(known[:, : batch.chains].sum()))
    for step, states in enumerate(draft.unroll(batch, plan.unroll)):
        window = slice(step, step + batch.chains)
        rows = known[:, window].reshape(-1).nonzero().flatten()
        weights = torch.full((len(rows),), scale * plan.decay**step)
        wanted = shares[:, window].reshape(-1, shares.shape[-1])[rows]
        loss, guesses = SoftCrossEntropy.apply(  # type: ignore[no-untyped-call]
            states.flatten(0, 1)[rows], draft.lm_head.weight, wanted, weights, dtype
        )
        total = total + loss
        tally.right[step] += int((draft_ids[guesses] == batch.choices[:, window].reshape(-1)[rows]).sum())
        tally.judged[step] += int((batch.choices[:, window] >= 0).sum())
    tally.loss += float(total.detach())
    tally.batches += 1
    return total
