"""Log probabilities of a row of logits as the model gave them: the chosen token's, its rank, the likeliest ones."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from runtime.sampling.params import TokenLogprobs
from runtime.sampling.thresholds import top_k_ids, total


def token_logprobs(row: NDArray[np.float32], token_id: int, num_top: int) -> TokenLogprobs:
    """What the model thought of a token.

    Args:
        row: [vocab_size] float32, before processors and temperature, without NaN.
        token_id: the token chosen from this row.
        num_top: how many of the likeliest tokens to list; all where the vocabulary has fewer.
    """
    largest = row.max()
    if not np.isfinite(largest):
        # The limit: infinite logits share all probability; with none above -inf nothing has any
        row = np.where(row == largest, np.float32(0), np.float32(-np.inf)) if largest > 0 else row
        largest = np.float32(0)
    summed = total(np.exp(row - largest))
    normaliser = float(largest) + math.log(summed) if summed else 0.0
    chosen = row[token_id]
    return TokenLogprobs(
        token_id=token_id,
        logprob=float(chosen) - normaliser,
        rank=1 + int(np.count_nonzero(row > chosen)),
        top=tuple((token, float(row[token]) - normaliser) for token in _likeliest(row, num_top)),
    )


def _likeliest(row: NDArray[np.float32], count: int) -> list[int]:
    """The ids of the `count` largest logits, largest first, ties by id."""
    if count == 0:
        return []
    ids = top_k_ids(row, count)
    # Ids ascend, and a stable sort leaves equal logits so
    order = np.argsort(-row[ids], kind="stable")[:count]
    return [int(token) for token in ids[order]]
