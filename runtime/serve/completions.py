"""/v1/completions: a text, or ids, that the model goes on from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from runtime.bundle.errors import UsageError
from runtime.sampling.params import MOST_LOGPROBS
from runtime.serve.errors import invalid, refused
from runtime.serve.fields import (
    COMMON,
    REFUSED,
    WITHOUT_EFFECT,
    flag,
    include_usage,
    refuse_unsupported,
    report_unknown,
    sampling_of,
    whole,
    wrong,
)
from runtime.serve.generation import Answer, Generation, Part, Served
from runtime.serve.limits import check_length, check_text
from runtime.serve.logprobs import CompletionLogprobs

DEFAULT_MAX_TOKENS = 16  # OpenAI's
MOST_PROMPTS = 1024
REFUSED_HERE: Mapping[str, tuple[object, ...]] = {**REFUSED, "echo": (False,), "suffix": ("",)}
KNOWN = frozenset({*COMMON, *WITHOUT_EFFECT, *REFUSED_HERE, "prompt", "logprobs", "add_special_tokens"})


def read_completion(data: Mapping[str, object], served: Served) -> Generation:
    """Check the body of a request; raises ApiError 400."""
    refuse_unsupported(data, REFUSED_HERE)
    report_unknown(data, KNOWN)
    stream = flag(data, "stream")
    logprobs = whole(data, "logprobs", 0)
    if logprobs is not None and logprobs > MOST_LOGPROBS:
        raise wrong("logprobs", f"a whole number from 0 to {MOST_LOGPROBS}", logprobs)
    return Generation(
        prompts=tuple(_prompts(data, served)),
        max_tokens=whole(data, "max_tokens", 1) or DEFAULT_MAX_TOKENS,
        ignore_eos=flag(data, "ignore_eos"),
        sampling=sampling_of(
            data, served.tokenizer, default=served.default, vocab_size=served.vocab_size, logprobs=logprobs
        ),
        stream=stream,
        include_usage=include_usage(data, stream),
        return_token_ids=flag(data, "return_token_ids"),
        return_tokens_as_token_ids=flag(data, "return_tokens_as_token_ids"),
    )


def _prompts(data: Mapping[str, object], served: Served) -> list[tuple[int, ...]]:
    """The ids of every prompt; `prompt` is a string, a list of ids, or a list of either.

    Strings begin with BOS where the model's texts do, unless add_special_tokens is false.
    """
    given = data.get("prompt")
    expected = "a string, a list of token ids, or a list of either"
    if given is None:
        raise invalid(f"prompt is missing: expected {expected}.", "prompt")
    if isinstance(given, str) or (isinstance(given, list) and given and type(given[0]) is int):
        given = [given]
    if not isinstance(given, list) or not given:
        raise wrong("prompt", expected, given)
    if len(given) > MOST_PROMPTS:
        raise invalid(f"prompt is wrong: expected at most {MOST_PROMPTS} prompts, found {len(given)}.", "prompt")
    special, prompts = flag(data, "add_special_tokens", default=True), []
    for prompt in given:
        if isinstance(prompt, str):
            check_text(prompt, served, "prompt")
            try:
                ids = tuple(served.tokenizer.encode(prompt, add_special_tokens=special))
            except UsageError as error:
                raise refused(error, "prompt") from None
        elif isinstance(prompt, list) and all(type(token) is int for token in prompt):
            ids = tuple(prompt)
        else:
            raise wrong("prompt", expected, prompt)
        check_length(ids, served, "prompt")
        prompts.append(ids)
    return prompts


class CompletionStyle:
    """Objects "text_completion", whole and in chunks alike."""

    prefix = "cmpl"

    def __init__(self, served: Served) -> None:
        self._served = served
        self._logprobs: dict[int, CompletionLogprobs] = {}

    def opening(self, answer: Answer, index: int) -> dict[str, object] | None:
        return None

    def chunk(self, answer: Answer, index: int, part: Part) -> dict[str, object]:
        chunk = self.empty(answer)
        chunk["choices"] = [self._choice(answer, index, part)]
        return chunk

    def empty(self, answer: Answer) -> dict[str, object]:
        return {**answer.head("text_completion"), "choices": []}

    def whole(self, answer: Answer, parts: Sequence[Part]) -> dict[str, object]:
        whole = self.empty(answer)
        whole["choices"] = [self._choice(answer, index, part) for index, part in enumerate(parts)]
        return whole

    def _choice(self, answer: Answer, index: int, part: Part) -> dict[str, object]:
        logprobs = None
        if answer.generation.sampling.logprobs is not None:
            if index not in self._logprobs:
                self._logprobs[index] = CompletionLogprobs(answer.names())
            logprobs = self._logprobs[index].push(part.logprobs)
        choice: dict[str, object] = {
            "index": index,
            "text": part.text,
            "logprobs": logprobs,
            "finish_reason": part.finish,
            "stop_reason": part.stop_reason,
        }
        if answer.generation.return_token_ids:
            choice["token_ids"] = list(part.token_ids)
        return choice
