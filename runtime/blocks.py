"""Blocks of the KV pool: who owns which, and where a position's slot is.

Block 0 is the null block. It belongs to nobody: padding rows write there and nobody reads what they wrote.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

NULL_SLOT = 0


class BlockManager:
    """Hands out blocks 1..num_blocks-1 and takes them back."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks, self.block_size = num_blocks, block_size
        self._free = deque(range(1, num_blocks))

    @property
    def num_free(self) -> int:
        return len(self._free)

    def blocks_for(self, tokens: int) -> int:
        """How many blocks hold `tokens` tokens."""
        return -(-tokens // self.block_size)

    def allocate(self, count: int) -> list[int] | None:
        """`count` blocks, or None when fewer are free; never some of them."""
        if count > len(self._free):
            return None
        return [self._free.popleft() for _ in range(count)]

    def release(self, blocks: Sequence[int]) -> None:
        """Give blocks back; the last used comes back last, so stale content is overwritten late and bugs show."""
        self._free.extend(blocks)


def slot_of(block_ids: Sequence[int], position: int, block_size: int) -> int:
    """The slot of `position` in a request's blocks: block_table[pos // bs] * bs + pos % bs."""
    return block_ids[position // block_size] * block_size + position % block_size
