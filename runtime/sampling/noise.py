"""Random numbers as a pure function of (seed, position, purpose), so that no batch, bucket or K changes a text.

Philox4x64-10 (Salmon et al., 2011) with the seed as key and (position, purpose) in the counter. Its raw 64-bit words
are used as they come: what numpy makes of them for its distributions may change with a release, they may not.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

_KEY_BITS = 128
# Words of 64 bits that one value of the counter yields
_BLOCK = 4
# Bits of the counter. A row of numbers counts in the lowest word and has its position in the next
_POSITION, _PURPOSE, _ROW = 64, 128, 1 << 192
# Below 1 in float32, so that its exponential is finite
_LARGEST_UNIT = np.float32(1 - 2.0**-24)


class Purpose(IntEnum):
    """What a number is for. Numbers of one position and two purposes are independent."""

    DRAW = 0
    ACCEPT = 1
    RECOVER = 2


def uniforms(seed: int, first_position: int, count: int, purpose: Purpose) -> list[float]:
    """Numbers in [0, 1), one for each of `count` positions: multiples of 2**-53, those to draw with of 2**-24.

    Graphs that draw tokens take their numbers in float32, which holds those exactly: host and graph see the same ones.

    Args:
        seed: any whole number.
        first_position: index in the sequence, prompt included, of the token that the first number decides.
    """
    # Positions in the lowest word of the counter: one stream yields a pass's numbers, whichever position it begins at
    stream = np.random.Philox(key=_folded(seed), counter=first_position | int(purpose) << _PURPOSE)
    bits = 24 if purpose is Purpose.DRAW else 53
    return [(word >> 64 - bits) * 2.0**-bits for word in stream.random_raw(_BLOCK * count)[::_BLOCK].tolist()]


def exponentials(seed: int, position: int, purpose: Purpose, count: int) -> NDArray[np.float32]:
    """`count` numbers of the exponential distribution with mean 1, each above 0; the first n do not depend on count."""
    stream = np.random.Philox(key=_folded(seed), counter=position << _POSITION | int(purpose) << _PURPOSE | _ROW)
    words = stream.random_raw((count + 1) // 2)
    # Little-endian halves on every host: the stream belongs to the seed, not to the machine
    halves = np.ascontiguousarray(words, dtype="<u8").view("<u4")[:count]
    # Smallest near 0, where float32 is finest, since the smallest noise decides an argmax of p / noise
    unit = halves.astype(np.float32)
    unit += np.float32(0.5)
    unit *= np.float32(2.0**-32)
    np.minimum(unit, _LARGEST_UNIT, out=unit)
    np.negative(unit, out=unit)
    np.log1p(unit, out=unit)
    return np.negative(unit, out=unit)


def _folded(seed: int) -> int:
    """128 bits of any whole number; numbers of less than 127 bits, negative ones too, keep apart."""
    rest = 2 * seed if seed >= 0 else -2 * seed - 1
    key = 0
    while rest:
        key ^= rest & ((1 << _KEY_BITS) - 1)
        rest >>= _KEY_BITS
    return key
