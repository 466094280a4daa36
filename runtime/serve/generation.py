"""A request as the server runs it, whichever endpoint it came to: what both endpoints make and all answers need."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from runtime.answer import AnswerText
from runtime.request import FinishReason, Request, RequestOutput
from runtime.sampling.params import SamplingParams, TokenLogprobs
from runtime.serve.logprobs import TokenNames
from runtime.text import Tokenizer
from runtime.text.pieces import Pieces


@dataclass(frozen=True)
class Served:
    """What is served: the same for every request.

    Attributes:
        names: of the model; answers carry the first.
        fingerprint: of the bundle, as OpenAI's system_fingerprint.
        default: sampling where a request names none.
    """

    names: tuple[str, ...]
    fingerprint: str
    tokenizer: Tokenizer
    pieces: Pieces
    max_model_len: int
    vocab_size: int
    default: SamplingParams
    created: int = field(default_factory=lambda: int(time.time()))


@dataclass(frozen=True)
class Part:
    """What one or more steps brought for one choice, or the whole of it.

    `finish` and `stop_reason` are set on the last part.
    """

    text: str
    token_ids: Sequence[int]
    logprobs: Sequence[TokenLogprobs]
    finish: FinishReason | None
    stop_reason: int | str | None


class Style(Protocol):
    """How one endpoint writes an answer."""

    prefix: str  # of the answer's id

    def opening(self, answer: Answer, index: int) -> dict[str, object] | None:
        """The first chunk of a choice in a stream, before there is text; None where there is none."""

    def chunk(self, answer: Answer, index: int, part: Part) -> dict[str, object]:
        """A chunk of a stream."""

    def empty(self, answer: Answer) -> dict[str, object]:
        """A chunk without choices, for the usage at the end of a stream."""

    def whole(self, answer: Answer, parts: Sequence[Part]) -> dict[str, object]:
        """The answer as one object, without its usage."""


@dataclass(frozen=True)
class Generation:
    """A checked request.

    Attributes:
        prompts: ids of each; every prompt gets a choice of its own.
        max_tokens: None for the rest of the context.
        return_token_ids: put the ids into the answer, as vLLM does.
        return_tokens_as_token_ids: name tokens of log probabilities by their ids, as vLLM does.
    """

    prompts: tuple[tuple[int, ...], ...]
    max_tokens: int | None
    ignore_eos: bool
    sampling: SamplingParams
    stream: bool
    include_usage: bool
    return_token_ids: bool
    return_tokens_as_token_ids: bool


class Answer:
    """One answer under way: its id, what was asked, and how it is written."""

    def __init__(self, generation: Generation, served: Served, style: Style) -> None:
        self.id = f"{style.prefix}-{uuid.uuid4().hex}"
        self.created = int(time.time())
        self.generation, self.served, self.style = generation, served, style

    def requests(self) -> list[Request]:
        """For the engine, one for each choice."""
        generation = self.generation
        return [
            Request(
                f"{self.id}-{index}",
                prompt,
                generation.max_tokens or self.served.max_model_len,
                generation.ignore_eos,
                generation.sampling,
            )
            for index, prompt in enumerate(generation.prompts)
        ]

    def head(self, kind: str) -> dict[str, object]:
        """The keys that every object of this answer begins with."""
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.served.names[0],
            "system_fingerprint": self.served.fingerprint,
        }

    def text(self) -> AnswerText:
        """For the text of one choice as it grows."""
        return AnswerText(self.served.tokenizer, self.generation.sampling)

    def names(self) -> TokenNames:
        """For log probabilities."""
        generation = self.generation
        skip = generation.sampling.skip_special_tokens
        return TokenNames(self.served.pieces, generation.return_tokens_as_token_ids, skip)

    def part(self, output: RequestOutput) -> Part:
        """A finished choice as one part."""
        text = self.text()
        whole = text.push(output) + text.flush()
        return Part(whole, output.token_ids, output.logprobs, output.finish_reason, output.stop_reason)


def usage(outputs: Sequence[RequestOutput]) -> dict[str, object]:
    """The counts of tokens; completion_tokens counts every id that was generated, the one that ended it included."""
    prompt = sum(len(output.prompt_token_ids) for output in outputs)
    completion = sum(len(output.token_ids) for output in outputs)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(output.num_cached_tokens for output in outputs)},
    }
