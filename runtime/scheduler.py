"""Which requests run, and who owns the blocks: admission, the turn of prefill and verify, preemption.

Requests are served in order of arrival. One is admitted when there is a place in the batch and room for the tokens that
it has; blocks for those that it will generate are taken as it grows. When none is left, the running request that
arrived last gives all of its blocks up and waits, in front, to be run again; its text goes on as if nothing had been.
The request that arrived first is therefore never stopped, and since the pool holds any one request
(`runtime.admission` refuses others), it always ends.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from itertools import takewhile

from runtime.blocks import BlockManager
from runtime.prefix import PrefixKeys
from runtime.sequence import Sequence


class Scheduler:
    """The queues of an engine and its blocks.

    Attributes:
        waiting: requests without blocks, in order of arrival, so that those that were stopped come first.
        running: requests with blocks, in the order in which they were admitted.
        num_preemptions: how often a request gave its blocks up.
    """

    def __init__(self, blocks: BlockManager, keys: PrefixKeys, max_num_seqs: int, num_speculative_tokens: int) -> None:
        """`num_speculative_tokens`: the most drafts that a step proposes."""
        self.blocks, self.keys = blocks, keys
        self._waiting: OrderedDict[str, Sequence] = OrderedDict()
        self.running: list[Sequence] = []
        self.num_preemptions = 0
        self._max_num_seqs, self._k = max_num_seqs, num_speculative_tokens
        self._arrivals = 0
        self._prefilled = False  # whether the last pass was a prefill

    def add(self, sequence: Sequence) -> None:
        """Queue a new request."""
        self._arrivals += 1
        sequence.arrival = self._arrivals
        sequence.publishes = self.keys.mode != "off"
        self._waiting[sequence.request.request_id] = sequence

    @property
    def waiting(self) -> Collection[Sequence]:
        return self._waiting.values()

    def remove(self, sequence: Sequence) -> None:
        """Drop a running request; its blocks are free again."""
        self.running.remove(sequence)
        self.blocks.release(sequence.block_ids)
        sequence.block_ids = []

    def abort(self, request_id: str) -> None:
        """Drop the request wherever it is; an unknown id is passed over."""
        for sequence in [s for s in self.running if s.request.request_id == request_id]:
            self.remove(sequence)
        self._waiting.pop(request_id, None)

    def holds(self, request_id: str) -> bool:
        return request_id in self._waiting or any(s.request.request_id == request_id for s in self.running)

    def next_pass(self) -> Sequence | list[Sequence]:
        """What runs next: the request whose prompt is to be computed further, or the members of a verify pass.

        Prefill chunks and verify passes take turns where both are wanted: a long prompt then holds each running
        request up by one chunk a token and no more, and new requests do not wait for old ones to end.
        """
        self._admit()
        prefilling = next((sequence for sequence in self.running if sequence.prefilling), None)
        decoding = [sequence for sequence in self.running if not sequence.prefilling]
        if prefilling is not None and not (decoding and self._prefilled):
            self._prefilled = True
            return prefilling
        self._prefilled = False
        members = self._with_room(decoding)
        # All of them may have been stopped for one that arrived earlier and is not this far yet
        return prefilling if prefilling in self.running and not members else members

    def publish(self, sequence: Sequence) -> None:
        """Let others find the blocks of `sequence` whose target and draft rows are final."""
        final = min(sequence.num_computed, len(sequence.token_ids) - 1)
        self.keys.extend(sequence.block_keys, sequence.token_ids, sequence.num_prompt_tokens, final + 1)
        done = min(final // self.blocks.block_size, len(sequence.block_keys))
        for index in range(sequence.num_published, done):
            self.blocks.publish(sequence.block_ids[index], sequence.block_keys[index])
        sequence.num_published = max(sequence.num_published, done)

    def _admit(self) -> None:
        while self._waiting and len(self.running) < self._max_num_seqs:
            first = next(iter(self._waiting.values()))
            if not self._take_blocks(first):
                return
            del self._waiting[first.request.request_id]
            self.running.append(first)

    def _take_blocks(self, sequence: Sequence) -> bool:
        """Give `sequence` blocks for all its tokens and the passes behind them, cached ones first, if there are enough.

        Each running request may need another block soon: one is left to each, or the newcomer would be stopped at once.
        """
        known = len(sequence.token_ids)
        self.keys.extend(sequence.block_keys, sequence.token_ids, sequence.num_prompt_tokens, known)
        size = self.blocks.block_size
        matched = self.blocks.find(sequence.block_keys)
        start = self.keys.restart(len(matched) * size, sequence.num_prompt_tokens)
        shared = matched[: start // size]
        wanted = self.blocks.blocks_for(self._reach(sequence)) - len(shared)
        if wanted + self.blocks.count_free(shared) + len(self.running) > self.blocks.num_free:
            return False
        self.blocks.share(shared)
        sequence.block_ids = shared + (self.blocks.allocate(wanted) or [])
        sequence.num_computed = sequence.num_drafted = start
        sequence.num_published = len(shared)
        if self.keys.mode != "off":
            self.blocks.prefix_queries += known
            self.blocks.prefix_hits += start
        if sequence.num_preemptions == 0:
            sequence.num_cached_tokens = start
        return True

    def _reach(self, sequence: Sequence) -> int:
        """Tokens that blocks must hold for the next pass: its verify rows, and the draft's chain behind them.

        The pass writes up to position len-1+K and commits up to K+1 tokens; the chain goes on from there for K-1 rows.
        """
        return min(len(sequence.token_ids) + 2 * self._k, sequence.length_limit)

    def _with_room(self, members: list[Sequence]) -> list[Sequence]:
        """`members`, each with the blocks for its next pass, but those that had to be stopped for others."""
        for member in sorted(members, key=lambda sequence: sequence.arrival):
            while member in self.running and not self._grow(member):
                self._preempt(max(self.running, key=lambda sequence: sequence.arrival))
        return [member for member in members if member in self.running]

    def _grow(self, sequence: Sequence) -> bool:
        missing = self.blocks.blocks_for(self._reach(sequence)) - len(sequence.block_ids)
        more = self.blocks.allocate(max(missing, 0))
        if more is None:
            return False
        sequence.block_ids += more
        return True

    def _preempt(self, sequence: Sequence) -> None:
        self.remove(sequence)
        sequence.preempt()
        self.num_preemptions += 1
        # In front of all that never ran, behind those that arrived earlier and were stopped too
        earlier = list(takewhile(lambda other: other.arrival < sequence.arrival, self._waiting.values()))
        self._waiting[sequence.request.request_id] = sequence
        for one in (sequence, *reversed(earlier)):
            self._waiting.move_to_end(one.request.request_id, last=False)
