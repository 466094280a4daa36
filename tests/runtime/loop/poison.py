"""A toy whose target is damaged in one token's embedding, as no check of a build would notice."""

from __future__ import annotations

from tests.runtime.loop.rig import VOCAB, Rig, Shape, make_rig, prompt_of, rig_of_pair

# The token whose embedding is damaged
BAD = 7
NAN = float("nan")


def poisoned(shape: Shape, bad: int = BAD, value: float = NAN) -> Rig:
    """The toy of `shape` whose target has `value` in one embedding row; its head is a tensor of its own."""
    whole = make_rig(shape)
    weights = dict(whole.target_weights)
    weights["model.embed_tokens.weight"] = table = weights["model.embed_tokens.weight"].clone()
    table[bad, 3] = value
    return rig_of_pair(whole.target, weights, whole.draft, whole.draft_weights, shape)


def without(bad: int, length: int, seed: int) -> tuple[int, ...]:
    """A prompt that does not hold `bad`."""
    return tuple((bad + 1) % VOCAB if token == bad else token for token in prompt_of(length, seed))
