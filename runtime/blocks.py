"""Blocks of the KV pool: who owns which, which content is kept for reuse, and where a position's slot is.

Block 0 is the null block. It belongs to nobody: padding rows write there and nobody reads what they wrote.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

NULL_SLOT = 0


class BlockManager:
    """Hands out blocks 1..num_blocks-1, takes them back, and finds those that already hold some content.

    A block whose content is final may be published under a key (`runtime.prefix`). Several requests can then own it at
    once, and after the last one gave it back it is free and still found, until it is handed out for something else:
    the longest unused goes first.

    Attributes:
        prefix_queries, prefix_hits: tokens that were looked for and found, so far.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks, self.block_size = num_blocks, block_size
        self.prefix_queries = self.prefix_hits = 0
        # Free blocks, the next to be handed out first
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, num_blocks))
        self._owners = [0] * num_blocks
        self._published: dict[bytes, int] = {}
        self._keys: dict[int, bytes] = {}

    @property
    def num_free(self) -> int:
        return len(self._free)

    def blocks_for(self, tokens: int) -> int:
        """How many blocks hold `tokens` tokens."""
        return -(-tokens // self.block_size)

    def allocate(self, count: int) -> list[int] | None:
        """`count` blocks for new content, or None when fewer are free; never some of them."""
        if count > len(self._free):
            return None
        blocks = [self._free.popitem(last=False)[0] for _ in range(count)]
        for block in blocks:
            self._owners[block] = 1
            key = self._keys.pop(block, None)
            if key is not None:
                del self._published[key]
        return blocks

    def release(self, blocks: Sequence[int]) -> None:
        """Give a request's blocks back, in order of position.

        The last of them is handed out first of these, since the beginning of a text is what others share.
        """
        for block in reversed(blocks):
            self._owners[block] -= 1
            if self._owners[block] == 0:
                self._free[block] = None

    def find(self, keys: Sequence[bytes]) -> list[int]:
        """The blocks of the longest run of `keys` from the first on; they are not taken yet."""
        found = []
        for key in keys:
            block = self._published.get(key)
            if block is None:
                break
            found.append(block)
        return found

    def share(self, blocks: Sequence[int]) -> None:
        """Become another owner of `blocks`, which `find` gave."""
        for block in blocks:
            self._owners[block] += 1
            self._free.pop(block, None)

    def count_free(self, blocks: Sequence[int]) -> int:
        """How many of `blocks` nobody owns: what sharing them takes from the free ones."""
        return sum(self._owners[block] == 0 for block in blocks)

    def publish(self, block: int, key: bytes) -> None:
        """Let `block` be found under `key`: its content is final. The first block with a content is the one kept."""
        if key not in self._published and block not in self._keys:
            self._published[key] = block
            self._keys[block] = key


def slot_of(block_ids: Sequence[int], position: int, block_size: int) -> int:
    """The slot of `position` in a request's blocks: block_table[pos // bs] * bs + pos % bs."""
    return block_ids[position // block_size] * block_size + position % block_size
