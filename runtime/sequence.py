"""A request on its way through the engine: tokens, blocks, drafts, and how far it may go."""

from __future__ import annotations

from dataclasses import dataclass, field

from runtime.request import FinishReason, Request, SpecDecodeStats, Timing


@dataclass
class Sequence:
    """State of one request.

    Invariant after every step: the target's KV holds positions 0..len(token_ids)-2, the draft's holds the same
    positions (row i from feature i and token i+1) while the request may still draft; the last token is in neither.

    Attributes:
        token_ids: prompt and generated tokens.
        length_limit: no token is generated past this many, prompt included: min(prompt + max_tokens, max_model_len).
        block_ids: blocks in order of position, enough for length_limit tokens.
        drafts: what the next verify pass will check, 0..K tokens.
    """

    request: Request
    length_limit: int
    token_ids: list[int]
    block_ids: list[int] = field(default_factory=list)
    drafts: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    timing: Timing = field(default_factory=Timing)
    spec_decode: SpecDecodeStats = field(default_factory=SpecDecodeStats)

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.request.prompt_token_ids)

    @property
    def output_token_ids(self) -> list[int]:
        return self.token_ids[self.num_prompt_tokens :]

    def draft_room(self, num_speculative_tokens: int, pending: int = 0) -> int:
        """How many drafts the next verify pass may hold: the position cutoff, once `pending` tokens more are there.

        With k drafts a pass commits up to k+1 tokens and writes positions up to len-1+k, so k is at most
        length_limit - len - 1. It never grows again: once 0, the request takes single-token steps to its end.
        """
        return max(0, min(num_speculative_tokens, self.length_limit - len(self.token_ids) - pending - 1))

    def commit(self, tokens: list[int], eos_token_ids: tuple[int, ...]) -> list[int]:
        """Append tokens one at a time until one ends the request; returns those that were appended.

        Stop comes before length: a token that is both the last allowed one and an end-of-sequence id is a stop.
        """
        for count, token in enumerate(tokens, start=1):
            self.token_ids.append(token)
            if token in eos_token_ids and not self.request.ignore_eos:
                self.finish_reason = "stop"
            elif len(self.token_ids) >= self.length_limit:
                self.finish_reason = "length"
            if self.finish_reason is not None:
                return tokens[:count]
        return list(tokens)
