"""The speculative loop: requests in, tokens out. It knows token ids only, and it never compiles.

One `step` is either the prefill of one waiting request or one verify pass over all running ones:

    prefill:  target_prefill per chunk -> first token; the draft follows each chunk; first drafts
    verify:   target_verify over (last token + drafts) -> accepted tokens; commit; the draft's next chain

A draft in one graph (`runtime.fused`) runs before the target's tokens are read, and both are read at once.

Plain decoding is the same loop with nothing proposed, through the same target_verify graphs, which is what makes greedy
speculation equal to it bit for bit (docs/design.md, "Exact").
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable

import torch

from runtime.batch import Bucket, pad_rows
from runtime.blocks import BlockManager
from runtime.bundle.errors import UsageError
from runtime.bundle.manifest import GraphKind
from runtime.bundle.open import Bundle
from runtime.fused import draft_kinds, draft_proposer
from runtime.graph import LoadedGraph
from runtime.graphs import GraphSet
from runtime.proposer import NoProposer, Proposer, drafts_per_step
from runtime.report import report
from runtime.request import Request, RequestOutput, SpecDecodeStats, StepOutput
from runtime.sequence import Sequence

logger = logging.getLogger("eagle3")

# When it is judged whether the draft is accepted at all, and what counts as not at all
WATCHED_DRAFTS, LEAST_ACCEPTED = 200, 0.01


class Engine:
    """Continuous batching over the compiled buckets, at most max_num_seqs requests at a time, greedy.

    A request's blocks are reserved whole when it starts, so a running request never waits for memory.
    """

    def __init__(self, graphs: GraphSet, proposer: Proposer) -> None:
        self.graphs, self.proposer = graphs, proposer
        manifest = graphs.manifest
        self.manifest = manifest
        self.blocks = BlockManager(graphs.num_blocks, manifest.kv_cache.block_size)
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.totals = SpecDecodeStats()
        self.steps, self.step_seconds = 0, 0.0
        self._warned = False
        self._finished: list[RequestOutput] = []

    @classmethod
    def load(
        cls,
        bundle: Bundle,
        *,
        speculation: bool = True,
        num_speculative_tokens: int | None = None,
        kv_blocks: int | None = None,
        proposer: Callable[[GraphSet], Proposer] | None = None,
        device: str | None = None,
    ) -> Engine:
        """Open a verified bundle.

        Args:
            speculation: False for plain decoding; the draft's graphs are then not opened.
            num_speculative_tokens: propose this many drafts instead of the bundle's K, of which it is at most. The
                passes keep their 1+K rows, so a bundle built for fewer is a little faster.
            kv_blocks: size of the KV pool instead of the bundle's.
            proposer: makes the proposer, given the opened graphs; by default the bundle's EAGLE3 draft.
            device: "sim" runs a Neuron bundle on the CPU, see `backend_for`.

        Raises:
            UsageError: num_speculative_tokens is not in 1..K.
            IntegrityError, HostError: as `open_bundle` and the backends do.
        """
        k = drafts_per_step(bundle.manifest, num_speculative_tokens)
        kinds: list[GraphKind] = ["target_prefill", "target_verify"]
        if bundle.manifest.exactness.lossless == "near_tie":
            kinds.append("target_decode")
        if speculation and proposer is None:
            kinds += draft_kinds(bundle.manifest, k)
        graphs = GraphSet(bundle, kinds, kv_blocks, device=device)
        if proposer is not None:
            return cls(graphs, proposer(graphs))
        return cls(graphs, draft_proposer(graphs, k) if speculation else NoProposer())

    # Requests

    def add_request(self, request: Request) -> None:
        """Queue a request.

        Raises:
            UsageError: the prompt is empty, too long for the bundle, holds an id outside the vocabulary; max_tokens is
                below 1; the id is taken; or the KV pool could never hold the request.
        """
        limits, prompt = self.manifest.limits, request.prompt_token_ids
        what = f"Request {request.request_id} cannot run"
        if not prompt:
            raise UsageError(what, expected="at least one prompt token", found="none", repair="give it a prompt")
        if len(prompt) > limits.max_model_len - 1:
            raise UsageError(
                what,
                expected=f"a prompt of at most {limits.max_model_len - 1} tokens (max_model_len - 1)",
                found=f"{len(prompt)}",
                repair="shorten the prompt, or build the bundle with a larger max_model_len",
            )
        bad = next((token for token in prompt if not 0 <= token < self.manifest.target.vocab_size), None)
        if bad is not None:
            raise UsageError(
                what,
                expected=f"token ids from 0 to {self.manifest.target.vocab_size - 1}",
                found=str(bad),
                repair="encode the prompt with the bundle's own tokenizer",
            )
        if request.max_tokens < 1:
            raise UsageError(
                what,
                expected="max_tokens of at least 1",
                found=str(request.max_tokens),
                repair="raise max_tokens",
            )
        if any(s.request.request_id == request.request_id for s in (*self.waiting, *self.running)):
            raise UsageError(what, expected="a new request id", found="one in use", repair="choose another id")
        limit = min(len(prompt) + request.max_tokens, limits.max_model_len)
        needed = self.blocks.blocks_for(limit)
        if needed > self.blocks.num_blocks - 1:
            raise UsageError(
                what,
                expected=f"at most {self.blocks.num_blocks - 1} KV blocks of {self.blocks.block_size} tokens",
                found=f"{needed} blocks for {limit} tokens",
                repair="lower max_tokens, or give the pool more blocks (kv_blocks)",
            )
        self.waiting.append(Sequence(request, limit, list(prompt)))

    def abort(self, request_id: str) -> None:
        """Drop a request wherever it is; unknown ids are ignored. It yields no further output."""
        for sequence in list(self.running):
            if sequence.request.request_id == request_id:
                self.running.remove(sequence)
                self.blocks.release(sequence.block_ids)
        self.waiting = deque(s for s in self.waiting if s.request.request_id != request_id)

    def has_unfinished(self) -> bool:
        return bool(self.waiting or self.running)

    def take_finished(self) -> list[RequestOutput]:
        """The requests that finished since the last call, in order of finishing."""
        finished, self._finished = self._finished, []
        return finished

    def generate(self, requests: list[Request]) -> list[RequestOutput]:
        """Run requests to their end; outputs in the order of `requests`."""
        for request in requests:
            self.add_request(request)
        while self.has_unfinished():
            self.step()
        outputs = {output.request_id: output for output in self.take_finished()}
        return [outputs[request.request_id] for request in requests]

    # The loop

    def step(self) -> list[StepOutput]:
        """Prefill one waiting request if it fits, else run one verify pass over the running ones."""
        started = time.perf_counter()
        with torch.inference_mode():
            outputs = self._prefill(admitted) if (admitted := self._admit()) else self._verify()
        self.steps += 1
        self.step_seconds += time.perf_counter() - started
        return outputs

    def _admit(self) -> Sequence | None:
        """The first waiting request, with its blocks, if there is room for it."""
        if not self.waiting or len(self.running) >= self.manifest.limits.max_num_seqs:
            return None
        blocks = self.blocks.allocate(self.blocks.blocks_for(self.waiting[0].length_limit))
        if blocks is None:
            return None
        sequence = self.waiting.popleft()
        sequence.block_ids = blocks
        return sequence

    def _prefill(self, sequence: Sequence) -> list[StepOutput]:
        """Run a prompt in chunks of the largest prefill bucket, the draft behind each chunk."""
        prompt = sequence.token_ids[:]
        chunk = self.manifest.buckets.prefill_tokens[-1]
        self.running.append(sequence)
        committed: list[int] = []
        for start in range(0, len(prompt), chunk):
            tokens = prompt[start : start + chunk]
            end = start + len(tokens)
            final = end == len(prompt)
            graph, bucket = self.graphs.prefill("target_prefill", len(tokens), end)
            inputs = pad_rows([sequence], [tokens], [start], bucket, self.blocks.block_size)
            inputs["last_index"] = torch.tensor([len(tokens) - 1], dtype=torch.int32)
            next_token, features = graph(inputs)[:2]
            following = None if final else prompt[end]
            chosen = self.proposer.read_prefill(sequence, inputs, next_token, features, following)
            if final:
                committed = sequence.commit(chosen, self.manifest.target.eos_token_ids)
                self._clock(sequence)
            # The row after a chunk is known: the prompt's next token, or the one just committed
            shifted = (prompt + committed)[start + 1 : end + 1]
            self.proposer.after_prefill(sequence, shifted, start, features, final)
        return self._collect([sequence], [committed], [(0, 0)])

    def _verify(self) -> list[StepOutput]:
        """One target pass over every running request, then the draft's next chain."""
        members = list(self.running)
        if not members:
            return []
        graph, bucket = self._verify_graph(members)
        starts = [len(member.token_ids) - 1 for member in members]
        tokens = [member.token_ids[-1:] + member.drafts for member in members]
        inputs = pad_rows(members, tokens, starts, bucket, self.blocks.block_size)
        counts = [len(member.drafts) for member in members] + [0] * (bucket.requests - len(members))
        inputs["num_draft_tokens"] = torch.tensor(counts, dtype=torch.int32)
        accepted, features = graph(inputs)[:2]
        rows = self.proposer.read_verify(members, inputs, accepted, features)
        committed, counted = [], []
        for member, row in zip(members, rows, strict=False):
            drafts = len(member.drafts)
            run = member.commit([token for token in row if token >= 0], self.manifest.target.eos_token_ids)
            # Accepted drafts that a stop cut off count as accepted: the target agreed with them
            agreed = sum(token >= 0 for token in row) - 1
            member.spec_decode.observe(drafts, agreed)
            self.totals.observe(drafts, agreed)
            member.drafts = []
            self._clock(member)
            committed.append(run)
            counted.append((drafts, agreed))
        self._warn_of_a_draft_that_misses()
        self.proposer.after_verify(members, committed, features)
        return self._collect(members, committed, counted)

    def _warn_of_a_draft_that_misses(self) -> None:
        """Say once that next to nothing is accepted: the text is right all the same, so nothing else would show it."""
        if self._warned or self.totals.num_drafts < WATCHED_DRAFTS:
            return
        share = self.totals.num_accepted_tokens / self.totals.num_draft_tokens
        # A right draft is far above this from its first prompts on
        self._warned = True
        if share < LEAST_ACCEPTED:
            logger.warning(
                "warning: the target accepted %.1f %% of the first %d draft tokens, so speculation only costs; the "
                "likeliest cause is a draft that reads other auxiliary layers than it was trained on (eagle3-build "
                "--probe-aux), else one that was trained for another target or not at all",
                100 * share,
                self.totals.num_draft_tokens,
            )

    def _verify_graph(self, members: list[Sequence]) -> tuple[LoadedGraph, Bucket]:
        """target_verify, or target_decode where the bundle has one and no request holds a draft."""
        plain = self.manifest.exactness.lossless == "near_tie" and not any(m.drafts for m in members)
        # Sized for K drafts even where fewer are left, so that the bucket is a function of the length alone
        rows = 1 if plain else 1 + self.manifest.speculation.num_speculative_tokens
        limit = self.manifest.limits.max_model_len
        context = min(limit, max(len(member.token_ids) for member in members) - 1 + rows)
        return self.graphs.decode("target_decode" if plain else "target_verify", len(members), context)

    def _clock(self, sequence: Sequence) -> None:
        now = time.perf_counter()
        if sequence.timing.first_token is None:
            sequence.timing.first_token = now
        sequence.timing.last_token = now

    def _collect(
        self, members: list[Sequence], committed: list[list[int]], counted: list[tuple[int, int]]
    ) -> list[StepOutput]:
        """Report committed tokens, beside drafts checked and accepted, and retire what has finished."""
        outputs = []
        for member, tokens, counts in zip(members, committed, counted, strict=True):
            outputs.append(StepOutput(member.request.request_id, tuple(tokens), member.finish_reason, *counts))
            if member.finish_reason is not None:
                self.running.remove(member)
                self.blocks.release(member.block_ids)
                self._finished.append(
                    RequestOutput(
                        member.request.request_id,
                        member.request.prompt_token_ids,
                        tuple(member.output_token_ids),
                        member.finish_reason,
                        member.timing,
                        member.spec_decode,
                    )
                )
        return outputs

    def close(self) -> None:
        """Give a device's memory back, for a process that goes on without this engine."""
        self.graphs.close()

    def report(self) -> dict[str, object]:
        """What --stats prints, see `runtime.report`."""
        return report(self)
