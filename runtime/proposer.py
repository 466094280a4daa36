"""Who proposes draft tokens: the EAGLE3 draft's graphs, a script, or nobody.

A proposer is told of every target pass, because draft KV row i holds (feature i, token i+1) and must be rewritten with
the target's true features after each verify. It answers by filling `sequence.drafts`.

What the target chose is read through the proposer too: one whose graph takes the target's outputs as they are
(`runtime.fused`) has them run first and reads both results at once. All others read the target's and go on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from typing import Protocol

import torch
from torch import Tensor

from runtime.backends.device import to_host
from runtime.batch import Bucket, pad_rows
from runtime.bundle.errors import UsageError
from runtime.bundle.manifest import Manifest
from runtime.graphs import GraphSet
from runtime.sequence import Sequence


class Proposer(Protocol):
    """What the engine calls after its target passes: `read_...` for the tokens, then `after_...` for the drafts.

    `inputs` are those of the target's pass, and its outputs may still lie on a device.
    """

    def limit(self, num_speculative_tokens: int) -> None:
        """Propose at most so many drafts from now on: 0 to the number that the proposer was made for."""
        return

    def follows(self, sequence: Sequence) -> bool:
        """Whether the draft's KV of the request is as far as the target's, once the `after_...` of a pass is done."""
        return True

    def can_follow_single_rows(self, members: Seq[Sequence]) -> bool:
        """Whether the draft has nothing to do behind a pass of one row for each of `members`, or a graph for it."""
        return True

    def read_prefill(
        self,
        sequence: Sequence,
        inputs: Mapping[str, Tensor],
        next_token: Tensor,
        features: Tensor,
        following: int | None,
    ) -> list[int]:
        """The token that the target chose after the chunk, [1]; nothing where the text goes on.

        Args:
            inputs: of target_prefill.
            features: [T, A*Ht].
            following: the known token after the chunk; None where there is none.
        """
        chosen: list[int] = next_token.tolist() if following is None else []
        return chosen

    def read_verify(
        self, members: Seq[Sequence], inputs: Mapping[str, Tensor], accepted: Tensor, features: Tensor
    ) -> list[list[int]]:
        """accepted [R, 1+k] as lists. Row r is members[r]'s; rows past the last member are padding.

        Args:
            inputs: of target_verify.
            features: [R*(1+k), A*Ht].
        """
        rows: list[list[int]] = accepted.tolist()
        return rows

    def after_prefill(self, sequence: Sequence, shifted: list[int], start: int, features: Tensor, final: bool) -> None:
        """A chunk of `sequence`'s prompt ran.

        Args:
            shifted: for each row of the chunk the token after it: the known one, or for the last row of the last
                chunk the token that the target just chose.
            start: position of the chunk's first row.
            features: [T, A*Ht].
            final: the last of these tokens is the text's last so far; only then are drafts proposed.
        """
        ...

    def after_verify(self, members: Seq[Sequence], accepted: Seq[list[int]], features: Tensor, bucket: Bucket) -> None:
        """A verify pass ran in `bucket`. Rows of members[r] begin at r * (1+k) in features [R*(1+k), A*Ht].

        accepted[r] holds the tokens after its rows 0, 1, ..., as committed; `num_computed` counts these rows already.
        A finished member is passed too, with its features; it needs no drafts, nor does one that is still behind.
        """
        ...


class NoProposer(Proposer):
    """Plain decoding: nothing is ever proposed."""

    def after_prefill(self, sequence: Sequence, shifted: list[int], start: int, features: Tensor, final: bool) -> None:
        return

    def after_verify(self, members: Seq[Sequence], accepted: Seq[list[int]], features: Tensor, bucket: Bucket) -> None:
        return


class ScriptedProposer(Proposer):
    """Proposes what a function says, whatever the draft would. Forces any accept and reject pattern.

    `script(sequence, k)` returns at most k tokens to propose after `sequence.token_ids`.
    """

    def __init__(self, script: Callable[[Sequence, int], list[int]], num_speculative_tokens: int) -> None:
        self._script, self._k, self._most = script, num_speculative_tokens, num_speculative_tokens

    def limit(self, num_speculative_tokens: int) -> None:
        self._k = min(num_speculative_tokens, self._most)

    def _fill(self, sequence: Sequence) -> None:
        room = 0 if sequence.finish_reason or not sequence.caught_up else sequence.draft_room(self._k)
        sequence.drafts = self._script(sequence, room)[:room] if room else []

    def after_prefill(self, sequence: Sequence, shifted: list[int], start: int, features: Tensor, final: bool) -> None:
        if final:
            self._fill(sequence)

    def after_verify(self, members: Seq[Sequence], accepted: Seq[list[int]], features: Tensor, bucket: Bucket) -> None:
        for member in members:
            self._fill(member)


class EagleProposer(Proposer):
    """The EAGLE3 chain: one initial pass over the target's rows, then k-1 recurrent passes of one row per request.

    k is the bundle's K or less; with k = 0 the initial pass alone runs, so that the draft's KV stays in step.
    """

    def __init__(self, graphs: GraphSet, num_speculative_tokens: int | None = None) -> None:
        """Propose at most `num_speculative_tokens` drafts, by default the bundle's K; see `drafts_per_step`."""
        self._graphs = graphs
        self._k = self._most = drafts_per_step(graphs.manifest, num_speculative_tokens)
        self._block_size = graphs.manifest.kv_cache.block_size
        single = {size for kind, size, _, rows in graphs.loaded if kind == "draft_initial" and rows == 1}
        self._single_rows = single == set(graphs.manifest.buckets.num_seqs)

    def limit(self, num_speculative_tokens: int) -> None:
        self._k = min(num_speculative_tokens, self._most)

    def follows(self, sequence: Sequence) -> bool:
        return sequence.num_drafted >= sequence.num_computed

    def can_follow_single_rows(self, members: Seq[Sequence]) -> bool:
        return self._single_rows or not any(_will_draft(member) for member in members)

    def after_prefill(self, sequence: Sequence, shifted: list[int], start: int, features: Tensor, final: bool) -> None:
        sequence.drafts = []
        end = start + len(shifted)
        # Without a token behind the last row there is no such row
        if end < sequence.num_computed or not (sequence.publishes or _will_draft(sequence)):
            return
        graph, bucket = self._graphs.prefill("draft_initial_prefill", len(shifted), end)
        inputs = pad_rows([sequence], [shifted], [start], bucket, self._block_size)
        inputs["features"] = features
        inputs["last_index"] = torch.tensor([len(shifted) - 1], dtype=torch.int32)
        token, state = graph(inputs)
        sequence.note_drafted(start, len(shifted))
        if final and self._wants(sequence):
            sequence.drafts = token.tolist()
            self._chain([sequence], state)

    def after_verify(self, members: Seq[Sequence], accepted: Seq[list[int]], features: Tensor, bucket: Bucket) -> None:
        for member in members:
            member.drafts = []
        # A member that will never draft again needs no draft KV: its rows are padding, its place in the pass stays
        active = [_will_draft(member) for member in members]
        if not any(active):
            return
        tokens = [run if on else [] for run, on in zip(accepted, active, strict=True)]
        starts = [member.num_computed - len(run) for member, run in zip(members, accepted, strict=True)]
        context = max(member.num_computed for member, on in zip(members, active, strict=True) if on)
        graph, bucket = self._graphs.beside("draft_initial", bucket, context)
        inputs = pad_rows(members, tokens, starts, bucket, self._block_size)
        last = [r * bucket.rows_each + max(len(run), 1) - 1 for r, run in enumerate(tokens)]
        last += [r * bucket.rows_each for r in range(len(members), bucket.requests)]
        inputs["features"] = features
        inputs["last_index"] = torch.tensor(last, dtype=torch.int32)
        token, state = graph(inputs)
        for member, start, run in zip(members, starts, tokens, strict=True):
            if run:
                member.note_drafted(start, len(run))
        if not any(map(self._wants, members)):
            return
        for member, first in zip(members, token.tolist(), strict=False):
            member.drafts = [first] if self._wants(member) else []
        self._chain(members, state)

    def _wants(self, sequence: Sequence) -> bool:
        """Whether the request's next pass holds drafts."""
        return _will_draft(sequence) and sequence.caught_up and self._k > 0

    def _chain(self, members: Seq[Sequence], state: Tensor) -> None:
        """Recurrent passes until every member has its drafts; the first draft row stands at `num_computed`.

        Args:
            state: [R, H] from the initial pass, row r for members[r].
        """
        wanted = [m.draft_room(self._k) if m.drafts else 0 for m in members]
        for step in range(1, max(wanted)):
            going = [want > step for want in wanted]
            # Only of those that go on: another may stand at max_model_len, past which there is no bucket
            context = max(member.num_computed for member, on in zip(members, going, strict=True) if on) + step
            graph, bucket = self._graphs.decode("draft_recurrent", len(members), context)
            tokens = [member.drafts[-1:] if on else [] for member, on in zip(members, going, strict=True)]
            starts = [member.num_computed + step - 1 for member in members]
            inputs = pad_rows(members, tokens, starts, bucket, self._block_size)
            inputs["state"] = _fit_rows(state, bucket.requests)
            token, state = graph(inputs)
            for member, drafted, on in zip(members, token.tolist(), going, strict=False):
                if on:
                    member.drafts.append(drafted)


