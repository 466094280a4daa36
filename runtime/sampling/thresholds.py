"""Top-k and top-p as the ids at or above a least value, found without sorting a vocabulary.

A threshold says which tokens stay without regard to how equal values are sorted: a token as probable as the last one
kept is kept too, on the host and on a device alike.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Values of which only the largest is looked at first
_GROUP = 64
# How far below the largest the logits are that are looked at first, and where those do not suffice; then all are
_CUTS = (np.float32(-4), np.float32(-12))
# Fewer values are sorted at once
_FEW = 1024


def total(weights: NDArray[np.float32]) -> float:
    """The sum, in float64."""
    return float(weights.astype(np.float64).sum())


def top_k_ids(values: NDArray[np.float32], k: int) -> NDArray[np.intp]:
    """The places of the k largest values without NaN, and of those equal to the last of them; ascending.

    Args:
        k: at least 1; from len(values) on, all are kept.
    """
    count = len(values)
    if k >= count:
        return np.arange(count)
    places = None
    groups = count // _GROUP
    if groups >= 2 * k:
        # k groups have a member of at least the k-th largest maximum, so nothing below that is among the k largest
        largest = values[: groups * _GROUP].reshape(_GROUP, groups).max(axis=0)
        places = np.flatnonzero(values >= np.partition(largest, groups - k)[groups - k])
        values = values[places]
    kept = np.flatnonzero(values >= np.partition(values, len(values) - k)[len(values) - k])
    return kept if places is None else places[kept]


def top_p_ids(logits: NDArray[np.float32], weights: NDArray[np.float32], top_p: float) -> NDArray[np.intp]:
    """The places of the fewest largest logits that hold top_p of all weight, and of those equal to the last; ascending.

    Args:
        logits: without NaN, the largest 0.
        weights: exp(logits).
        top_p: in (0, 1).
    """
    goal = top_p * total(weights)
    places = None
    for cut in _CUTS if len(logits) > _FEW else ():
        likely = np.flatnonzero(logits >= cut)
        if total(weights[likely]) >= goal:
            places, logits = likely, logits[likely]
            break
    ordered = np.sort(logits)[::-1]
    reached = np.cumsum(np.exp(ordered), dtype=np.float64)
    # Rounding may leave the last sum a hair below the goal
    last = min(int(np.searchsorted(reached, goal, side="left")), len(ordered) - 1)
    kept = np.flatnonzero(logits >= ordered[last])
    return kept if places is None else places[kept]
