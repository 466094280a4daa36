"""Top-k and top-p as the least value that is kept, found without sorting a vocabulary.

A threshold says which tokens stay without regard to how equal values are sorted: a token as probable as the last one
kept is kept too, on the host and on a device alike.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Values of which only the largest is looked at first
_GROUP = 64
# Natural logarithms of how improbable, next to the likeliest token, candidates for top-p may be; then all are
_CUTS = (-3.0, -6.0, -10.0)
# Fewer values are sorted at once
_FEW = 1024


def kth_largest(values: NDArray[np.float32], k: int) -> np.float32:
    """The k-th largest of values without NaN, equal ones counted each; -inf where there are fewer than k.

    Args:
        k: at least 1.
    """
    count = len(values)
    if k > count:
        return np.float32(-np.inf)
    groups = count // _GROUP
    if groups >= 2 * k:
        # k groups have a member of at least the k-th largest maximum, so nothing below that is among the k largest
        largest = values[: groups * _GROUP].reshape(_GROUP, groups).max(axis=0)
        bound = np.partition(largest, groups - k)[groups - k]
        values = values[np.flatnonzero(values >= bound)]
        count = len(values)
    found: np.float32 = np.partition(values, count - k)[count - k]
    return found


def top_p_threshold(logits: NDArray[np.float32], weights: NDArray[np.float32], top_p: float) -> np.float32:
    """The largest value such that the logits of at least this value hold top_p of all weight.

    Args:
        logits: without NaN, the largest 0.
        weights: exp(logits).
        top_p: in (0, 1).
    """
    goal = top_p * float(weights.sum(dtype=np.float64))
    candidates = logits
    for cut in _CUTS if len(logits) > _FEW else ():
        places = np.flatnonzero(logits >= np.float32(cut))
        if float(weights[places].sum(dtype=np.float64)) >= goal:
            candidates = logits[places]
            break
    ordered = np.sort(candidates)[::-1]
    reached = np.cumsum(np.exp(ordered), dtype=np.float64)
    # Rounding may leave the last sum a hair below the goal
    place = min(int(np.searchsorted(reached, goal, side="left")), len(ordered) - 1)
    found: np.float32 = ordered[place]
    return found
