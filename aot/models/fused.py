"""The draft's whole turn in one graph: the initial pass and the K-1 recurrent ones behind it, unrolled.

Where a step of the loop costs a round trip between host and device, K graphs and K results to read back eat what
speculation wins. These graphs take what the target pass gave as it is, still on the device, and do inside what the
host would have done in between: shift the tokens by one row, leave rejected rows out, find each request's last row,
and give every recurrent row its position and slot. What they put out holds the target's tokens beside the drafts, so
that one read serves both. The shape is that of vLLM Neuron's fused draft.

Two limits bound what a recurrent row may write: `length_limits`, past which its request has no slots, and the block
table's width. A row beyond them becomes a padding row, at position 0 and the null slot, and what it drafts means
nothing; the host proposes no draft that far (`Sequence.draft_room`).

Indices are found by comparing and taking the largest: exact in integers wherever it runs, and no division.
"""

from __future__ import annotations

import torch
from torch import Tensor

from aot.models.eagle3 import DraftInitial


class FusedChain(DraftInitial):
    """What both fused graphs share: from the last rows of the initial pass to K draft tokens.

    Args:
        drafts: K, how many tokens a chain proposes.
        rest: as `DraftInitial` takes them.
    """

    def __init__(self, *, drafts: int, **rest: int | float | bool | torch.dtype) -> None:
        super().__init__(**rest)  # type: ignore[arg-type]
        self.drafts = drafts
        self.lm_head.repeated = drafts > 1

    def follow(self, given: Tensor | None, *inputs: Tensor, rank: Tensor | None = None) -> tuple[Tensor, list[Tensor]]:
        """As `chain`, from the inputs of `forward`: with `given`, what it would draft after each of these."""
        raise NotImplementedError

    def chain(
        self,
        stream: Tensor,
        positions: Tensor,
        block_table: Tensor,
        length_limits: Tensor,
        pools: tuple[Tensor, ...],
        given: Tensor | None = None,
        rank: Tensor | None = None,
    ) -> tuple[Tensor, list[Tensor]]:
        """K greedy drafts of each request, and the states behind them.

        Args:
            stream: [R, H], the residual stream of each request's last row, whose position `positions` [R] names.
            length_limits: [R] int32, tokens that each request may come to hold.
            given: [R, K] drafts to go on from in place of the own ones, for a check of those.

        Returns:
            drafts [R, K] int32 and K states [R, H], what `logits_of_output` reads.
        """
        block_size = pools[0].shape[1]
        width = block_table.shape[1] * block_size
        drafts: list[Tensor] = []
        states: list[Tensor] = []
        for step in range(self.drafts):
            if step:
                before = drafts[-1] if given is None else given[:, step - 1]
                positions = positions + 1
                inside = (positions < length_limits) & (positions < width)
                places = torch.where(inside, positions, 0)
                slots = torch.where(inside, slots_of(places, block_table, block_size), 0)
                stream = self.run_layers(before, states[-1], places, slots, block_table, pools, rank)
            token, state = self.propose(stream, rank)
            drafts.append(token)
            states.append(state)
        return torch.stack(drafts, dim=1), states


