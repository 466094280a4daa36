"""What a caller hands to the engine and what comes back. The engine knows token ids only; text is `runtime.text`'s."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Literal

from runtime.bundle.errors import RequestError
from runtime.sampling.params import GREEDY, SamplingParams, TokenLogprobs

# "error": the request failed by itself (`RequestOutput.error`), the others went on
FinishReason = Literal["stop", "length", "error"]


@dataclass(frozen=True)
class Request:
    """One generation request.

    Attributes:
        request_id: unique among the requests that the engine holds.
        prompt_token_ids: at least one id, each in [0, vocab_size), at most max_model_len - 1 of them.
        max_tokens: how many tokens to generate at most, at least 1. Generation also ends at max_model_len.
        ignore_eos: go on past the model's end-of-sequence ids.
        sampling: how tokens are chosen and what else ends the request; greedy by default.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    max_tokens: int = 128
    ignore_eos: bool = False
    sampling: SamplingParams = GREEDY


@dataclass
class SpecDecodeStats:
    """Counts of one request, or of a whole run, under vLLM's names.

    num_drafts counts the verify passes that held at least one draft token; per_pos[i] counts the passes that accepted
    draft position i (unconditional). The bonus or corrected token is not an accepted draft token.
    """

    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_accepted_tokens_per_pos: list[int] = field(default_factory=list)

    def observe(self, num_draft_tokens: int, num_accepted: int) -> None:
        """Count one verify pass of one request that held `num_draft_tokens` drafts and accepted `num_accepted`."""
        if num_draft_tokens == 0:
            return
        self.num_drafts += 1
        self.num_draft_tokens += num_draft_tokens
        self.num_accepted_tokens += num_accepted
        missing = num_draft_tokens - len(self.num_accepted_tokens_per_pos)
        self.num_accepted_tokens_per_pos += [0] * missing
        for position in range(num_accepted):
            self.num_accepted_tokens_per_pos[position] += 1

    @property
    def mean_acceptance_length(self) -> float:
        """Tokens committed per drafted verify pass, bonus included: 1 + accepted / drafts (vLLM's definition)."""
        return 1.0 + self.num_accepted_tokens / self.num_drafts if self.num_drafts else 1.0

    def merge(self, other: SpecDecodeStats) -> None:
        """Add `other`'s counts to these."""
        self.num_drafts += other.num_drafts
        self.num_draft_tokens += other.num_draft_tokens
        self.num_accepted_tokens += other.num_accepted_tokens
        mine, theirs = self.num_accepted_tokens_per_pos, other.num_accepted_tokens_per_pos
        mine += [0] * (len(theirs) - len(mine))
        for position, count in enumerate(theirs):
            mine[position] += count

    def to_json(self) -> dict[str, object]:
        return {
            "num_drafts": self.num_drafts,
            "num_draft_tokens": self.num_draft_tokens,
            "num_accepted_tokens": self.num_accepted_tokens,
            "num_accepted_tokens_per_pos": list(self.num_accepted_tokens_per_pos),
            "mean_acceptance_length": round(self.mean_acceptance_length, 4),
        }


@dataclass
class Timing:
    """Clock readings of one request, in seconds of `time.perf_counter`."""

    arrived: float = field(default_factory=time.perf_counter)
    first_token: float | None = None
    last_token: float | None = None

    def to_json(self, completion_tokens: int) -> dict[str, float | None]:
        """ttft_ms from arrival; tpot_ms over the tokens after the first; tokens_per_s over the whole request."""
        if self.first_token is None or self.last_token is None:
            return {"ttft_ms": None, "tpot_ms": None, "tokens_per_s": None}
        after_first = self.last_token - self.first_token
        total = self.last_token - self.arrived
        tpot = after_first / (completion_tokens - 1) if completion_tokens > 1 else None
        return {
            "ttft_ms": round((self.first_token - self.arrived) * 1e3, 3),
            "tpot_ms": None if tpot is None else round(tpot * 1e3, 3),
            "tokens_per_s": round(completion_tokens / total, 3) if total > 0 else None,
        }


@dataclass(frozen=True)
class StepOutput:
    """The tokens that one engine step committed for one request; `finish_reason` is set on its last one.

    A step in which a request ends with an error may have none.

    num_draft_tokens, num_accepted: what a verify step checked for it and how many the target agreed with, as
    `SpecDecodeStats.observe` counts them; 0 for a prefill.
    """

    request_id: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None
    num_draft_tokens: int = 0
    num_accepted: int = 0
    logprobs: tuple[TokenLogprobs, ...] = ()
    stop_reason: int | str | None = None


@dataclass(frozen=True)
class RequestOutput:
    """A finished request. `token_ids` holds what ended it, when a token did, as its last id.

    A stop string may end within the last token; the text is cut before it, the token is kept.

    Attributes:
        num_cached_tokens: prompt tokens whose KV came from the prefix cache.
        num_preemptions: how often the request gave its blocks up and was run again.
        error: why it ended where finish_reason is "error"; `token_ids` are those before it, which stand.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    timing: Timing
    spec_decode: SpecDecodeStats
    logprobs: tuple[TokenLogprobs, ...] = ()
    stop_reason: int | str | None = None
    num_cached_tokens: int = 0
    num_preemptions: int = 0
    error: RequestError | None = field(default=None, compare=False)
