"""Inputs with which a head has something to decide: drafts that are right, up to every count, and every way to sample.

Random drafts are never right, so beside them a head that accepts nothing, or takes no notice of how many drafts there
are, gives what a right one gives. What the head would choose is computed first, and the drafts are made of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from aot.models.llama import TargetHead, TargetPrefillHead, TargetVerifyHead
from aot.models.sampling import Asked, kept_weights

# Ways to sample: temperature, top_k as a part of the vocabulary, top_p, min_p. Greedy; whole; each limit alone, so
# narrow that leaving it out shows in most draws; all together
WAYS = (
    (0.0, 0.0, 1.0, 0.0),
    (1.0, 0.0, 1.0, 0.0),
    (0.7, 0.05, 1.0, 0.0),
    (1.3, 0.0, 0.3, 0.0),
    (1.0, 0.0, 1.0, 0.5),
    (0.8, 0.5, 0.9, 0.01),
)
# Uniforms are multiples of it
UNIFORM = 2.0**-24


def head_cases(head: nn.Module, inputs: Sequence[Tensor], generator: torch.Generator) -> Iterator[list[Tensor]]:
    """Inputs to run `head` with in place of `inputs`; these alone where it is no head of the target.

    A prefill's head reads another row as well. A verify head meets every count of right drafts, other ones for each
    request, and passes with fewer drafts than rows where all that follow would be right too. A head that samples meets
    every way in turn, and uniforms in the middle of what its best token has.

    A real model's head takes seconds in eager PyTorch, so its logits are computed once for all cases, if at all.
    """
    if not isinstance(head, TargetHead):
        yield list(inputs)
        return
    if isinstance(head, TargetPrefillHead):
        hidden, last, *rest = inputs
        logits = head.logits(hidden[last.long()]) if head.sampled else None
        other = torch.div(last, 2, rounding_mode="floor").to(torch.int32)
        for asked in _asked(head, logits, rest, generator):
            yield [hidden, last, *asked, *rest[len(asked) :]]
        # It draws as the last row does; that it is read at all is seen at once
        yield [hidden, other, *rest]
        return
    if isinstance(head, TargetVerifyHead):
        yield list(inputs)
        hidden, tokens, counts, *rest = inputs
        logits = head.logits(hidden)
        ways = list(_asked(head, logits, rest, generator))
        drafts = tokens.numel() // counts.numel() - 1
        for turn in range(max(drafts + 2, len(ways))):
            asked = ways[turn % len(ways)]
            target = head.tokens(logits, None, Asked(*asked) if asked else None)
            place = (turn + torch.arange(counts.numel())) % (drafts + 1)
            # Once all drafts are right and only some of the rows hold one
            all_right = turn == drafts + 1
            right = torch.full_like(place, drafts) if all_right else place
            held = (place if all_right else torch.full_like(place, drafts)).to(torch.int32)
            drafted = with_drafts(tokens, target, right, head.lm_head.weight.shape[0])
            yield [hidden, drafted, held, *asked, *rest[len(asked) :]]


def chosen(head: TargetHead, hidden: Tensor, asked: Sequence[Tensor]) -> Tensor:
    """The token that the head chooses in each row of `hidden`, whatever stands before it."""
    return head.tokens(head.logits(hidden), None, Asked(*asked) if asked else None)


def with_drafts(tokens: Tensor, target: Tensor, right: Tensor, vocab: int) -> Tensor:
    """`tokens` [R*(1+K)] with drafts of which each request's first `right` [R] are the target's own, and no other.

    Args:
        target: [R*(1+K)] the target's token of each row.
    """
    rows = tokens.view(right.numel(), -1).clone()
    width = rows.shape[1] - 1
    own = target.view(rows.shape)[:, :width]
    other = (own + 1) % vocab
    rows[:, 1:] = torch.where(torch.arange(width) < right[:, None], own, other)
    return rows.flatten()


def sampling_ways(head: TargetHead, requests: int, rows: int, generator: torch.Generator) -> Iterator[list[Tensor]]:
    """What `rows` rows of as many requests ask, in the order of `Asked`, until each has asked in every way; nothing for
    a head that does not sample."""
    if not head.sampled:
        return
    vocab = head.lm_head.weight.shape[0]
    # A pass of few rows shows little at a time
    for turn in range(len(WAYS) * (2 if rows < 4 else 1)):
        way = torch.tensor([WAYS[(turn + request) % len(WAYS)] for request in range(requests)])
        uniforms = torch.randint(0, 1 << 24, (rows,), generator=generator) * UNIFORM
        top_k = (way[:, 1] * vocab).ceil().to(torch.int32)
        yield [way[:, 0].clone(), top_k, way[:, 2].clone(), way[:, 3].clone(), uniforms]


def _asked(
    head: TargetHead, logits: Tensor | None, further: Sequence[Tensor], generator: torch.Generator
) -> Iterator[list[Tensor]]:
    """What is asked of sampling, in turn; once nothing, for a head that does not sample.

    Args:
        logits: of the rows that it chooses for; None for a head that does not sample.
        further: the inputs that `Asked` begins.
    """
    if not head.sampled or logits is None:
        yield []
        return
    given = Asked(*further[: len(Asked._fields)])
    yield from sampling_ways(head, given.temperature.numel(), given.uniforms.numel(), generator)
    yield list(_peaked(logits.float(), given))


def _peaked(logits: Tensor, given: Asked) -> Asked:
    """Temperatures at which the best token of each request's first row has half of the weight, and the middle of it."""
    requests = given.temperature.numel()
    first = logits.view(requests, -1, logits.shape[1])[:, 0]
    low, high = torch.full((requests,), 1e-3), torch.full((requests,), 1e3)
    for _ in range(40):
        middle = (low * high).sqrt()
        sharp = (first / middle[:, None]).softmax(dim=-1).amax(dim=-1) > 0.5
        low, high = torch.where(sharp, middle, low), torch.where(sharp, high, middle)
    whole = Asked(low, torch.zeros_like(given.top_k), torch.ones_like(low), torch.zeros_like(low), given.uniforms)
    weights = kept_weights(logits, whole.of_rows()).flatten(1)[:, : logits.shape[1]].double()
    best = weights.argmax(dim=1, keepdim=True)
    middle = weights.cumsum(dim=1).gather(1, best) - weights.gather(1, best) / 2
    uniforms = (middle / weights.sum(dim=1, keepdim=True))[:, 0]
    return whole._replace(uniforms=((uniforms / UNIFORM).floor() * UNIFORM).float())
