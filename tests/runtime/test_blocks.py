"""Blocks and who owns them: none is lost or owned twice by mistake, and a key finds the content it was made for."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from runtime.blocks import NULL_SLOT, BlockManager, slot_of

BLOCKS = 7


class Model(RuleBasedStateMachine):
    """A pool of six blocks, beside a model that knows what each block holds and since when it is free."""

    def __init__(self) -> None:
        super().__init__()
        self.manager = BlockManager(BLOCKS, 4)
        self.owners: list[list[int]] = []
        # What was written last to each block; None while its owner still writes
        self.content: dict[int, bytes | None] = {}
        # The first block with each content; a second one has no key, and is not found once the first is gone
        self.found: dict[bytes, int] = {}
        self.now = 0
        self.free_since = {block: block - BLOCKS for block in range(1, BLOCKS)}

    def _free(self, blocks: list[int]) -> None:
        for block in reversed(blocks):
            if not any(block in own for own in self.owners):
                self.now += 1
                self.free_since[block] = self.now

    @rule(count=st.integers(0, BLOCKS))
    def allocate(self, count: int) -> None:
        blocks = self.manager.allocate(count)
        if count > len(self.free_since):
            assert blocks is None
            return
        assert blocks is not None
        # The longest unused first
        assert blocks == sorted(self.free_since, key=self.free_since.__getitem__)[:count]
        for block in blocks:
            del self.free_since[block]
            self.content[block] = None
        self.found = {key: block for key, block in self.found.items() if block not in blocks}
        self.owners.append(blocks)

    @precondition(lambda self: self.owners)
    @rule(data=st.data(), key=st.sampled_from([b"a", b"b", b"c", b"d"]))
    def publish(self, data: st.DataObject, key: bytes) -> None:
        blocks = data.draw(st.sampled_from(self.owners))
        unwritten = [block for block in blocks if self.content[block] is None]
        if unwritten:
            self.content[unwritten[0]] = key
            self.found.setdefault(key, unwritten[0])
            self.manager.publish(unwritten[0], key)

    @rule(keys=st.lists(st.sampled_from([b"a", b"b", b"c", b"d"]), max_size=4, unique=True))
    def share(self, keys: list[bytes]) -> None:
        found = self.manager.find(keys)
        assert [self.content[block] for block in found] == keys[: len(found)]
        assert self.manager.count_free(found) == sum(block in self.free_since for block in found)
        self.manager.share(found)
        for block in found:
            self.free_since.pop(block, None)
        self.owners.append(found)

    @precondition(lambda self: self.owners)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.owners) - 1))
        blocks = self.owners.pop(index)
        self.manager.release(blocks)
        self._free(blocks)

    @invariant()
    def every_block_is_free_or_owned(self) -> None:
        owned = {block for own in self.owners for block in own}
        assert owned | set(self.free_since) == set(range(1, BLOCKS))
        assert not owned & set(self.free_since)
        assert self.manager.num_free == len(self.free_since)

    @invariant()
    def a_key_finds_its_own_content_or_nothing(self) -> None:
        for key in (b"a", b"b", b"c", b"d"):
            found = self.manager.find([key])
            assert [self.content[block] for block in found] == [key] * len(found)
            assert found == ([self.found[key]] if key in self.found else [])


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_blocks_of_a_text_are_handed_out_from_its_end() -> None:
    """The beginning of a text is what others share, so it stays longest."""
    manager = BlockManager(4, 4)
    blocks = manager.allocate(3)
    assert blocks == [1, 2, 3]
    manager.release(blocks)
    assert manager.allocate(3) == [3, 2, 1]


def test_all_or_nothing() -> None:
    manager = BlockManager(4, 4)
    assert manager.allocate(4) is None
    assert manager.num_free == 3


def test_a_cached_block_is_found_until_it_is_handed_out() -> None:
    manager = BlockManager(3, 4)
    (block,) = manager.allocate(1) or []
    manager.publish(block, b"a")
    manager.release([block])
    assert manager.find([b"a"]) == [block]
    assert manager.find([b"x", b"a"]) == []
    manager.allocate(1)
    assert manager.find([b"a"]) == [block]
    manager.allocate(1)
    assert manager.find([b"a"]) == []


def test_the_first_block_with_a_content_is_the_one_that_is_kept() -> None:
    manager = BlockManager(4, 4)
    first, second = manager.allocate(2) or []
    manager.publish(first, b"a")
    manager.publish(second, b"a")
    assert manager.find([b"a"]) == [first]
    manager.release([second])
    manager.allocate(2)
    assert manager.find([b"a"]) == [first]


def test_slots_and_counts() -> None:
    manager = BlockManager(9, 4)
    assert [manager.blocks_for(tokens) for tokens in (0, 1, 4, 5)] == [0, 1, 1, 2]
    assert [slot_of([5, 2], position, 4) for position in (0, 3, 4, 7)] == [20, 23, 8, 11]
    # No block that is handed out holds the slot of padding
    blocks = manager.allocate(8) or []
    assert NULL_SLOT not in [slot_of(blocks, position, 4) for position in range(32)]