def drafts_per_step(manifest: Manifest, num_speculative_tokens: int | None) -> int:
    """How many drafts a step proposes: the bundle's K, or the `num_speculative_tokens` asked for instead.

    Raises:
        UsageError: it is below 1, or above K: the compiled passes have 1+K rows and no more.
    """
    most = manifest.speculation.num_speculative_tokens
    if num_speculative_tokens is None:
        return most
    if not 1 <= num_speculative_tokens <= most:
        raise UsageError(
            f"{manifest.name} cannot speculate with {num_speculative_tokens} tokens a step",
            expected=f"1 to {most} (num_speculative_tokens of the bundle)",
            found=str(num_speculative_tokens),
            repair=f"ask for at most {most}, or rebuild the bundle with a larger num_speculative_tokens",
        )
    return num_speculative_tokens


def _will_draft(sequence: Sequence) -> bool:
    """Whether the request can ever propose again; the cutoff never grows, so one look is enough."""
    return sequence.finish_reason is None and sequence.draft_room(1) > 0


def _fit_rows(state: Tensor, rows: int) -> Tensor:
    """`state` [R, H] cut or padded with zeros to `rows`; the buckets of two passes may differ.

    One that fits is passed on as it is, and so never leaves a device that it is on.
    """
    if state.shape[0] == rows:
        return state
    state = to_host(state)
    if state.shape[0] < rows:
        return torch.nn.functional.pad(state, (0, 0, 0, rows - state.shape[0]))
    return state[:rows]
