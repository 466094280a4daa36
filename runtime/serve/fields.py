"""What the two kinds of request have in common: JSON in, checked fields and sampling parameters out.

A key that changes the answer and cannot be served is refused by name. A key that nobody here knows is ignored, as vLLM
does, since clients send many; the log names it once.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import replace

from runtime.bundle.errors import UsageError
from runtime.sampling.params import MOST_BAD_WORDS, MOST_STOPS, SamplingParams
from runtime.sampling.parse import READERS, UNSUPPORTED, ParameterError, brief, sampling_params
from runtime.serve.errors import ApiError, invalid, refused
from runtime.text import Tokenizer

logger = logging.getLogger("eagle3.serve")

SAMPLING = tuple(name for name in READERS if name != "logprobs")
COMMON = (
    "model",
    "max_tokens",
    "ignore_eos",
    "stream",
    "stream_options",
    "return_token_ids",
    "return_tokens_as_token_ids",
    *SAMPLING,
    *UNSUPPORTED,
)
# For the sender's own books, or about what no answer here has. They change nothing; docs/serving.md lists them
WITHOUT_EFFECT = (
    "user",
    "store",
    "metadata",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "request_id",
    "spaces_between_special_tokens",
    "include_reasoning",
    "length_penalty",
    "parallel_tool_calls",
)
# Refused by name, unless the value is one of these, which asks for nothing. `runtime.sampling.parse` refuses more.
REFUSED: Mapping[str, tuple[object, ...]] = {
    "prompt_embeds": (),
    "logits_processors": ([],),
    "truncate_prompt_tokens": (),
    "kv_transfer_params": (),
    "priority": (0,),
    "cache_salt": (),
    "guided_whitespace_pattern": (),
    "vllm_xargs": ({},),
}
_REPORTED: set[str] = set()
_MOST_REPORTED = 100


def parse_body(body: bytes) -> dict[str, object]:
    """The JSON object of a request's body; raises ApiError 400 for anything else."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise invalid(f"The body is not JSON: {reason}.") from None
    if not isinstance(data, dict):
        raise invalid(f"The body is not a JSON object: found {kind_of(data)}.")
    # null means "not given" everywhere in this interface
    return {name: value for name, value in data.items() if value is not None}


def refuse_unsupported(data: Mapping[str, object], refused_names: Mapping[str, tuple[object, ...]]) -> None:
    """Raise ApiError 400 for the first key that asks for something that this server does not do."""
    for name, harmless in refused_names.items():
        if name in data and data[name] not in harmless:
            allowed = f" but as {json.dumps(harmless[0])}" if harmless else ""
            raise invalid(f"{name} is not supported by this server{allowed}; leave it out.", name, "unsupported")


def report_unknown(data: Mapping[str, object], known: frozenset[str]) -> None:
    """Log each key that has no effect, the first time that it comes."""
    for name in data.keys() - known:
        if name not in _REPORTED and len(_REPORTED) < _MOST_REPORTED:
            _REPORTED.add(name)
            logger.warning("Requests come with %.64r, which this server does not know and ignores.", name)


def flag(data: Mapping[str, object], name: str, *, default: bool = False) -> bool:
    """The value of a key that is true or false; `default` where it is missing."""
    value = data.get(name, default)
    if not isinstance(value, bool):
        raise wrong(name, "true or false", value)
    return value


def whole(data: Mapping[str, object], name: str, least: int) -> int | None:
    """The value of a key that is a whole number of at least `least`; None where it is missing."""
    value = data.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise wrong(name, f"a whole number of at least {least}", value)
    return value


def include_usage(data: Mapping[str, object], stream: bool) -> bool:
    """Whether a stream ends with the counts of tokens: stream_options.include_usage."""
    options = data.get("stream_options")
    if options is None:
        return False
    if not isinstance(options, dict):
        raise wrong("stream_options", "an object", options)
    if not stream:
        raise invalid("stream_options is for streams: set stream to true or leave it out.", "stream_options")
    given = {name: value for name, value in options.items() if value is not None}
    if flag(given, "continuous_usage_stats"):
        message = "stream_options.continuous_usage_stats is not supported by this server; leave it out."
        raise invalid(message, "stream_options", "unsupported")
    return flag(given, "include_usage")


def sampling_of(
    data: Mapping[str, object],
    tokenizer: Tokenizer,
    *,
    default: SamplingParams,
    vocab_size: int,
    logprobs: int | None,
) -> SamplingParams:
    """The sampling parameters of a request, in range and of the right types.

    Args:
        default: for what the request does not name.
        logprobs: how many likeliest tokens to report, None for no log probabilities.

    Raises:
        ApiError: 400, naming the parameter.
    """
    _check_lists(data)
    # Here a number, there true or false
    given = {name: value for name, value in data.items() if name != "logprobs"}
    try:
        params = sampling_params(given, tokenizer, default=default, where="The request cannot run")
        params = replace(params, logprobs=logprobs)
        params.check("The request cannot run", vocab_size)
    except UsageError as error:
        raise refused(error, _param(error)) from None
    return params


def _check_lists(data: Mapping[str, object]) -> None:
    """Raise ApiError 400 for more texts than any request may have, before they are encoded."""
    for name, most in (("stop", MOST_STOPS), ("bad_words", MOST_BAD_WORDS)):
        texts = data.get(name)
        if isinstance(texts, list) and len(texts) > most:
            raise wrong(name, f"at most {most} texts", texts)


def refused_by_engine(error: UsageError) -> ApiError:
    """400 for what the engine does not take; it knows the request by a name that the client never chose."""
    words = error.what.split()
    what = error.what.replace(words[1], "", 1).replace("Request  ", "The request ") if words[:1] == ["Request"] else ""
    named = UsageError(what or error.what, expected=error.expected, found=error.found, repair=error.repair)
    return refused(named, _param(error))


def _param(error: UsageError) -> str | None:
    """The parameter that an error is about: the first that its sentence names."""
    if isinstance(error, ParameterError):
        return error.parameter
    words = f"{error.expected} {error.what} {error.found}".replace("bad_words_token_ids", "bad_words").split()
    return next((word for word in words if word in (*SAMPLING, "logprobs", "top_logprobs")), None)


def wrong(name: str, expected: str, found: object) -> ApiError:
    """400 for a value of the wrong type or out of range."""
    return invalid(f"{name} is wrong: expected {expected}, found {brief(found)}.", name)


def kind_of(value: object) -> str:
    """A value's type in JSON's words."""
    names: dict[type, str] = {dict: "an object", list: "a list", str: "a string", bool: "true or false"}
    return "null" if value is None else names.get(type(value), "a number")
