"""A request on its way through the engine: tokens, blocks, drafts, and how far it may go."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import Protocol

from runtime.bundle.errors import RequestError
from runtime.failures import failed
from runtime.request import FinishReason, Request, RequestOutput, SpecDecodeStats, Timing
from runtime.sampling.counts import TokenCounts
from runtime.sampling.params import TokenLogprobs


class StopWatch(Protocol):
    """Looks for stop strings in the text of tokens as they are committed; `runtime.text.stop.StopStrings` is one."""

    def push(self, ids: Seq[int]) -> tuple[str, str | None]:
        """Take the next ids; returns text that is of no interest here, and the stop string that came about."""
        ...


@dataclass
class Sequence:
    """State of one request.

    Between two steps a request that is caught up has the target's KV for positions 0..len(token_ids)-2, and the draft's
    for the same positions (row i from feature i and token i+1) while it may still draft; the last token is in neither.
    One that is new, or that was preempted, is behind: `num_computed` says how far its KV goes.

    Attributes:
        token_ids: prompt and generated tokens.
        length_limit: no token is generated past this many, prompt included: min(prompt + max_tokens, max_model_len).
        block_ids: blocks in order of position, enough for what the next pass writes.
        drafts: what the next verify pass will check, 0..K tokens.
        num_computed: positions from 0 on whose KV is there.
        num_drafted: positions from 0 on whose KV is there in the draft too.
        arrival: order of arrival, which decides who is preempted last.
        stop_token_ids: ids that end the request, the model's own among them unless they are ignored.
        eos_token_ids: those of them that are the model's own.
        watch: for stop strings, where it has any.
        logprobs: one for each generated token, where asked for.
        counts: of its tokens, for the sampler's penalties.
        error: why the request ended by itself, see `fail`.
        publishes: whether others may find its blocks, so that its prompt needs the draft's KV even if it never drafts.
        block_keys, num_published: keys of its blocks for the prefix cache, and how many of its blocks can be found.
    """

    request: Request
    length_limit: int
    token_ids: list[int]
    block_ids: list[int] = field(default_factory=list)
    drafts: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    timing: Timing = field(default_factory=Timing)
    spec_decode: SpecDecodeStats = field(default_factory=SpecDecodeStats)
    num_computed: int = 0
    num_drafted: int = 0
    arrival: int = 0
    stop_token_ids: frozenset[int] = frozenset()
    eos_token_ids: frozenset[int] = frozenset()
    watch: StopWatch | None = None
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    stop_reason: int | str | None = None
    error: RequestError | None = None
    counts: TokenCounts = field(default_factory=TokenCounts)
    publishes: bool = False
    block_keys: list[bytes] = field(default_factory=list)
    num_published: int = 0
    num_cached_tokens: int = 0
    num_preemptions: int = 0

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.request.prompt_token_ids)

    @property
    def output_token_ids(self) -> list[int]:
        return self.token_ids[self.num_prompt_tokens :]

    @property
    def prefilling(self) -> bool:
        """Whether the prompt is not computed yet."""
        return self.num_computed < self.num_prompt_tokens

    @property
    def caught_up(self) -> bool:
        """Whether the next pass gives a new token; after a preemption known ones are computed first."""
        # A prompt that lacks its last token alone is not there yet: nothing was chosen behind it
        return self.num_computed >= max(len(self.token_ids) - 1, self.num_prompt_tokens)

    def will_catch_up(self, rows: int) -> bool:
        """Whether the request is caught up after a verify pass with room for `rows` of its rows."""
        return self.num_computed + rows >= len(self.token_ids) - 1

    def draft_room(self, num_speculative_tokens: int, pending: int = 0) -> int:
        """How many drafts the next verify pass may hold: the position cutoff, once `pending` tokens more are there.

        With k drafts a pass commits up to k+1 tokens and writes positions up to len-1+k, so k is at most
        length_limit - len - 1. It never grows again: once 0, the request takes single-token steps to its end.
        """
        return max(0, min(num_speculative_tokens, self.length_limit - len(self.token_ids) - pending - 1))

    def commit(self, tokens: Seq[int], logprobs: Seq[TokenLogprobs] | None = None) -> list[int]:
        """Append tokens one at a time until one ends the request; returns those that were appended.

        Stop comes before length: a token that is both the last allowed one and an end-of-sequence id is a stop. What
        lies behind the end is dropped whole: ids, logprobs and, with `num_computed`, their KV. A failure in looking for
        the end is one: the token stays, and the request ends with an error.
        """
        count = 0
        for token in tokens:
            self.token_ids.append(token)
            count += 1
            try:
                self._look_for_the_end(token)
            except Exception as error:  # of this request's own stop strings, and nobody else's
                self.fail(failed(self.request.request_id, error))
            if self.finish_reason is not None:
                break
        if logprobs is not None:
            self.logprobs += logprobs[:count]
        self.num_computed = len(self.token_ids) - 1
        return list(tokens[:count])

    def _look_for_the_end(self, token: int) -> None:
        generated = len(self.token_ids) - self.num_prompt_tokens
        found = self.watch.push([token])[1] if self.watch is not None else None
        if token in self.stop_token_ids and generated > self.request.sampling.min_tokens:
            self.finish_reason = "stop"
            self.stop_reason = None if token in self.eos_token_ids else token
        elif found is not None:
            self.finish_reason, self.stop_reason = "stop", found
        elif len(self.token_ids) >= self.length_limit:
            self.finish_reason = "length"

    def fail(self, error: RequestError) -> None:
        """End the request with an error; its tokens stay. One that has ended already did not reach what failed."""
        if self.finish_reason is None:
            self.finish_reason, self.error = "error", error

    def preempt(self) -> None:
        """Forget all KV; the tokens stay, and are computed anew."""
        self.block_ids, self.drafts = [], []
        self.num_computed = self.num_drafted = self.num_published = 0
        self.num_preemptions += 1

    def note_drafted(self, start: int, rows: int) -> None:
        """The draft computed so many rows from `start` on; nothing is noted where earlier ones are missing."""
        if self.num_drafted >= start:
            self.num_drafted = start + rows

    def output(self) -> RequestOutput:
        """What the caller gets of a finished request."""
        return RequestOutput(
            self.request.request_id,
            self.request.prompt_token_ids,
            tuple(self.output_token_ids),
            self.finish_reason or "length",
            self.timing,
            self.spec_decode,
            tuple(self.logprobs),
            self.stop_reason,
            self.num_cached_tokens,
            self.num_preemptions,
            self.error,
        )