class DraftFused(FusedChain):
    """After a verify pass of R requests, 1+K rows each.

    accepted [R, 1+K] int32 as target_verify gave it, signs (runtime/bundle/signs.py), which are negative, behind the
    last token; positions [R*(1+K)] and slot_mapping [R*(1+K)], the very ones that target_verify took; block_table
    [R, B]; features [R*(1+K), A*Ht]; length_limits [R] int32; pools -> step_tokens [R, 1+2K] int32: `accepted`, then
    the drafts.
    """

    def follow(self, given: Tensor | None, *inputs: Tensor, rank: Tensor | None = None) -> tuple[Tensor, list[Tensor]]:
        accepted, positions, slot_mapping, block_table, features, length_limits, *pools = inputs
        requests, rows_each = accepted.shape
        kept = accepted >= 0
        rows = kept.view(-1)
        tokens = torch.where(rows, accepted.view(-1), 0)
        positions = torch.where(rows, positions, 0)
        slots = torch.where(rows, slot_mapping, 0)
        hidden = self.run_layers(tokens, self.reduce(features), positions, slots, block_table, tuple(pools), rank)
        column = torch.arange(rows_each, device=accepted.device, dtype=torch.int32)
        first = torch.arange(requests, device=accepted.device, dtype=torch.int32) * rows_each
        last = (first + torch.where(kept, column[None, :], 0).amax(dim=1)).long()
        # A request without a token has no last row: its chain would begin at position 0 and overwrite its prompt's KV
        length_limits = torch.where(kept[:, 0], length_limits, 0)
        return self.chain(hidden[last], positions[last], block_table, length_limits, tuple(pools), given, rank)

    def forward(  # type: ignore[override]
        self,
        accepted: Tensor,
        positions: Tensor,
        slot_mapping: Tensor,
        block_table: Tensor,
        features: Tensor,
        length_limits: Tensor,
        key_pool: Tensor,
        value_pool: Tensor,
        *further_pools: Tensor,
        rank: Tensor | None = None,
    ) -> Tensor:
        pools = (key_pool, value_pool, *further_pools)
        given = (accepted, positions, slot_mapping, block_table, features, length_limits)
        drafts, _ = self.follow(None, *given, *pools, rank=rank)
        return torch.cat([accepted, drafts], dim=1)


class DraftFusedPrefill(FusedChain):
    """After a chunk of one prompt, T rows.

    tokens [T], the chunk's own, as target_prefill took them; next_token [1], the token after the chunk: what
    target_prefill gave, or the prompt's where the chunk is not its last; behind a sign nothing is drafted; last_index
    [1], the chunk's last row; positions [T], slot_mapping [T], block_table [1, B], features [T, A*Ht]; length_limits
    [1] int32, 0 for a chunk behind which nothing is proposed; pools -> step_tokens [1, 1+K] int32: next_token, then the
    drafts.
    """

    def follow(self, given: Tensor | None, *inputs: Tensor, rank: Tensor | None = None) -> tuple[Tensor, list[Tensor]]:
        tokens, next_token, last_index, positions, slot_mapping, block_table, features, length_limits, *pools = inputs
        index = torch.arange(tokens.shape[0], device=tokens.device, dtype=torch.int32)
        given_token = next_token >= 0
        length_limits = torch.where(given_token, length_limits, 0)
        following = torch.where(given_token, next_token, 0)
        shifted = torch.where(index == last_index, following, torch.cat([tokens[1:], tokens[:1]]))
        read = (shifted, self.reduce(features), positions, slot_mapping, block_table, tuple(pools))
        hidden = self.run_layers(*read, rank)
        last = last_index.long()
        return self.chain(hidden[last], positions[last], block_table, length_limits, tuple(pools), given, rank)

    def forward(  # type: ignore[override]
        self,
        tokens: Tensor,
        next_token: Tensor,
        last_index: Tensor,
        positions: Tensor,
        slot_mapping: Tensor,
        block_table: Tensor,
        features: Tensor,
        length_limits: Tensor,
        key_pool: Tensor,
        value_pool: Tensor,
        *further_pools: Tensor,
        rank: Tensor | None = None,
    ) -> Tensor:
        pools = (key_pool, value_pool, *further_pools)
        given = (tokens, next_token, last_index, positions, slot_mapping, block_table, features, length_limits)
        drafts, _ = self.follow(None, *given, *pools, rank=rank)
        return torch.cat([next_token[:, None], drafts], dim=1)


def slots_of(positions: Tensor, block_table: Tensor, block_size: int) -> Tensor:
    """The slot of each request's position, [R] int32: block_table[r, pos // bs] * bs + pos % bs.

    Args:
        positions: [R] int32, each inside its row of block_table [R, B] int32.
    """
    column = torch.arange(block_table.shape[1], device=block_table.device, dtype=torch.int32)[None, :]
    index = torch.where(column * block_size <= positions[:, None], column, 0).amax(dim=1)
    block = torch.where(column == index[:, None], block_table, 0).amax(dim=1)
    return (block - index) * block_size + positions
