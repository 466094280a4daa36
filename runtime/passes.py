"""One pass through the compiled graphs: pad the rows, run, read what the target chose, commit, let the draft go on.

Where a request asks for more than the graph's greedy choice, its tokens come from the host's sampler, which reads the
pass's logits; what it chose takes the graph's place before the draft sees anything. The same way known tokens take it
for a request that was preempted: its generated tokens run through verify passes again and not through a prefill,
because rows of a verify pass keep their bits wherever they stand, and those of a prefill are rounded otherwise.

A row whose logits are not finite gives a sign and no token (`runtime.bundle.signs`). Its request ends there with an
error, behind the tokens that came before, as it would without speculation; the pass goes on for all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
from torch import Tensor

from runtime.backends.device import to_host
from runtime.batch import Bucket, pad_rows
from runtime.bundle.errors import IntegrityError, RequestError
from runtime.bundle.schedule import KSchedule
from runtime.bundle.signs import NOT_FINITE, NOTHING, Chosen
from runtime.failures import failed, logits_not_finite
from runtime.graph import LoadedGraph
from runtime.graphs import GraphSet
from runtime.proposer import Proposer
from runtime.sampling.sampler import Choice, SampledRows, Sampler
from runtime.sequence import Sequence


@dataclass(frozen=True)
class Ran:
    """What one pass did for one request.

    Attributes:
        committed: the new tokens; none while a prompt or known tokens are computed.
        num_draft_tokens, num_accepted: drafts that were checked, and those that the target agreed with.
    """

    sequence: Sequence
    committed: list[int]
    num_draft_tokens: int = 0
    num_accepted: int = 0


class Passes:
    """Runs the passes that the scheduler chose.

    Attributes:
        schedule: K by the number of requests in a pass.
    """

    def __init__(self, graphs: GraphSet, proposer: Proposer, sampler: Sampler, schedule: KSchedule) -> None:
        self.graphs, self.proposer, self.sampler, self.schedule = graphs, proposer, sampler, schedule
        self._block_size = graphs.manifest.kv_cache.block_size
        self._chunk = graphs.manifest.buckets.prefill_tokens[-1]

    def prefill(self, sequence: Sequence, batch_size: int) -> Ran:
        """Run the next chunk of a prompt, the draft behind it.

        Args:
            batch_size: requests that the next verify pass will have, by which K is chosen.
        """
        start = sequence.num_computed
        end = min(start + self._chunk, sequence.num_prompt_tokens)
        tokens = sequence.token_ids[start:end]
        # None where this is the text's end so far, so that the target's choice is wanted
        following = sequence.token_ids[end] if end < len(sequence.token_ids) else None
        graph, bucket = self.graphs.prefill("target_prefill", len(tokens), end)
        inputs = pad_rows([sequence], [tokens], [start], bucket, self._block_size)
        inputs["last_index"] = torch.tensor([len(tokens) - 1], dtype=torch.int32)
        next_token, features, *logits = graph({**inputs, **self._uniforms(graph, [sequence], bucket)})
        choices = self._choose({0: sequence} if following is None else {}, [[]], logits, 1)
        if choices:
            next_token = torch.tensor(choices[0].token_ids, dtype=torch.int32)
        chosen = self.proposer.read_prefill(sequence, inputs, next_token, features, following)
        committed: list[int] = []
        if following is None:
            committed, _ = self._take(sequence, chosen, choices.get(0))
        sequence.num_computed = end
        self.proposer.limit(self.schedule.k_for(batch_size))
        shifted = sequence.token_ids[start + 1 : end + 1]
        self.proposer.after_prefill(sequence, shifted, start, features, sequence.caught_up)
        return Ran(sequence, committed)

    def verify(self, members: Seq[Sequence]) -> list[Ran]:
        """One target pass over `members`, then the draft's next chain."""
        most = self.schedule.k_for(len(members))
        tokens = [self._rows(member, most) for member in members]
        drafts = [run[1:] if member.caught_up else [] for member, run in zip(members, tokens, strict=True)]
        starts = [member.num_computed for member in members]
        graph, bucket = self._verify_graph(members, max(len(run) for run in tokens))
        inputs = pad_rows(members, tokens, starts, bucket, self._block_size)
        counts = [len(run) - 1 for run in tokens] + [0] * (bucket.requests - len(members))
        inputs["num_draft_tokens"] = torch.tensor(counts, dtype=torch.int32)
        accepted, features, *logits = graph({**inputs, **self._uniforms(graph, members, bucket)})
        choosing = {index: member for index, member in enumerate(members) if member.caught_up}
        choices = self._choose(choosing, drafts, logits, bucket.rows_each)
        given = {index: choice.token_ids for index, choice in choices.items()}
        for index, (member, run) in enumerate(zip(members, tokens, strict=True)):
            if not member.caught_up:
                given[index] = member.token_ids[starts[index] + 1 :][: len(run)]
        rows = self.proposer.read_verify(members, inputs, _replace_rows(accepted, given), features)
        ran = [
            self._commit(member, row, len(checked), choices.get(index))
            for index, (member, row, checked) in enumerate(zip(members, rows, drafts, strict=False))
        ]
        left = sum(member.finish_reason is None for member in members)
        self.proposer.limit(self.schedule.k_for(max(left, 1)))
        runs = [
            member.token_ids[start + 1 : member.num_computed + 1] for member, start in zip(members, starts, strict=True)
        ]
        self.proposer.after_verify(members, runs, features, bucket)
        return ran

    def _rows(self, member: Sequence, most: int) -> list[int]:
        """The tokens of a request's rows: its last one and at most `most` drafts, or known ones that lack their KV."""
        first = member.num_computed
        if member.caught_up:
            del member.drafts[most:]
            return member.token_ids[first:] + member.drafts
        rows = 1 + self.graphs.manifest.speculation.num_speculative_tokens
        return member.token_ids[first : min(first + rows, len(member.token_ids) - 1)]

    def _commit(self, member: Sequence, row: list[int], num_drafts: int, choice: Choice | None) -> Ran:
        member.drafts = []
        if not member.caught_up:
            member.num_computed += sum(token >= 0 for token in row)
            return Ran(member, [])
        run, num_accepted = self._take(member, row, choice)
        # Accepted drafts that a stop cut off count as accepted: the target agreed with them
        member.spec_decode.observe(num_drafts, num_accepted)
        return Ran(member, run, num_drafts, num_accepted)

    def _take(self, member: Sequence, row: list[int], choice: Choice | None) -> tuple[list[int], int]:
        """Commit a request's row of a pass, up to what ends it; the tokens committed, and how many of them drafts were.

        An error counts behind the tokens before it only: where one of those ends the request, its row was never due.
        """
        chosen = Chosen.of(row, self.sampler.vocab_size)
        tokens, sign = chosen.tokens, chosen.sign
        run = member.commit(tokens, choice.logprobs if choice else None)
        if member.finish_reason is None and (error := self._error(member, tokens, sign, choice)) is not None:
            member.fail(error)
        return run, chosen.num_accepted

    def _error(self, member: Sequence, tokens: list[int], sign: int, choice: Choice | None) -> RequestError | None:
        """Why a request that took `tokens` cannot go on behind them; None where it can."""
        name = member.request.request_id
        if choice is not None and choice.error is not None:
            return failed(name, choice.error)
        if sign == NOT_FINITE:
            return logits_not_finite(name, len(member.token_ids))
        if sign == NOTHING and tokens:
            return None
        wrong = IntegrityError(
            "A pass gave what is no token",
            expected=f"at least one token from 0 to {self.sampler.vocab_size - 1}, then {NOTHING}",
            found=str(sign) if tokens or sign != NOTHING else "none",
            repair="rebuild the bundle with eagle3-build",
        )
        return failed(name, wrong)

    def _verify_graph(self, members: Seq[Sequence], rows: int) -> tuple[LoadedGraph, Bucket]:
        """target_verify, or target_decode where the bundle has one, no request has more than one row, and the draft can
        go on from there."""
        manifest = self.graphs.manifest
        plain = manifest.exactness.lossless == "near_tie" and rows == 1
        plain = plain and self.proposer.can_follow_single_rows(members)
        # Sized for K drafts even where fewer are left, so that the bucket is a function of the length alone
        reach = 1 if plain else 1 + manifest.speculation.num_speculative_tokens
        context = min(manifest.limits.max_model_len, max(member.num_computed for member in members) + reach)
        return self.graphs.decode("target_decode" if plain else "target_verify", len(members), context, rows - 1)

    def _choose(
        self, members: Mapping[int, Sequence], drafts: Seq[list[int]], logits: Seq[Tensor], rows_each: int
    ) -> dict[int, Choice]:
        """What the host's sampler chooses, by place in the pass, where the graph's own choice is not enough.

        Args:
            members: those that get a new token.
            drafts: of each place in the pass.
            logits: empty, or the pass's logits, [R * rows_each, V] float32.
        """
        wanting = [place for place, member in members.items() if logits and member.request.sampling.needs_logits]
        if not wanting:
            return {}
        rows = [sampled_rows(members[place], drafts[place], place * rows_each) for place in wanting]
        return dict(zip(wanting, self.sampler.choose(rows, to_host(logits[0])), strict=True))

    def _uniforms(self, graph: LoadedGraph, members: Seq[Sequence], bucket: Bucket) -> dict[str, Tensor]:
        """Inputs of a graph that samples: each request's parameters and each row's random number."""
        if self.graphs.manifest.sampling != "random":
            return {}
        from runtime.sampling.device import device_inputs

        rows_each = 1 if graph.spec.kind == "target_prefill" else bucket.rows_each
        return device_inputs([sampled_rows(member, member.drafts, 0) for member in members], bucket.requests, rows_each)


def sampled_rows(member: Sequence, drafts: Seq[int], first_row: int) -> SampledRows:
    """What the sampler must know of a request whose rows begin at `first_row` of the logits."""
    return SampledRows(
        params=member.request.sampling,
        token_ids=member.token_ids,
        num_prompt_tokens=member.num_prompt_tokens,
        drafts=drafts,
        first_row=first_row,
        stop_ids=member.stop_token_ids,
        counts=member.counts,
    )


def _replace_rows(accepted: Tensor, rows: dict[int, list[int]]) -> Tensor:
    """`accepted` [R, 1+k] with some requests' tokens replaced, NOTHING behind them; untouched where there are none."""
    if not rows:
        return accepted
    replaced = to_host(accepted).clone()
    width = replaced.shape[1]
    for index, tokens in rows.items():
        replaced[index] = torch.tensor(tokens + [NOTHING] * (width - len(tokens)), dtype=replaced.dtype)
    return replaced
