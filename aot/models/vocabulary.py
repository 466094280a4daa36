"""The vocabulary over several ranks: each holds as many rows of the embedding table and of the head as the next.

Row i of rank r stands for token r * rows + i. Where the vocabulary is no multiple of the ranks, the last rows are
padding that stands for no token.

A rank looks up the tokens that it holds and zeros for the others; the sum over the ranks is the whole lookup. For a
greedy token each rank sends its best logit and that logit's id, eight bytes a row instead of the logits: ids travel by
gathering, never by a sum, since accelerators add integers in float32.
"""

from __future__ import annotations

import torch
from torch import Tensor

from aot.models.layers import Table
from aot.models.parallel import all_gather, all_reduce
from runtime.bundle.signs import NOT_FINITE


class ShardedTable(Table):
    """Token embeddings of which each rank holds `entries` rows; `weight` is [entries, width]."""

    def __init__(self, *shape: int, dtype: torch.dtype, ranks: int) -> None:
        super().__init__(*shape, dtype=dtype)
        self.entries, self.ranks = shape[0], ranks

    def lookup(self, index: Tensor, rank: Tensor) -> Tensor:
        """index [T] int32, rank [1] int32 -> the rows of `index`, [T, width], whole on every rank."""
        local = index - rank * self.entries
        held = (local >= 0) & (local < self.entries)
        rows = self(torch.where(held, local, 0))
        # Not multiplied by zero: what lies in row 0 may be no number
        return all_reduce(torch.where(held[:, None], rows, 0.0), self.ranks)


def embedding(vocab: int, hidden: int, dtype: torch.dtype, ranks: int) -> Table:
    """An embedding table of `vocab` rows, or on several ranks this one's part of as many rows."""
    return Table(vocab, hidden, dtype=dtype) if ranks == 1 else ShardedTable(vocab, hidden, dtype=dtype, ranks=ranks)


def embed(table: Table, tokens: Tensor, rank: Tensor | None) -> Tensor:
    """tokens [T] -> [T, H], from a table that is whole or shared."""
    if isinstance(table, ShardedTable):
        return table.lookup(tokens, the_rank(rank))
    return table(tokens)  # type: ignore[no-any-return]


def the_rank(rank: Tensor | None) -> Tensor:
    """`rank`, which a program of several ranks cannot do without."""
    if rank is None:
        raise TypeError("a module of several ranks needs rank, an int32 tensor [1]")
    return rank


def token_ids(logits: Tensor, rank: Tensor) -> Tensor:
    """The token of each of this rank's columns, [Vr] int32, for logits [M, Vr]."""
    entries = logits.shape[-1]
    return torch.arange(entries, device=logits.device, dtype=torch.int32) + rank * entries


def argmax_over_ranks(logits: Tensor, rank: Tensor, ranks: int, real: int = 0, finite: Tensor | None = None) -> Tensor:
    """Greedy token of each row over all ranks' logits, [M, Vr] -> [M] int32; the lowest id wins a tie.

    Args:
        real: tokens there are, 0 where every row of every rank is one.
        finite: [M, 1], above 0 where this rank's logits are all finite; a row that is not so on all ranks gives
            NOT_FINITE. It travels as an infinite best logit, so that no collective is added.
    """
    entries = logits.shape[-1]
    best = torch.argmax(logits, dim=-1, keepdim=True).to(torch.int32) + rank * entries
    largest = logits.amax(dim=-1, keepdim=True).float()
    if finite is not None:
        largest = torch.where(finite > 0, largest, float("inf"))
    values = all_gather(largest, 1, ranks)
    ids = all_gather(best, 1, ranks)
    # The last id can lose to no other by mistake, and is one even where no number was a maximum
    last = (real or entries * ranks) - 1
    chosen = torch.where(values == values.amax(dim=-1, keepdim=True), ids, last).amin(dim=-1)
    if finite is None:
        return chosen
    return torch.where(values.amax(dim=-1) <= torch.finfo(values.dtype).max, chosen, NOT_FINITE)


def whole_logits(logits: Tensor, ranks: int) -> Tensor:
    """All ranks' logits side by side, [M, Vr] -> [M, V], padding included."""
    return all_gather(logits, 1, ranks)
