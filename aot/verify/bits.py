"""Do a verify pass's bits depend on how its rows are laid out? Exactness rests on the answer, so it is measured.

Plain decoding runs a token as row 0 of a verify pass; speculation runs the same token as row 0..K. If every row's
features, KV and what its head reads have the same bits wherever the row stands, greedy speculation equals plain greedy
decoding bit for bit.
If they also stay the same in another bucket, the loop may move between buckets; if they stay the same in a pass with
fewer rows for each request, it may draft less without changing the text.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from runtime.backends import Backend
from runtime.batch import Bucket, pad_rows
from runtime.blocks import slot_of
from runtime.bundle.manifest import Axis, Graph, Manifest
from runtime.graph import LoadedGraph
from runtime.graphs import table_columns, table_widths
from runtime.pools import allocate_pools
from runtime.request import Request
from runtime.sampling.device import device_inputs
from runtime.sequence import Sequence

# Requests, context and the index of the request under test among them
Place = tuple[int, int, int]


class BitsCheck:
    """Runs the same rows in many places and compares bits."""

    def __init__(self, manifest: Manifest, backend: Backend, seed: int = 0) -> None:
        self.manifest, self.backend = manifest, backend
        self.generator = torch.Generator().manual_seed(seed)
        self.rows = 1 + manifest.speculation.num_speculative_tokens
        verify = [graph for graph in manifest.graphs if graph.kind == "target_verify"]
        by_rows = {(g.requests, g.context, g.rows // g.requests): g for g in verify}
        self.graphs = {(size, context): graph for (size, context, rows), graph in by_rows.items() if rows == self.rows}
        self.fewer = {place: graph for place, graph in by_rows.items() if place[2] < self.rows}
        self.contexts, self.sizes = manifest.buckets.context_tokens, manifest.buckets.num_seqs
        # Where no other place is asked for, the rows lie at the end of the smallest context: every bucket holds them
        self.start = self.contexts[0] - self.rows
        self.tokens = torch.randint(0, manifest.target.vocab_size, (self.rows,), generator=self.generator).tolist()
        self._kept_widths: tuple[int, ...] | None = None  # two passes a width and size: tried once, asked for twice
        self.block_size = manifest.kv_cache.block_size
        blocks = table_columns(self.graphs[self.sizes[-1], self.contexts[-1]], self.block_size)
        self.members = [
            Sequence(Request(str(i), (0,)), 0, [], list(range(1 + i * blocks, 1 + (i + 1) * blocks)))
            for i in range(self.sizes[-1])
        ]
        self.content = allocate_pools(manifest.kv_cache, self.sizes[-1] * blocks + 1)
        for pool in self.content.values():
            pool.copy_(torch.randn(pool.shape, generator=self.generator))

    def run(
        self,
        place: Place,
        tokens: list[int],
        start: int,
        pools: Mapping[str, Tensor],
        columns: int | None = None,
        rows: int | None = None,
    ) -> list[Tensor]:
        """Run `tokens` from position `start` as one request of a bucket, beside other requests.

        Args:
            columns: of the block table; by default those of the bucket's whole context.
            rows: of each request in the pass, at least len(tokens); by default 1+K.

        Returns:
            Of its rows the features, [len(tokens), A*Ht], what the head read of the layers, [len(tokens), H] each, and
            the logits, [len(tokens), V], where the graph gives them; the pools are updated.
        """
        size, context, index = place
        each = rows or self.rows
        graph: Graph = self.graphs[size, context] if each == self.rows else self.fewer[size, context, each]
        bucket = Bucket(size, each, columns or table_columns(graph, self.block_size))
        # The request under test always owns the blocks of members[0]; the others fill the remaining places
        order = [self.members[1 + i] for i in range(size - 1)]
        order.insert(index, self.members[0])
        batch = [[7] * each] * size
        batch[index] = tokens
        starts = [min(3, self.contexts[0] - self.rows)] * size
        starts[index] = start
        inputs = pad_rows(order, batch, starts, bucket, self.block_size)
        counts = [len(row) - 1 for row in batch]
        inputs["num_draft_tokens"] = torch.tensor(counts, dtype=torch.int32)
        if self.manifest.sampling == "random":
            inputs |= device_inputs([], size, self.rows)
        units = {unit.name: unit for unit in self.manifest.units}
        loaded = LoadedGraph(graph, units, self.backend, pools)
        with torch.inference_mode():
            _, features, *logits = loaded(inputs)
        made = {name for call in graph.calls for name in call.outputs}
        read = [loaded.value(name) for name in graph.calls[-1].inputs if name in made]
        first = index * each
        return [value[first : first + len(tokens)].clone() for value in (features, *read, *logits)]

    def speculative(self, place: Place, start: int | None = None, columns: int | None = None) -> list[Tensor]:
        """What one pass over all rows gives, see `run`, and their KV rows."""
        return self.in_turns(place, self.rows, self.rows, start, columns)

    def plain(self, place: Place, start: int | None = None, columns: int | None = None) -> list[Tensor]:
        """The same of one pass per row, each as row 0, as plain decoding does."""
        return self.in_turns(place, self.rows, 1, start, columns)

    def in_turns(
        self, place: Place, rows: int, tokens_each: int, start: int | None = None, columns: int | None = None
    ) -> list[Tensor]:
        """The same of passes of `rows` rows a request, in which `tokens_each` tokens are run at a time."""
        first = self.start if start is None else start
        pools = {name: pool.clone() for name, pool in self.content.items()}
        made = [
            self.run(place, self.tokens[at : at + tokens_each], first + at, pools, columns, rows)
            for at in range(0, self.rows, tokens_each)
        ]
        return [*map(torch.cat, zip(*made, strict=True)), *self._written(pools, first)]

    def _written(self, pools: Mapping[str, Tensor], start: int) -> list[Tensor]:
        blocks = self.members[0].block_ids
        slots = [slot_of(blocks, start + i, self.block_size) for i in range(self.rows)]
        return [pool.view(-1, *pool.shape[2:])[slots] for pool in pools.values()]

    def rows_keep_bits(self) -> bool:
        """Whether plain and speculative rows agree in every bucket, whichever of the pass's requests they belong to.

        A request's place depends on when others finish, which speculation changes. The rows lie at the end of the
        smallest context, where every request is tried, and of the bucket's own.
        """
        for size, context in self.graphs:
            plain = self.plain((size, context, 0))
            if not all(same(plain, self.speculative((size, context, index))) for index in range(size)):
                return False
            deepest = context - self.rows
            if deepest != self.start and not self._rows_keep_bits_at((size, context, 0), deepest):
                return False
        return True

    def _rows_keep_bits_at(self, place: Place, start: int, columns: int | None = None) -> bool:
        return same(self.plain(place, start, columns), self.speculative(place, start, columns))

    def axes(self) -> tuple[Axis, ...]:
        """The bucket axes along which the same rows keep every bit."""
        found: list[Axis] = []
        largest = (self.sizes[-1], self.contexts[-1], 0)
        base = self.speculative(largest)
        places = [(size, index) for size in self.sizes for index in range(size)]
        if all(same(base, self.speculative((size, self.contexts[-1], index))) for size, index in places):
            found.append("requests")
        if len(self.context_widths()) == len({columns for _, columns, _ in self.widths()}):
            found.append("context")
        if self.fewer and self.fewer_rows_keep_bits():
            found.append("drafts")
        return tuple(found)

    def fewer_rows_keep_bits(self) -> bool:
        """Whether every row of the passes with fewer rows has the bits that it has in one of 1+K.

        In every place of the batch, full and with a single row, and at every width of the block table that decoding
        may choose.
        """
        kept = self.context_widths()
        for size, context, rows in self.fewer:
            base = self.speculative((size, context, 0))
            turns = [(index, tokens_each) for index in range(size) for tokens_each in {rows, 1}]
            if not all(same(base, self.in_turns((size, context, index), rows, each)) for index, each in turns):
                return False
            for bucket, columns, start in self.widths():
                if bucket != context or columns * self.block_size not in kept:
                    continue
                base = self.speculative((size, context, 0), start, columns)
                if not same(base, self.in_turns((size, context, 0), rows, rows, start, columns)):
                    return False
        return True

    def context_widths(self) -> tuple[int, ...]:
        """The block-table widths in tokens whose bits are those of the widest, in every row and bucket."""
        if self._kept_widths is None:
            kept = {columns: True for _, columns, _ in self.widths()}
            for size in self.sizes:
                for context, columns, start in self.widths():
                    place = (size, context, 0)
                    widest = self.speculative((size, self.contexts[-1], 0), start)
                    keeps = same(widest, self.speculative(place, start, columns))
                    kept[columns] &= keeps and self._rows_keep_bits_at(place, start, columns)
            self._kept_widths = tuple(columns * self.block_size for columns, keeps in kept.items() if keeps)
        return self._kept_widths

    def widths(self) -> list[tuple[int, int, int]]:
        """(context bucket, block-table columns, position of the first row) for every width that the loop may choose.

        The rows lie as deep as the width allows.
        """
        found: list[tuple[int, int, int]] = []
        shorter = 0
        for context in self.contexts:
            for columns in table_widths(self.graphs[self.sizes[-1], context], self.block_size):
                end = min(columns * self.block_size, context)
                # Narrower passes run in the smaller bucket
                if end > shorter and end >= self.rows:
                    found.append((context, columns, end - self.rows))
            shorter = context
        return found


def same(first: list[Tensor], second: list[Tensor]) -> bool:
    """Whether all tensors are equal; no value here is NaN, and a signed zero changes no later result."""
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
