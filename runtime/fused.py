"""The proposer of a bundle whose draft is one graph: a step of two runs and one read-back.

The separate draft needs the accepted tokens on the host before it starts, and each recurrent pass needs the token of
the one before: 1 + K results are waited for in a step. `draft_fused` takes what target_verify gave as it is, on the
device if that is where it lies, and its one output holds the accepted tokens beside the next K drafts.

The draft therefore runs before anyone knows what was accepted. It may do so in vain, for a request that turns out to
have ended; its rows are in blocks that the request still owns. And it always makes K drafts: the host cuts them to
what a request has room for, and `length_limits` keeps the rows behind that out of the KV pool.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from runtime.batch import Bucket, block_table
from runtime.bundle.manifest import GraphKind, Manifest
from runtime.graphs import GraphSet
from runtime.proposer import EagleProposer, Proposer, drafts_per_step
from runtime.sequence import Sequence

# What both graphs take as the target's pass took it
_PREFILL_INPUTS = ("tokens", "last_index", "positions", "slot_mapping")
_VERIFY_INPUTS = ("positions", "slot_mapping")


class FusedProposer(Proposer):
    """The EAGLE3 chain in one graph. k is the bundle's K or less; the graph makes K drafts either way."""

    def __init__(self, graphs: GraphSet, num_speculative_tokens: int | None = None) -> None:
        """Propose at most `num_speculative_tokens` drafts, by default the bundle's K; see `drafts_per_step`."""
        self._graphs = graphs
        self._k = self._most = drafts_per_step(graphs.manifest, num_speculative_tokens)
        self._made = graphs.manifest.speculation.num_speculative_tokens
        self._drafted = False  # whether the graph ran behind the pass that was read last
        self._drafts: list[list[int]] = []  # of the pass that was read last, K for each member; empty: it did not run

    def limit(self, num_speculative_tokens: int) -> None:
        self._k = min(num_speculative_tokens, self._most)

    def follows(self, sequence: Sequence) -> bool:
        return sequence.num_drafted >= sequence.num_computed

    def can_follow_single_rows(self, members: Seq[Sequence]) -> bool:
        return not any(_may_draft(member, pending=int(member.caught_up)) for member in members)

    def read_prefill(
        self,
        sequence: Sequence,
        inputs: Mapping[str, Tensor],
        next_token: Tensor,
        features: Tensor,
        following: int | None,
    ) -> list[int]:
        self._drafts, self._drafted = [], False
        if not (sequence.publishes or _may_draft(sequence, pending=int(following is None))):
            return super().read_prefill(sequence, inputs, next_token, features, following)
        rows = int(inputs["last_index"]) + 1
        end = int(inputs["positions"][rows - 1]) + 1
        # Behind a chunk that is not the last nothing is proposed, so nothing may be written
        proposing = end >= max(len(sequence.token_ids) - 1, sequence.num_prompt_tokens)
        context = self._reach(sequence, end) if proposing else end
        graph, bucket = self._graphs.prefill("draft_fused_prefill", rows, context)
        run = {name: inputs[name] for name in _PREFILL_INPUTS}
        run["block_table"] = block_table([sequence], bucket)
        run["features"] = features
        run["next_token"] = next_token if following is None else torch.tensor([following], dtype=torch.int32)
        limit = self._row_limit(sequence) if proposing else 0
        run["length_limits"] = torch.tensor([limit], dtype=torch.int32)
        (step_tokens,) = graph(run)
        self._drafted = True
        if not proposing:
            return []
        first, *drafts = step_tokens.tolist()[0]
        self._drafts = [drafts]
        return [first] if following is None else []

    def read_verify(
        self, members: Seq[Sequence], inputs: Mapping[str, Tensor], accepted: Tensor, features: Tensor
    ) -> list[list[int]]:
        self._drafts = []
        may_draft = [_may_draft(member, pending=int(member.caught_up)) for member in members]
        if not any(may_draft):
            return super().read_verify(members, inputs, accepted, features)
        # Row r of accepted is request r, so the bucket of requests is the target's
        requests, rows_each = accepted.shape
        context = max(self._reach(member, member.num_computed + rows_each) for member in members)
        graph, bucket = self._graphs.beside("draft_fused", Bucket(requests, rows_each, 0), context)
        proposing = [on and m.will_catch_up(rows_each) for m, on in zip(members, may_draft, strict=True)]
        limits = [self._row_limit(m) if on else 0 for m, on in zip(members, proposing, strict=True)]
        limits += [0] * (requests - len(members))
        run = {name: inputs[name] for name in _VERIFY_INPUTS}
        run["block_table"] = block_table(members, bucket)
        run["accepted"], run["features"] = accepted, features
        run["length_limits"] = torch.tensor(limits, dtype=torch.int32)
        (step_tokens,) = graph(run)
        rows = step_tokens.tolist()
        self._drafts = [row[rows_each:] for row in rows[: len(members)]]
        return [row[:rows_each] for row in rows]

    def after_prefill(self, sequence: Sequence, shifted: list[int], start: int, features: Tensor, final: bool) -> None:
        if self._drafted and start + len(shifted) >= sequence.num_computed:
            sequence.note_drafted(start, len(shifted))
        self._fill([sequence])

    def after_verify(self, members: Seq[Sequence], accepted: Seq[list[int]], features: Tensor, bucket: Bucket) -> None:
        for member, run in zip(members, accepted, strict=True):
            # Then its rows ran: it could draft before the pass's tokens were known
            if member.finish_reason is None and _may_draft(member, pending=0):
                member.note_drafted(member.num_computed - len(run), len(run))
        self._fill(members)

    def _reach(self, sequence: Sequence, end: int) -> int:
        """The context of a pass whose initial rows end before position `end`: K-1 recurrent rows may follow."""
        return min(end + self._made - 1, self._row_limit(sequence))

    def _row_limit(self, sequence: Sequence) -> int:
        """The position from which on a request's draft rows are not written: it ends there, or has no block there."""
        owned = len(sequence.block_ids) * self._graphs.manifest.kv_cache.block_size
        return min(sequence.length_limit, owned)

    def _fill(self, members: Seq[Sequence]) -> None:
        """Hand each member as many of its drafts as it has room for, now that its tokens are committed."""
        for member in members:
            member.drafts = []
        for member, drafts in zip(members, self._drafts, strict=False):
            if member.finish_reason is None and member.caught_up:
                member.drafts = drafts[: member.draft_room(self._k)]


def _may_draft(sequence: Sequence, pending: int) -> bool:
    """Whether the request can propose anything once `pending` more tokens are there; a pass commits one at least."""
    return sequence.draft_room(1, pending) > 0


def draft_kinds(manifest: Manifest, num_speculative_tokens: int) -> tuple[GraphKind, ...]:
    """The kinds of graph that the bundle's draft needs for so many drafts a step: the fused ones where it has them."""
    if any(graph.kind == "draft_fused" for graph in manifest.graphs):
        return "draft_fused_prefill", "draft_fused"
    if num_speculative_tokens == 1:
        return "draft_initial_prefill", "draft_initial"
    return "draft_initial_prefill", "draft_initial", "draft_recurrent"


def draft_proposer(graphs: GraphSet, num_speculative_tokens: int | None = None) -> Proposer:
    """The proposer of the bundle's EAGLE3 draft, over its fused graphs where it has them."""
    fused = any(kind == "draft_fused" for kind, *_ in graphs.loaded)
    return (FusedProposer if fused else EagleProposer)(graphs, num_speculative_tokens)
