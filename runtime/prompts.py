"""What a user asks for, and the request that the engine gets for it.

A prompt is one of three things: a text, which the chat template wraps unless `--raw` is given; a list of
messages, for the template; or token ids as they are, the only form for a bundle without a tokenizer. A file
of prompts has one JSON object a line:

    {"prompt": "Why is the sky blue?"}
    {"id": "q7", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 32}
    {"prompt_token_ids": [1, 4093, 253]}

A line may name its `kind` ("math", "coding"), by which a measurement groups prompts; no answer depends on it. It may
also have max_tokens, ignore_eos and the sampling parameters of `runtime.sampling.parse` over the command line's:

    {"prompt": "Name a colour.", "temperature": 0.8, "seed": 7, "stop": ["\\n"]}
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from runtime.bundle.errors import Eagle3Error, ErrorGroup, UsageError
from runtime.request import Request
from runtime.sampling.params import GREEDY, SamplingParams
from runtime.sampling.parse import READERS, UNSUPPORTED, brief, parameters, sampling_params
from runtime.text import Message, Tokenizer

FORMS = ("prompt", "messages", "prompt_token_ids")
KEYS = ("id", "kind", *FORMS, "max_tokens", "ignore_eos", *READERS)


@dataclass(frozen=True)
class Prompt:
    """One prompt as the user gave it.

    Attributes:
        where: how a message names it: "--prompt 2", "prompts.jsonl line 7".
        content: a text, messages, or token ids.
        id: the user's own name for it, given back with the answer.
        max_tokens: its own limit, or None for the command line's.
        kind: the kind of task that it is, to group measurements by.
        ignore_eos: go on past the model's end of sequence, or None for the command line's.
        sampling: its own sampling parameters by their JSON keys, over the command line's.
    """

    where: str
    content: str | tuple[Message, ...] | tuple[int, ...]
    id: str | int | None = None
    max_tokens: int | None = None
    kind: str | None = None
    ignore_eos: bool | None = None
    sampling: Mapping[str, object] = field(default_factory=dict, hash=False)

    def title(self, width: int = 60) -> str:
        """The prompt in one line of at most `width` characters."""
        if isinstance(self.content, str):
            text = self.content
        else:
            last = self.content[-1]
            text = str(self.content) if isinstance(last, int) else str(last["content"])
        text = " ".join(text.split())
        return text if len(text) <= width else text[: width - 1] + "…"


def read_prompts(file: Path) -> list[Prompt]:
    """The prompts of a JSON-lines file; empty lines are passed over.

    Raises:
        UsageError: the file cannot be read, holds no prompt, or has a bad line, which the message names.
        ErrorGroup: it has several bad lines.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "other bytes"
        raise UsageError(
            f"--prompts {file} cannot be read",
            expected="a UTF-8 text file with one JSON object a line",
            found=str(reason),
            repair="give the path of such a file",
        ) from None
    prompts: list[Prompt] = []
    problems: list[Eagle3Error] = []
    # Not splitlines(): a JSON string may hold U+2028 and the like, which end no line here.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                prompts.append(parse_line(line, f"{file.name} line {number}"))
            except UsageError as error:
                problems.append(error)
    raise_together(f"{file.name} has {len(problems)} bad lines", problems)
    if not prompts:
        raise UsageError(f"{file.name} holds no prompt", repair='add a line like {"prompt": "Hello"}')
    return prompts


