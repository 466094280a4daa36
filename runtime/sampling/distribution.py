"""What a request draws from, of one row of logits: temperature, then min-p, then top-k, then top-p.

The order is vLLM's. Everything works on one row at a time in numpy, so a row's bits are the same alone and in a batch,
and for any number of threads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runtime.sampling.params import SamplingParams
from runtime.sampling.thresholds import top_k_ids, top_p_ids, total

# Weights that are summed before the sums are searched; rows are padded to whole blocks with weight 0
_BLOCK = 256
# A higher temperature is infinite in float32
_HIGHEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Distribution:
    """Weights of the tokens that may be drawn, not normalised; the largest is 1.

    Attributes:
        ids: ids of the weights, ascending; None where weights[i] belongs to id i.
        weights: float32, at least 0, at least one of them positive; with ids None padded to whole blocks.
        vocab_size: no id reaches it.
    """

    ids: NDArray[np.intp] | None
    weights: NDArray[np.float32]
    vocab_size: int

    @classmethod
    def certain(cls, token_id: int, vocab_size: int) -> Distribution:
        """All weight on one token."""
        return cls(np.array([token_id], dtype=np.intp), np.ones(1, dtype=np.float32), vocab_size)

    def draw(self, uniform: float) -> int:
        """The first id, in their order, whose cumulative weight exceeds `uniform` (in [0, 1)) of the total."""
        weights = self.weights
        if self.ids is not None:
            ends = np.cumsum(weights, dtype=np.float64)
            return int(self.ids[_first_above(ends, weights, uniform * float(ends[-1]))])
        blocks = weights.reshape(-1, _BLOCK)
        # Cast first: half as long as a sum that casts
        sums = blocks.astype(np.float64).sum(axis=1)
        ends = np.cumsum(sums)
        goal = uniform * float(ends[-1])
        block = _first_above(ends, sums, goal)
        before = float(ends[block - 1]) if block else 0.0
        inner = before + np.cumsum(blocks[block], dtype=np.float64)
        return block * _BLOCK + _first_above(inner, blocks[block], goal)

    def accepts(self, token_id: int, uniform: float) -> bool:
        """Whether `uniform`, in [0, 1), is below the token's probability: true with exactly that probability."""
        return uniform * total(self.weights) < self._weight(token_id)

    def race(self, noise: NDArray[np.float32], without: int | None) -> int | None:
        """The id with the largest weight / noise, the Gumbel-max trick: a draw from the weights.

        Args:
            noise: [vocab_size], exponential with mean 1.
            without: an id that may not win.

        Returns:
            None where no other id has any weight.
        """
        scores = self.weights[: self.vocab_size] / noise if self.ids is None else self.weights / noise[self.ids]
        place = None if without is None else self._place(without)
        if place is not None:
            scores[place] = 0
        best = int(scores.argmax())
        if scores[best] <= 0:
            return None
        return best if self.ids is None else int(self.ids[best])

    def _weight(self, token_id: int) -> float:
        place = self._place(token_id)
        return 0.0 if place is None else float(self.weights[place])

    def _place(self, token_id: int) -> int | None:
        """Where the token's weight is; None for one that was cut off or is outside the vocabulary."""
        if self.ids is None:
            return token_id if 0 <= token_id < self.vocab_size else None
        place = int(np.searchsorted(self.ids, token_id))
        return place if place < len(self.ids) and self.ids[place] == token_id else None


def distribution(row: NDArray[np.float32], largest: np.float32, params: SamplingParams) -> Distribution:
    """What a random request draws from.

    Args:
        row: [vocab_size] float32 after the processors, without NaN.
        largest: the largest of the row, above -inf.
    """
    vocab_size = len(row)
    logits = _scaled(row, largest, params.temperature)
    if params.min_p == 0 and not 0 < params.top_k < vocab_size and params.top_p == 1:
        return Distribution(None, np.exp(logits, out=logits), vocab_size)
    logits = logits[:vocab_size]
    ids = None
    if params.min_p > 0:
        ids = np.flatnonzero(logits >= np.float32(math.log(params.min_p)))
        logits = logits[ids]
    if 0 < params.top_k < len(logits):
        ids = _within(ids, kept := top_k_ids(logits, params.top_k))
        logits = logits[kept]
    weights = np.exp(logits)
    if params.top_p < 1:
        ids = _within(ids, kept := top_p_ids(logits, weights, params.top_p))
        weights = weights[kept]
    return Distribution(np.arange(vocab_size) if ids is None else ids, weights, vocab_size)


def _within(ids: NDArray[np.intp] | None, kept: NDArray[np.intp]) -> NDArray[np.intp]:
    return kept if ids is None else ids[kept]


def _scaled(row: NDArray[np.float32], largest: np.float32, temperature: float) -> NDArray[np.float32]:
    """(row - largest) / temperature, padded to whole blocks with -inf. Infinite logits share all probability."""
    vocab_size = len(row)
    scaled = np.empty(-(-vocab_size // _BLOCK) * _BLOCK, dtype=np.float32)
    scaled[vocab_size:] = -np.inf
    inner = scaled[:vocab_size]
    if largest == np.inf:
        inner[:] = np.where(row == np.inf, np.float32(0), np.float32(-np.inf))
        return scaled
    # The largest first: a low temperature would overflow float32. What does so downwards has no weight
    with np.errstate(over="ignore"):
        np.subtract(row, largest, out=inner)
        if temperature != 1.0:
            np.divide(inner, np.float32(min(temperature, _HIGHEST)), out=inner)
    return scaled


def _first_above(ends: NDArray[np.float64], weights: NDArray[np.float32] | NDArray[np.float64], goal: float) -> int:
    """The first place whose cumulative weight exceeds the goal; if rounding lifted the goal, the last with weight."""
    place = int(np.searchsorted(ends, goal, side="right"))
    return place if place < len(ends) else int(np.flatnonzero(weights)[-1])
