"""Whether tokens that a graph drew are right, up to what rounding may change.

Logits of two right computations differ by rounding, and with them the sums of weights up to each token, so a uniform
near the boundary between two tokens may give either. A drawn token is right where the uniform lies between the sums
before and after it, as eager PyTorch has them, or no farther outside than a slack, and where what was asked leaves it
some weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from aot.models.llama import TargetHead
from aot.models.sampling import GREEDY_BELOW, Asked, kept_weights
from runtime.bundle.manifest import UNIFORMS, Graph

# How far outside, in parts of the whole weight
SLACK = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 3e-2}
# How far behind the least token that is kept, in logits over the temperature: rounding moves the limit a little
NEARLY_KEPT = 0.25
# What the requests of a checked graph ask in turn: temperature, top_k as a part of the vocabulary, top_p, min_p
_IN_TURN = ((1.0, 0.0, 1.0, 0.0), (0.0, 0.0, 1.0, 0.0), (0.7, 0.5, 1.0, 0.0), (1.3, 0.0, 0.9, 0.01))


def asked_inputs(graph: Graph, vocab: int, generator: torch.Generator) -> dict[str, Tensor]:
    """Inputs for a graph that draws tokens: every way of sampling in turn, greedy too; none for another graph."""
    rows = next((int(value.shape[0]) for value in graph.inputs if value.name == UNIFORMS), 0)
    if not rows:
        return {}
    asked = torch.tensor([_IN_TURN[request % len(_IN_TURN)] for request in range(graph.requests)])
    return {
        "temperature": asked[:, 0].clone(),
        "top_k": (asked[:, 1] * vocab).to(torch.int32),
        "top_p": asked[:, 2].clone(),
        "min_p": asked[:, 3].clone(),
        UNIFORMS: torch.randint(0, 1 << 24, (rows,), generator=generator) / (1 << 24),
    }


def accepts_its_own(accepted: Tensor, tokens: Tensor, num_draft_tokens: Tensor) -> bool:
    """Whether a verify head accepted the drafts that equal its own tokens, up to the first that does not: no more, and
    no fewer.

    Args:
        accepted: [R, 1+K] with -1 behind the last token.
        tokens: [R*(1+K)] that the pass was given, drafts among them.
        num_draft_tokens: [R].
    """
    drafts = tokens.view(accepted.shape)[:, 1:]
    held = torch.arange(drafts.shape[1]) < num_draft_tokens[:, None]
    right = ((drafts == accepted[:, :-1]) & held).int().cumprod(dim=1).sum(dim=1, keepdim=True)
    there = torch.arange(accepted.shape[1]) <= right
    return bool(torch.where(there, accepted >= 0, accepted == -1).all())


def draws_agree(head: TargetHead, inputs: Sequence[Tensor], got: Tensor, slack: Tensor | float | None = None) -> bool:
    """Whether the tokens of a sampled head are right, and drafts accepted as they ought to be.

    Args:
        inputs: of the head, in its order: hidden, last_index or tokens and num_draft_tokens, what `Asked` holds.
        got: [1] of a prefill, [R, 1+K] of a verify pass with -1 behind the last token.
        slack: for each row, or all; by default `SLACK` of the head's dtype.
    """
    logits, rows = _asked_rows(head, inputs)
    tokens = got.flatten()
    if got.dim() == 2 and not accepts_its_own(got, inputs[1], inputs[2]):
        return False
    allowed = SLACK[head.lm_head.weight.dtype] if slack is None else slack
    weights, values = kept_weights(logits, rows).flatten(1)[:, : logits.shape[1]], logits.float()
    ends = _running(weights)
    index = tokens.clamp(min=0).long()[:, None]
    # Outside of the vocabulary nothing is right
    inside = index < ends.shape[1]
    index = torch.where(inside, index, 0)
    after = ends.gather(1, index)[:, 0]
    before = torch.where(index > 0, ends.gather(1, (index - 1).clamp(min=0)), 0.0)[:, 0]
    right = inside[:, 0] & (rows.uniforms >= before - allowed) & (rows.uniforms <= after + allowed)
    best, own = values.amax(dim=-1), values.gather(1, index)[:, 0]
    rounding = 4 * torch.finfo(head.lm_head.weight.dtype).eps * best.abs()
    near = best - own <= rounding
    # What is cut off has no weight, so its place among the sums says nothing: it may only be nearly not cut off
    least = torch.where(weights > 0, values, float("inf")).amin(dim=-1)
    right &= own >= least - rounding - NEARLY_KEPT * rows.temperature
    greedy = rows.temperature < GREEDY_BELOW
    return bool(((tokens < 0) | torch.where(greedy, near & inside[:, 0], right)).all())


def noise_slack(head: TargetHead, inputs: Sequence[Tensor], wide_head: Any, wide_inputs: Sequence[Tensor]) -> Tensor:
    """The slack, for each row, that a model's own rounding asks for: twice what float32 changes in the sums."""
    near = running_weights(*_asked_rows(head, inputs))
    far = running_weights(*_asked_rows(wide_head, wide_inputs))
    return 2 * (near - far).abs().amax(dim=-1) + SLACK[torch.float32]


def running_weights(logits: Tensor, rows: Asked) -> Tensor:
    """The part of a row's weight that tokens up to each have, [M, V] float64; the last is 1."""
    return _running(kept_weights(logits, rows).flatten(1)[:, : logits.shape[1]])


def _running(weights: Tensor) -> Tensor:
    ends = weights.double().cumsum(dim=1)
    return ends / ends[:, -1:]


def _asked_rows(head: TargetHead, inputs: Sequence[Tensor]) -> tuple[Tensor, Asked]:
    """The rows' logits and what is asked of each."""
    logits, first = head.logits(inputs[0]), 3
    if inputs[1].dtype is torch.int32 and inputs[2].dtype is not torch.int32:  # a prefill: last_index, then `Asked`
        logits, first = logits[inputs[1].long()], 2
    return logits, Asked(*inputs[first : first + len(Asked._fields)]).of_rows()
