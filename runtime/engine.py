"""The speculative loop: requests in, tokens out. It knows token ids only, and it never compiles.

One `step` is one pass, which the scheduler chooses (`runtime.scheduler`) and `runtime.passes` runs:

    prefill:  target_prefill over one chunk of one prompt, the draft behind it; behind the last chunk the first token
              and the first drafts
    verify:   target_verify over (last token + drafts) of every running request -> accepted tokens; commit; the draft's
              next chain

A draft in one graph (`runtime.fused`) runs before the target's tokens are read, and both are read at once.

A request may end by itself with an error (`runtime.failures`); the others never notice.

Plain decoding is the same loop with nothing proposed, through the same target_verify graphs, which is what makes greedy
speculation equal to it bit for bit (docs/design.md, "Exact").
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from runtime.admission import Watches, sequence_of
from runtime.blocks import BlockManager
from runtime.bundle.errors import UsageError
from runtime.bundle.manifest import GraphKind
from runtime.bundle.open import Bundle
from runtime.bundle.schedule import KSchedule
from runtime.fused import draft_kinds, draft_proposer
from runtime.graphs import GraphSet
from runtime.passes import Passes, Ran
from runtime.prefix import PrefixCaching, PrefixKeys
from runtime.proposer import NoProposer, Proposer, drafts_per_step
from runtime.report import report
from runtime.request import Request, RequestOutput, SpecDecodeStats, StepOutput
from runtime.sampling.sampler import Rejection, Sampler
from runtime.scheduler import Scheduler
from runtime.sequence import Sequence
from runtime.text.stop import StopStrings

if TYPE_CHECKING:
    from runtime.text import Tokenizer

logger = logging.getLogger("eagle3")

# When it is judged whether the draft is accepted at all, and what counts as not at all
WATCHED_DRAFTS, LEAST_ACCEPTED = 200, 0.01


class Engine:
    """Continuous batching over the compiled buckets, at most max_num_seqs requests at a time.

    Attributes:
        totals, generation_tokens: counts over all requests so far.
    """

    def __init__(
        self,
        graphs: GraphSet,
        proposer: Proposer,
        *,
        rejection: Rejection = "coupled",
        prefix_caching: PrefixCaching = "exact",
        schedule: KSchedule | None = None,
        watches: Watches | None = None,
    ) -> None:
        """`watches` makes what looks for a request's stop strings; without it requests cannot have any."""
        self.graphs, self.proposer = graphs, proposer
        self.manifest = manifest = graphs.manifest
        k, block_size = manifest.speculation.num_speculative_tokens, manifest.kv_cache.block_size
        self.blocks = BlockManager(graphs.num_blocks, block_size)
        keys = PrefixKeys(prefix_caching, block_size, manifest.buckets.prefill_tokens[-1])
        self.scheduler = Scheduler(self.blocks, keys, manifest.limits.max_num_seqs, k)
        sampler = Sampler(manifest.target.vocab_size, rejection)
        self._passes = Passes(graphs, proposer, sampler, schedule or KSchedule.constant(k))
        self._watches, self._rejection, self._prefix_caching = watches, rejection, prefix_caching
        self.totals = SpecDecodeStats()
        self.generation_tokens = 0
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
        tokenizer: Tokenizer | None = None,
        rejection: Rejection | None = None,
        prefix_caching: PrefixCaching = "exact",
        schedule: KSchedule | None = None,
    ) -> Engine:
        """Open a verified bundle.

        Args:
            speculation: False for plain decoding; the draft's graphs are then not opened.
            num_speculative_tokens: propose this many drafts instead of the bundle's K, of which it is at most.
            kv_blocks: size of the KV pool instead of the bundle's.
            proposer: makes the proposer, given the opened graphs; by default the bundle's EAGLE3 draft.
            device: "sim" runs a Neuron bundle on the CPU, see `backend_for`.
            tokenizer: the bundle's, for stop strings.
            rejection: how drafts of sampled requests are rejected, see `runtime.sampling.sampler`; default coupled.
            prefix_caching: see `runtime.prefix`.
            schedule: K by the number of requests; by default the bundle's own, and the same for all where it has none
                or num_speculative_tokens is given.

        Raises:
            UsageError: num_speculative_tokens is not in 1..K, or the bundle cannot reject as asked.
            IntegrityError, HostError: as `open_bundle` and the backends do.
        """
        k = drafts_per_step(bundle.manifest, num_speculative_tokens)
        if schedule is None and num_speculative_tokens is None:
            schedule = bundle.manifest.speculation.schedule
        if rejection == "standard" and bundle.manifest.sampling == "random":
            raise UsageError(
                f"{bundle.manifest.name} cannot reject in the standard way",
                expected="coupled, which is in its graphs",
                found="standard",
                repair="leave rejection out, or build the bundle without on_device_sampling_config",
            )
        kinds: list[GraphKind] = ["target_prefill", "target_verify"]
        if bundle.manifest.exactness.lossless == "near_tie":
            kinds.append("target_decode")
        if speculation and proposer is None:
            kinds += draft_kinds(bundle.manifest, k)
        graphs = GraphSet(bundle, kinds, kv_blocks, device=device)
        if proposer is None:
            proposer = (lambda opened: draft_proposer(opened, k)) if speculation else (lambda opened: NoProposer())
        return cls(
            graphs,
            proposer(graphs),
            rejection=rejection or "coupled",
            prefix_caching=prefix_caching,
            schedule=schedule,
            watches=None if tokenizer is None else _watches(tokenizer),
        )

    def beside(self, proposer: Proposer, schedule: KSchedule | None = None) -> Engine:
        """An engine with blocks of its own over the same graphs, pools and options: for one after the other."""
        return Engine(
            self.graphs,
            proposer,
            rejection=self._rejection,
            prefix_caching=self._prefix_caching,
            schedule=schedule or self._passes.schedule,
            watches=self._watches,
        )

    def watch(self, wrapper: Callable[[Proposer], Proposer]) -> None:
        """Replace the proposer by `wrapper(proposer)`: for observers, such as `runtime.judge.Judge`."""
        self.proposer = self._passes.proposer = wrapper(self.proposer)

    # Requests

    @property
    def waiting(self) -> list[Sequence]:
        """Requests without blocks, in order of arrival."""
        return list(self.scheduler.waiting)

    @property
    def running(self) -> list[Sequence]:
        """Requests with blocks, in the order in which they were admitted."""
        return self.scheduler.running

    @property
    def num_preemptions(self) -> int:
        return self.scheduler.num_preemptions

    def add_request(self, request: Request) -> None:
        """Queue a request.

        Raises:
            UsageError: it could never run, see `runtime.admission`, or its id is taken.
        """
        sequence = sequence_of(request, self.graphs, self.blocks, self._watches)
        if self.scheduler.holds(request.request_id):
            what = f"Request {request.request_id} cannot run"
            raise UsageError(what, expected="a new request id", found="one in use", repair="choose another id")
        self.scheduler.add(sequence)

    def abort(self, request_id: str) -> None:
        """Drop a request wherever it is; unknown ids are ignored. It yields no further output."""
        self.scheduler.abort(request_id)

    def has_unfinished(self) -> bool:
        return bool(self.scheduler.waiting or self.scheduler.running)

    def take_finished(self) -> list[RequestOutput]:
        """The requests that finished since the last call, in order of finishing."""
        finished, self._finished = self._finished, []
        return finished

    def generate(self, requests: list[Request]) -> list[RequestOutput]:
        """Run requests to their end; outputs in the order of `requests`. Nothing is queued where one is refused."""
        for index, request in enumerate(requests):
            try:
                self.add_request(request)
            except UsageError:
                for queued in requests[:index]:
                    self.abort(queued.request_id)
                raise
        while self.has_unfinished():
            self.step()
        outputs = {output.request_id: output for output in self.take_finished()}
        return [outputs[request.request_id] for request in requests]

    # The loop

    def step(self) -> list[StepOutput]:
        """Run one pass; the tokens that it gave, by request. A chunk of a prompt that is not its last gives none."""
        started = time.perf_counter()
        with torch.inference_mode():
            chosen = self.scheduler.next_pass()
            if isinstance(chosen, Sequence):
                behind = sum(one is chosen or not one.prefilling for one in self.running)
                ran = [self._passes.prefill(chosen, behind)]
            else:
                ran = self._passes.verify(chosen) if chosen else []
        outputs = [self._settle(one) for one in ran]
        self._warn_of_a_draft_that_misses()
        self.steps += 1
        self.step_seconds += time.perf_counter() - started
        return [output for output in outputs if output is not None]

    def _settle(self, ran: Ran) -> StepOutput | None:
        """Publish what others may share, count, and retire the request if it has finished."""
        sequence = ran.sequence
        if self.proposer.follows(sequence):
            self.scheduler.publish(sequence)
        if not ran.committed and sequence.finish_reason is None:
            return None
        if ran.committed:
            now = time.perf_counter()
            if sequence.timing.first_token is None:
                sequence.timing.first_token = now
            sequence.timing.last_token = now
        self.totals.observe(ran.num_draft_tokens, ran.num_accepted)
        self.generation_tokens += len(ran.committed)
        if sequence.finish_reason is not None:
            self.scheduler.remove(sequence)
            self._finished.append(sequence.output())
        return StepOutput(
            sequence.request.request_id,
            tuple(ran.committed),
            sequence.finish_reason,
            ran.num_draft_tokens,
            ran.num_accepted,
            tuple(sequence.logprobs[-len(ran.committed) :]) if sequence.logprobs and ran.committed else (),
            sequence.stop_reason,
        )

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

    def close(self) -> None:
        """Give a device's memory back, for a process that goes on without this engine."""
        self.graphs.close()

    def report(self) -> dict[str, object]:
        """What --stats prints, see `runtime.report`."""
        return report(self)


def _watches(tokenizer: Tokenizer) -> Watches:
    def watch(request: Request) -> StopStrings:
        params = request.sampling
        return StopStrings(
            tokenizer, params.stop, skip=params.min_tokens, skip_special_tokens=params.skip_special_tokens
        )

    return watch
