"""`--check`: is speculation exactly plain decoding, on this machine, for this bundle?

The builder proved it where it built. This repeats the proof where the bundle runs: the same prompts through
plain decoding and through speculation, each alone and all as one batch. Plain decoding of each prompt alone
is the reference; a token of any other run that differs from it is a failure, and so is a log probability where
they were asked for. Random requests are compared too: with a seed and the coupled rejection their text is fixed.

Texts alone would pass where no draft is ever accepted, so each pass is judged as well (`runtime.acceptance`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any, Protocol

from runtime.bundle.errors import RequestError
from runtime.generate import TokenEngine, generate
from runtime.prompts import Prompt
from runtime.request import Request, RequestOutput, SpecDecodeStats

# Unlike each other on purpose: languages, code, lists and repetition lead to different acceptance patterns.
BUILTIN_PROMPTS = (
    "Why is the sky blue?",
    "Count from one to twenty in words.",
    "Write a Python function that returns the n-th Fibonacci number.",
    "Wie heißt die Hauptstadt von Österreich?",
    "Repeat the word echo ten times.",
    "List three fruits as a JSON array.",
    "Tell a story about a lighthouse keeper in three sentences.",
    "What is 17 + 25? Answer with the number only.",
)
DEFAULT_MAX_TOKENS = 64
_LENGTHS = (1, 2, 3, 5, 8, 13, 21, 34)

RUNS = ("speculation alone", "plain in a batch", "speculation in a batch")


@dataclass
class Comparison:
    """One prompt's result.

    Attributes:
        prompt: the prompt.
        length: tokens of its reference answer.
        differences: run (one of RUNS) -> index of the first generated token at which it leaves the reference.
        logprobs: the same for log probabilities, of runs whose tokens are the same; None where none were asked for.
        misses: by run, the first pass that accepted other drafts than it should have or left other KV; None where
            nobody looked.
        error: why the reference answer is not whole; the runs may agree on that, but nothing is proved.
    """

    prompt: Prompt
    length: int
    differences: dict[str, int] = field(default_factory=dict)
    logprobs: dict[str, int] | None = None
    misses: dict[str, str] | None = None
    error: RequestError | None = None

    @property
    def changed(self) -> bool:
        return bool(self.differences or self.logprobs)

    @property
    def same(self) -> bool:
        return not (self.changed or self.misses) and self.error is None

    def sentence(self) -> str:
        """ "same, 64 tokens", or why the answer is not whole, and where each run differs first."""
        if self.same:
            return f"same, {self.length} tokens"
        parts = [] if self.error is None else [self.error.sentence().removesuffix(".")]
        parts += [f"{run}: first difference at token {at}" for run, at in self.differences.items()]
        parts += [f"{run}: log probabilities differ at token {at}" for run, at in (self.logprobs or {}).items()]
        parts += [f"{run}: {miss}" for run, miss in (self.misses or {}).items()]
        return "; ".join(parts)

    def to_json(self) -> dict[str, object]:
        head: dict[str, object] = {} if self.prompt.id is None else {"id": self.prompt.id}
        error = {} if self.error is None else {"error": self.error.to_json()}
        logprobs = {} if self.logprobs is None else {"first_logprobs_difference": dict(self.logprobs)}
        return head | {
            "prompt": self.prompt.title(),
            "same": self.same,
            "tokens": self.length,
            "first_difference": dict(self.differences),
            **logprobs,
            **({} if self.misses is None else {"misses": dict(self.misses)}),
            **error,
        }


def builtin_prompts(has_tokenizer: bool, vocab_size: int, max_model_len: int) -> tuple[Prompt, ...]:
    """The prompts of `--check`: texts, or for a bundle without a tokenizer id lists of several lengths."""
    if has_tokenizer:
        return tuple(Prompt(f"check prompt {n}", text) for n, text in enumerate(BUILTIN_PROMPTS, start=1))
    longest = max(1, max_model_len // 2)
    return tuple(
        Prompt(
            f"check prompt {n}",
            tuple((7 * i * i + 13 * i + 29 * n) % vocab_size for i in range(min(length, longest))),
        )
        for n, length in enumerate(_LENGTHS, start=1)
    )


def first_difference(reference: RequestOutput, other: RequestOutput) -> int | None:
    """Index of the first generated token at which `other` leaves `reference`; None where they are the same.

    Answers of which one goes on where the other ended, or that ended for different reasons, differ at that
    end.
    """
    for index, (left, right) in enumerate(zip(reference.token_ids, other.token_ids, strict=False)):
        if left != right:
            return index
    ends = [(len(each.token_ids), each.finish_reason, each.stop_reason) for each in (reference, other)]
    return None if ends[0] == ends[1] else min(len(reference.token_ids), len(other.token_ids))


def first_logprobs_difference(reference: RequestOutput, other: RequestOutput) -> int | None:
    """Index of the first token whose log probabilities differ by a bit, or are missing from one; None without any."""
    pairs = zip_longest(reference.logprobs, other.logprobs)
    return next((index for index, (left, right) in enumerate(pairs) if left != right), None)


class Judges(Protocol):
    """What `runtime.acceptance.Acceptance` is here; each is told when its turn has come."""

    def plain(self, engine: Any) -> None: ...

    def known(self, reference: Sequence[RequestOutput]) -> None: ...

    def script(self, engine: Any) -> None: ...

    def speculation(self, engine: Any) -> None: ...

    def misses(self, name: str) -> dict[str, str]: ...


def compare(
    load_engine: Callable[[bool], TokenEngine],
    prompts: Sequence[Prompt],
    requests: Sequence[Request],
    judges: Judges | None = None,
) -> tuple[list[Comparison], SpecDecodeStats]:
    """Run `requests` in all four ways; returns the results in order, and what speculation did in both its
    runs.

    Args:
        load_engine: makes an engine, speculating or not. One is held at a time, so that memory is that of
        one.
        prompts: what each request was made from.
        judges: look at each pass too, and run scripted drafts; without them texts alone are compared.
    """
    names = [prompt.where for prompt in prompts]
    plain = load_engine(False)
    if judges:
        judges.plain(plain)
    reference, plain_batch = _alone(plain, requests, names), _batch(plain, requests)
    if judges:
        judges.known(reference)
        judges.script(plain)
    del plain
    speculating = load_engine(True)
    if judges:
        judges.speculation(speculating)
    alone, batch = _alone(speculating, requests, names), _batch(speculating, requests)
    results = []
    stats = SpecDecodeStats()
    for prompt, request, right, *others in zip(prompts, requests, reference, alone, plain_batch, batch, strict=True):
        logprobs: dict[str, int] | None = None if request.sampling.logprobs is None else {}
        result = Comparison(prompt, len(right.token_ids), logprobs=logprobs, error=right.error)
        for run, other in zip(RUNS, others, strict=True):
            if (at := first_difference(right, other)) is not None:
                result.differences[run] = at
            elif result.logprobs is not None and (at := first_logprobs_difference(right, other)) is not None:
                result.logprobs[run] = at
        if judges:
            result.misses = judges.misses(request.request_id)
        results.append(result)
    for output in [*alone, *batch]:
        stats.merge(output.spec_decode)
    return results, stats


def _alone(engine: TokenEngine, requests: Sequence[Request], names: Sequence[str]) -> list[RequestOutput]:
    return [
        output
        for request, name in zip(requests, names, strict=True)
        for output in generate(engine, [request], names=[name])
    ]


def _batch(engine: TokenEngine, requests: Sequence[Request]) -> list[RequestOutput]:
    renamed = [replace(request, request_id=batched(request.request_id)) for request in requests]
    outputs = {output.request_id: output for output in generate(engine, renamed)}
    return [outputs[request.request_id] for request in renamed]


def batched(name: str) -> str:
    """The id of a request in the runs of a batch: an engine may refuse an id that it has seen."""
    return f"batch-{name}"