def parse_line(line: str, where: str) -> Prompt:
    """One line of a prompts file; `where` is its name in messages.

    Raises:
        UsageError: the line is not a JSON object of the form that the module's docstring shows.
    """
    what = f"{where} is not a prompt"

    def bad(expected: str, found: str) -> UsageError:
        return UsageError(what, expected=expected, found=found, repair="see --help for the lines")

    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise bad("a JSON object", str(error) or "text that is no JSON") from None
    if not isinstance(data, dict):
        raise bad("a JSON object", f"a {type(data).__name__}")
    if unknown := [key for key in data if key not in KEYS and key not in UNSUPPORTED]:
        raise bad(f"the keys {', '.join(KEYS)}", f"the key {unknown[0]!r}")
    given = [key for key in FORMS if key in data]
    if len(given) != 1:
        raise bad(f"one of {', '.join(FORMS)}", " and ".join(given) or "none of them")
    name, kind, max_tokens = data.get("id"), data.get("kind"), data.get("max_tokens")
    if not (name is None or isinstance(name, str) or type(name) is int):
        raise bad("id to be text or a whole number", repr(name))
    if not (kind is None or isinstance(kind, str)):
        raise bad("kind to be text", brief(kind))
    if max_tokens is not None and (type(max_tokens) is not int or max_tokens < 1):
        raise bad("max_tokens to be a whole number of at least 1", repr(max_tokens))
    value = data[given[0]]
    match given[0]:
        case "prompt" if not isinstance(value, str):
            raise bad("prompt to be text", f"a {type(value).__name__}")
        case "messages" if not (isinstance(value, list) and value and all(map(_is_message, value))):
            raise bad('messages to be a list like [{"role": "user", "content": "Hello"}]', brief(value))
        case "prompt_token_ids" if not (
            isinstance(value, list) and value and all(type(token) is int for token in value)
        ):
            raise bad("prompt_token_ids to be a list of at least one id", brief(value))
    ignore_eos = data.get("ignore_eos")
    if not isinstance(ignore_eos, bool | None):
        raise bad("ignore_eos to be true or false", brief(ignore_eos))
    parameters(data, what)  # types only: bad words wait for the bundle's tokenizer
    sampling = {key: data[key] for key in READERS if data.get(key) is not None}
    content = tuple(value) if isinstance(value, list) else value
    return Prompt(where, content, name, max_tokens, kind, ignore_eos, sampling)


def token_ids(prompt: Prompt, tokenizer: Tokenizer | None, *, raw: bool, vocab_size: int) -> tuple[int, ...]:
    """The ids that the engine gets for `prompt`, each in [0, vocab_size), at least one.

    Raises:
        UsageError: the bundle has no tokenizer for a text, `raw` is asked of messages, an id is outside the
            vocabulary, or there is nothing to run. Errors of the chat template pass through.
    """
    content = prompt.content
    if not isinstance(content, str) and isinstance(content[0], int):
        ids = [token for token in content if isinstance(token, int)]
    elif tokenizer is None:
        raise UsageError(
            f"{prompt.where} cannot be used with this bundle, which has no tokenizer",
            expected="token ids",
            found="text" if isinstance(content, str) else "messages",
            repair='give ids with --prompts FILE.jsonl, in lines like {"prompt_token_ids": [1, 2, 3]}',
        )
    elif isinstance(content, str) and raw:
        ids = tokenizer.encode(content)
    elif raw:
        raise UsageError(
            f"{prompt.where} has messages, which --raw does not take",
            repair='leave --raw out, or give {"prompt": TEXT}',
        )
    else:
        given = (content,) if isinstance(content, str) else content
        messages = [{"role": "user", "content": item} if isinstance(item, str) else item for item in given]
        text = tokenizer.apply_chat_template([item for item in messages if not isinstance(item, int)])
        ids = tokenizer.encode(text, add_special_tokens=False)
    if not ids:
        raise UsageError(f"{prompt.where} is empty", repair="give at least one token to go on from")
    if outside := [token for token in ids if not 0 <= token < vocab_size]:
        raise UsageError(
            f"{prompt.where} has an id outside the vocabulary",
            expected=f"ids from 0 to {vocab_size - 1}",
            found=str(outside[0]),
            repair="use ids of this bundle's target model",
        )
    return tuple(ids)


def to_requests(
    prompts: Sequence[Prompt],
    tokenizer: Tokenizer | None,
    *,
    raw: bool,
    vocab_size: int,
    max_tokens: int,
    ignore_eos: bool,
    sampling: SamplingParams = GREEDY,
) -> list[Request]:
    """A request for each prompt, with its index as id; all problems are raised together.

    Args:
        max_tokens, ignore_eos, sampling: where a prompt has none of its own.
    """
    requests: list[Request] = []
    problems: list[Eagle3Error] = []
    for index, prompt in enumerate(prompts):
        try:
            ids = token_ids(prompt, tokenizer, raw=raw, vocab_size=vocab_size)
            what = f"{prompt.where} cannot run"
            params = sampling_params(prompt.sampling, tokenizer, default=sampling, where=what)
            params.check(what, vocab_size)
        except UsageError as error:
            problems.append(error)
            continue
        goes_on = ignore_eos if prompt.ignore_eos is None else prompt.ignore_eos
        requests.append(Request(str(index), ids, prompt.max_tokens or max_tokens, goes_on, params))
    raise_together(f"{len(problems)} of {len(prompts)} prompts cannot be run", problems)
    return requests


def raise_together(what: str, problems: list[Eagle3Error]) -> None:
    """Raise nothing, the one problem, or all of them as one ErrorGroup."""
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise ErrorGroup(what, problems)


def _is_message(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("role"), str) and isinstance(value.get("content"), str)
