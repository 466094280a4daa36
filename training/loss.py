"""Soft cross-entropy through the draft's head, without ever holding a batch's logits.

A row's loss is -sum(p * log softmax(x W^T)), p the target's distribution over the draft vocabulary. The head is half of
a small draft's work and its logits are by far its largest tensors, so loss and gradients are made together, some rows
at a time, and only the gradients are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

ROWS_AT_ONCE = 512
Pieces = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]


def target_shares(finals: Tensor, head: Tensor) -> Tensor:
    """The target's distribution over the draft vocabulary, [R, Vd] in the head's dtype.

    Args:
        finals: [R, H], the target's normed last states.
        head: [Vd, H], the target's head rows of the draft vocabulary.
    """
    shares = torch.empty(len(finals), len(head), dtype=head.dtype)
    for start in range(0, len(finals), ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        shares[part] = F.linear(finals[part].to(head.dtype), head).float().softmax(-1)
    return shares


def pieces(logits: Tensor, shares: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Losses [R], the weighted losses' gradient by logits [R, Vd] in their dtype, and argmax [R]."""
    logs = logits.float().log_softmax(-1)
    wanted = shares.float()
    # Shares add up to 1 but for rounding; their own sum makes loss and gradient belong together
    mass = wanted.sum(-1, keepdim=True)
    gradient = (logs.exp() * mass - wanted) * weights[:, None]
    return -(wanted * logs).sum(-1), gradient.to(logits.dtype), logits.argmax(-1)


@lru_cache(maxsize=1)
def fused_pieces() -> Pieces:
    """`pieces` compiled into one pass over the logits, four times as fast; compiled at its first call."""
    return torch.compile(pieces, dynamic=True)


class SoftCrossEntropy(torch.autograd.Function):
    """(states [R, H], head [Vd, H], shares [R, Vd], weights [R], dtype) -> weighted sum of the rows' losses, and each
    row's argmax [R] int64.

    Products run in `dtype`, sums in float32. Gradients go to states and head.
    """

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, head: Tensor, shares: Tensor, weights: Tensor, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        run = pieces if dtype == torch.float32 else fused_pieces()
        total = torch.zeros(())
        narrow = head.to(dtype)
        by_head, by_state = torch.zeros_like(head), torch.empty_like(states)
        guesses = torch.empty(len(states), dtype=torch.int64)
        for start in range(0, len(states), ROWS_AT_ONCE):
            part = slice(start, start + ROWS_AT_ONCE)
            rows = states[part].to(dtype)
            losses, gradient, guesses[part] = run(F.linear(rows, narrow), shares[part], weights[part])
            total += torch.dot(losses, weights[part])
            by_state[part] = gradient @ narrow
            by_head += gradient.T @ rows
        ctx.save_for_backward(by_state, by_head)
        ctx.mark_non_differentiable(guesses)
        return total, guesses

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        by_state, by_head = ctx.saved_tensors
        return by_state * gradients[0], by_head * gradients[0], None, None, None
