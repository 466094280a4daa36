"""Soft cross-entropy through the draft's head, without ever holding a batch's logits.

A row's loss is -sum(p * log softmax(x W^T)), p the target's distribution over the draft vocabulary. The head is half of
a small draft's work and its logits are by far its largest tensors, so loss and gradients are made together, some rows
at a time, and only the gradients are kept.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

ROWS_AT_ONCE = 512


def target_shares(finals: Tensor, head: Tensor) -> Tensor:
    """The target's distribution over the draft vocabulary, [R, Vd] in the head's dtype.

    Args:
        finals: [R, H], the target's normed last states.
        head: [Vd, H], the target's head rows of the draft vocabulary.
    """
    shares = torch.empty(len(finals), len(head), dtype=head.dtype)
    for start in range(0, len(finals), ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        shares[part] = F.linear(finals[part], head).float().softmax(-1).to(head.dtype)
    return shares


class SoftCrossEntropy(torch.autograd.Function):
    """(states [R, H], head [Vd, H], shares [R, Vd], weights [R]) -> weighted sum of the rows' losses, and each row's
    argmax [R] int64.

    Products run in `dtype`, sums in float32. Gradients: states and head.
    """

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, head: Tensor, shares: Tensor, weights: Tensor, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        total = torch.zeros(())
        narrow = head.to(dtype)
        by_head = torch.zeros_like(head)
        by_state = torch.empty_like(states)
        guesses = torch.empty(len(states), dtype=torch.int64)
        for start in range(0, len(states), ROWS_AT_ONCE):
            part = slice(start, start + ROWS_AT_ONCE)
            rows = states[part].to(dtype)
            logits = F.linear(rows, narrow).float()
            guesses[part] = logits.argmax(-1)
            wanted = shares[part].float()
            peak = logits.logsumexp(-1, keepdim=True)
            # sum(p) is 1 up to rounding, and is kept so that loss and gradient belong together
            mass = wanted.sum(-1, keepdim=True)
            losses = (mass * peak).squeeze(-1) - (wanted * logits).sum(-1)
            total += (losses * weights[part]).sum()
            gradient = logits.sub_(peak).exp_().mul_(mass).sub_(wanted).mul_(weights[part, None]).to(dtype)
            by_state[part] = (gradient @ narrow).to(states.dtype)
            by_head += (gradient.T @ rows).to(head.dtype)
        ctx.save_for_backward(by_state, by_head)
        ctx.mark_non_differentiable(guesses)
        return total, guesses

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        by_state, by_head = ctx.saved_tensors
        return by_state * gradients[0], by_head * gradients[0], None, None, None
