"""A toy whose target is damaged in one token's embedding, as no check of a build would notice."""

from __future__ import annotations

from tests.runtime.loop.rig import VOCAB, Rig, Shape, make_rig, prompt_of, rig_of_pair

# The token whose embedding is damaged
BAD = 7
NAN = float("nan")


def damaged(rig: Rig, name: str, index: object, value: float = NAN) -> Rig:
    """`rig` with `value` at `index` of one of its target's weights."""
    weights = dict(rig.target_weights)
    weights[name] = changed = weights[name].clone()
    changed[index] = value
    return rig_of_pair(rig.target, weights, rig.draft, rig.draft_weights, rig.shape)


def poisoned(shape: Shape, bad: int = BAD, value: float = NAN) -> Rig:
    """The toy of `shape` whose target has `value` in one embedding row; its head is a tensor of its own."""
    return damaged(make_rig(shape), "model.embed_tokens.weight", (bad, 3), value)


def without(bad: int, length: int, seed: int) -> tuple[int, ...]:
    """A prompt that does not hold `bad`."""
    return tuple((bad + 1) % VOCAB if token == bad else token for token in prompt_of(length, seed))
