"""Random numbers as a pure function of (seed, position, purpose), so that no batch, bucket or K changes a text.

Philox4x64-10 (Salmon et al., 2011) with the seed as key and (position, purpose) in the counter. Its raw 64-bit words
are used as they come: what numpy makes of them for its distributions may change with a release, they may not.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

_KEY_BITS = 128
# Below 1 in float32, so that its exponential is finite
_LARGEST_UNIT = np.float32(1 - 2.0**-24)


class Purpose(IntEnum):
    """What a number is for. Numbers of one position and two purposes are independent."""

    DRAW = 0
    ACCEPT = 1
    RECOVER = 2


def uniform(seed: int, position: int, purpose: Purpose) -> float:
    """A number in [0, 1), a multiple of 2**-53.

    Args:
        seed: any whole number.
        position: index in the sequence, prompt included, of the token that it decides.
    """
    word = int(_stream(seed, position, purpose).random_raw())
    return float(word >> 11) * 2.0**-53


def exponentials(seed: int, position: int, purpose: Purpose, count: int) -> NDArray[np.float32]:
    """`count` numbers of the exponential distribution with mean 1, each above 0; the first n do not depend on count."""
    words = _stream(seed, position, purpose).random_raw((count + 1) // 2)
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


def _stream(seed: int, position: int, purpose: Purpose) -> np.random.Philox:
    # The lowest word of the counter counts the blocks of one stream
    return np.random.Philox(key=_folded(seed), counter=position << 64 | int(purpose) << 128)


def _folded(seed: int) -> int:
    """128 bits of any whole number; numbers of less than 127 bits, negative ones too, keep apart."""
    rest = 2 * seed if seed >= 0 else -2 * seed - 1
    key = 0
    while rest:
        key ^= rest & ((1 << _KEY_BITS) - 1)
        rest >>= _KEY_BITS
    return key
