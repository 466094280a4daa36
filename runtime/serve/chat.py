"""/v1/chat/completions: messages, which the model's own chat template makes a prompt of."""

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
    kind_of,
    refuse_unsupported,
    report_unknown,
    sampling_of,
    whole,
    wrong,
)
from runtime.serve.generation import Answer, Generation, Part, Served
from runtime.serve.limits import check_length, check_text
from runtime.serve.logprobs import chat_logprobs
from runtime.text import Message

REFUSED_HERE: Mapping[str, tuple[object, ...]] = {
    **REFUSED,
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "web_search_options": (),
    "documents": (),
    "reasoning_effort": (),
    "verbosity": (),
    "media_io_kwargs": ({},),
    "mm_processor_kwargs": ({},),
    "chat_template": (),
    "chat_template_kwargs": ({},),
    "continue_final_message": (False,),
    "add_generation_prompt": (True,),
    "echo": (False,),
}
KNOWN = frozenset(
    {
        *COMMON,
        *WITHOUT_EFFECT,
        *REFUSED_HERE,
        "messages",
        "max_completion_tokens",
        "logprobs",
        "top_logprobs",
        "add_special_tokens",
    }
)


def read_chat(data: Mapping[str, object], served: Served) -> Generation:
    """Check the body of a request; raises ApiError 400."""
    refuse_unsupported(data, REFUSED_HERE)
    report_unknown(data, KNOWN)
    stream = flag(data, "stream")
    messages = _messages(data)
    return Generation(
        prompts=(_prompt(messages, served, special=flag(data, "add_special_tokens")),),
        max_tokens=whole(data, "max_completion_tokens", 1) or whole(data, "max_tokens", 1),
        ignore_eos=flag(data, "ignore_eos"),
        sampling=sampling_of(
            data, served.tokenizer, default=served.default, vocab_size=served.vocab_size, logprobs=_logprobs(data)
        ),
        stream=stream,
        include_usage=include_usage(data, stream),
        return_token_ids=flag(data, "return_token_ids"),
        return_tokens_as_token_ids=flag(data, "return_tokens_as_token_ids"),
    )


def _logprobs(data: Mapping[str, object]) -> int | None:
    wanted, top = flag(data, "logprobs"), whole(data, "top_logprobs", 0)
    if top is not None and top > MOST_LOGPROBS:
        raise wrong("top_logprobs", f"a whole number from 0 to {MOST_LOGPROBS}", top)
    if top and not wanted:
        raise invalid("top_logprobs goes with logprobs: set logprobs to true.", "top_logprobs")
    return (top or 0) if wanted else None


def _messages(data: Mapping[str, object]) -> list[Message]:
    given = data.get("messages")
    if given is None:
        raise invalid("messages is missing: expected a list of objects with role and content.", "messages")
    if not isinstance(given, list) or not given:
        raise wrong("messages", "a list of at least one message", given)
    return [_message(message, f"messages[{number}]") for number, message in enumerate(given)]


def _message(given: object, where: str) -> Message:
    if not isinstance(given, dict):
        raise invalid(f"{where} is wrong: expected an object, found {kind_of(given)}.", "messages")
    role = given.get("role")
    if not isinstance(role, str):
        raise invalid(f"{where}.role is wrong: expected a string, found {kind_of(role)}.", "messages")
    for name in ("tool_calls", "function_call", "audio"):
        if given.get(name):
            raise invalid(f"{where}.{name} is not supported by this server.", "messages", "unsupported")
    message: dict[str, object] = {"role": role, "content": _content(given.get("content"), where)}
    if isinstance(given.get("name"), str):
        message["name"] = given["name"]
    return message


def _content(given: object, where: str) -> str:
    """A message's text: a string, or text parts, of which each begins a line."""
    if isinstance(given, str):
        return given
    if not isinstance(given, list):
        expected = "a string or a list of text parts"
        raise invalid(f"{where}.content is wrong: expected {expected}, found {kind_of(given)}.", "messages")
    texts = []
    for number, part in enumerate(given):
        kind = part.get("type") if isinstance(part, dict) else None
        text = part.get("text") if isinstance(part, dict) else None
        if kind != "text" or not isinstance(text, str):
            found = f"the type {kind!r}" if isinstance(kind, str) and kind != "text" else kind_of(part)
            raise invalid(
                f'{where}.content[{number}] is wrong: expected {{"type": "text", "text": ...}}, found {found}; '
                "this server takes text alone.",
                "messages",
            )
        texts.append(text)
    return "\n".join(texts)


def _prompt(messages: Sequence[Message], served: Served, *, special: bool) -> tuple[int, ...]:
    """The ids of the chat template's text, which begins with BOS where the template writes it or, with `special`, where
    the model's texts do."""
    tokenizer = served.tokenizer
    if not tokenizer.has_chat_template:
        raise invalid("This model has no chat template: send a prompt to /v1/completions.", "messages")
    try:
        text = tokenizer.apply_chat_template(messages)
        check_text(text, served, "messages")
        ids = tuple(tokenizer.encode(text, add_special_tokens=special))
    except UsageError as error:
        # The repair speaks of the command line
        raise refused(UsageError(error.what, expected=error.expected, found=error.found), "messages") from None
    check_length(ids, served, "messages")
    return ids


class ChatStyle:
    """Objects "chat.completion" and "chat.completion.chunk"."""

    prefix = "chatcmpl"

    def __init__(self, served: Served) -> None:
        self._served = served

    def opening(self, answer: Answer, index: int) -> dict[str, object] | None:
        chunk = self.empty(answer)
        delta = {"role": "assistant", "content": ""}
        chunk["choices"] = [{"index": index, "delta": delta, "logprobs": None, "finish_reason": None}]
        return chunk

    def chunk(self, answer: Answer, index: int, part: Part) -> dict[str, object]:
        chunk = self.empty(answer)
        chunk["choices"] = [{"index": index, "delta": {"content": part.text}, **self._end(answer, part)}]
        return chunk

    def empty(self, answer: Answer) -> dict[str, object]:
        return {**answer.head("chat.completion.chunk"), "choices": []}

    def whole(self, answer: Answer, parts: Sequence[Part]) -> dict[str, object]:
        choices = [
            {
                "index": index,
                "message": {"role": "assistant", "content": part.text, "refusal": None},
                **self._end(answer, part),
            }
            for index, part in enumerate(parts)
        ]
        return {**answer.head("chat.completion"), "choices": choices}

    def _end(self, answer: Answer, part: Part) -> dict[str, object]:
        asked = answer.generation.sampling.logprobs is not None
        end: dict[str, object] = {
            "logprobs": chat_logprobs(part.logprobs, answer.names()) if asked else None,
            "finish_reason": part.finish,
            "stop_reason": part.stop_reason,
        }
        if answer.generation.return_token_ids:
            end["token_ids"] = list(part.token_ids)
        return end
