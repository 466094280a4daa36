"""From the JSON keys of a request to its SamplingParams: vLLM's and OpenAI's names, each value's type checked.

Prompts files and the server read the same keys. Ranges are `SamplingParams.check`'s, which knows the vocabulary.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from runtime.bundle.errors import UsageError
from runtime.sampling.params import MOST_BAD_WORD_IDS, SamplingParams

if TYPE_CHECKING:
    from runtime.text import Tokenizer

STRUCTURED, LORA, TOOLS = "structured output", "LoRA", "tool calling"
SEVERAL, BEAMS, PROMPT_LOGPROBS = "more than one answer to a prompt", "beam search", "log probabilities of the prompt"
# What is known and not offered, under each name that clients have for it
UNSUPPORTED = {
    "response_format": STRUCTURED,
    "structured_outputs": STRUCTURED,
    "guided_json": STRUCTURED,
    "guided_regex": STRUCTURED,
    "guided_choice": STRUCTURED,
    "guided_grammar": STRUCTURED,
    "guided_decoding": STRUCTURED,
    "grammar": STRUCTURED,
    "json_schema": STRUCTURED,
    "lora": LORA,
    "lora_name": LORA,
    "lora_path": LORA,
    "lora_request": LORA,
    "tools": TOOLS,
    "tool_choice": TOOLS,
    "functions": TOOLS,
    "function_call": TOOLS,
    "n": SEVERAL,
    "best_of": SEVERAL,
    "use_beam_search": BEAMS,
    "prompt_logprobs": PROMPT_LOGPROBS,
}
# Values of those keys that ask for nothing, beside null, false, "" and empty lists
NOTHING: dict[str, object] = {
    "response_format": {"type": "text"},
    "tool_choice": "none",
    "function_call": "none",
    "n": 1,
    "best_of": 1,
}


class ParameterError(UsageError):
    """A parameter of a request that cannot be used; `parameter` is its key."""

    def __init__(self, what: str, parameter: str, *, expected: str, found: str, repair: str) -> None:
        super().__init__(what, expected=expected, found=found, repair=repair)
        self.parameter = parameter

    def to_json(self) -> dict[str, object]:
        return {**super().to_json(), "error": UsageError.__name__}


def sampling_params(
    data: Mapping[str, object], tokenizer: Tokenizer | None, *, default: SamplingParams, where: str
) -> SamplingParams:
    """The parameters in `data` over those of `default`; null stands for the default, other keys are passed over.

    Args:
        data: a JSON object, as json.loads gives it.
        tokenizer: the bundle's, for stop strings and bad words; None where it has none.
        where: begins an error's sentence: "prompts.jsonl line 7 is not a prompt".

    Raises:
        ParameterError: a value has the wrong type, or a key asks for what is not supported.
    """
    values = parameters(data, where)
    if tokenizer is None and (name := next((name for name in ("stop", "bad_words") if values.get(name)), None)):
        raise ParameterError(
            where,
            name,
            expected=f"no {name}, for this bundle has no tokenizer",
            found=brief(data[name]),
            repair="use stop_token_ids" if name == "stop" else f"leave {name} out",
        )
    words = values.pop("bad_words", None)
    # Before they are encoded, which may take seconds; `SamplingParams.check` counts those that there are. As they are
    # encoded: without spaces before them, and each once
    spelt = {word.lstrip() for word in words or ()}
    if tokenizer and (least := sum(map(tokenizer.least_tokens, spelt))) > MOST_BAD_WORD_IDS:
        raise ParameterError(
            where,
            "bad_words",
            expected=f"bad_words of at most {MOST_BAD_WORD_IDS} tokens together",
            found=f"at least {least}",
            repair="give fewer or shorter words",
        )
    if words is not None:
        values["bad_words_token_ids"] = bad_words_token_ids(words, tokenizer) if tokenizer else ()
    return replace(default, **values)


def parameters(data: Mapping[str, object], where: str) -> dict[str, Any]:
    """The values of the keys in READERS that `data` gives, in SamplingParams' types; bad_words are still words.

    Raises:
        ParameterError: as `sampling_params`, tokenizer aside.
    """
    for key, thing in UNSUPPORTED.items():
        if data.get(key) and data[key] != NOTHING.get(key):
            raise ParameterError(
                where,
                key,
                expected=f"no {key}, for {thing} is not supported",
                found=brief(data[key]),
                repair=f"leave {key} out",
            )
    values: dict[str, Any] = {}
    for key, (wanted, read) in READERS.items():
        if (value := data.get(key)) is None:
            continue
        try:
            values[key] = read(value)
        except (TypeError, ValueError, OverflowError):
            raise ParameterError(
                where, key, expected=f"{key} to be {wanted}", found=brief(value), repair=f"correct {key}"
            ) from None
    return values


def bad_words_token_ids(words: tuple[str, ...], tokenizer: Tokenizer) -> tuple[tuple[int, ...], ...]:
    """The sequences of ids that spell `words`, at the beginning of a text and after a space."""
    spelt = (
        tuple(tokenizer.encode(text, add_special_tokens=False))
        for word in words
        for text in (word.lstrip(), " " + word.lstrip())
    )
    return tuple(dict.fromkeys(ids for ids in spelt if ids))


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError
    return float(value)


def _integer(value: object) -> int:
    if type(value) is not int:
        raise TypeError
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    value.encode()  # a lone surrogate is in no text, and cannot be encoded to ids
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError
    return tuple(map(_text, value))


def _stop(value: object) -> tuple[str, ...]:
    return (_text(value),) if isinstance(value, str) else _texts(value)


def _words(value: object) -> tuple[str, ...]:
    words = _texts(value)
    if not all(word.strip() for word in words):
        raise ValueError
    return words


def _ids(value: object) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise TypeError
    return tuple(map(_integer, value))


def _distinct(value: object) -> tuple[int, ...]:
    # Looked through at every step, so as many as a body can hold would hold everybody up
    return tuple(dict.fromkeys(_ids(value)))


def _biases(value: object) -> dict[int, float]:
    if not isinstance(value, Mapping):
        raise TypeError
    if not all(isinstance(key, str) and re.fullmatch(r"-?[0-9]{1,18}", key) for key in value):
        raise ValueError
    return {int(key): _number(bias) for key, bias in value.items()}


NUMBER, INTEGER, IDS = "a number", "a whole number", "a list of token ids"
READERS: dict[str, tuple[str, Callable[[object], Any]]] = {
    "temperature": (NUMBER, _number),
    "top_k": (INTEGER, _integer),
    "top_p": (NUMBER, _number),
    "min_p": (NUMBER, _number),
    "presence_penalty": (NUMBER, _number),
    "frequency_penalty": (NUMBER, _number),
    "repetition_penalty": (NUMBER, _number),
    "logit_bias": ('an object of token ids and numbers, like {"42": -1.5}', _biases),
    "allowed_token_ids": (IDS, _distinct),
    "bad_words": ("a list of words", _words),
    "min_tokens": (INTEGER, _integer),
    "stop": ("text or a list of texts", _stop),
    "stop_token_ids": (IDS, _ids),
    "include_stop_str_in_output": ("true or false", _flag),
    "skip_special_tokens": ("true or false", _flag),
    "seed": (INTEGER, _integer),
    "logprobs": (INTEGER, _integer),
}


def brief(value: object) -> str:
    """A value of a JSON request as an error shows it, in at most 80 characters."""
    try:
        text = json.dumps(value)
    except RecursionError:
        # Reading may go a level deeper than writing
        return "a value that is nested too deeply"
    return text if len(text) <= 80 else text[:79] + "…"
