"""Chat templates: Jinja programs that came with a model, run as untrusted code.

A template turns messages into the one text that the model was trained on. It is written by whoever published
the model, so it runs in Jinja's immutable sandbox: it reads no attribute that leads out of it, and changes
nothing that it is given. What it may use beside plain Jinja is what Hugging Face's renderer gives it, so that
published templates give the text here that they give there (transformers, utils/chat_template_utils.py):
block trimming, `break` and `continue`, `{% generation %}`, `tojson` without HTML escapes, `raise_exception`
and `strftime_now`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from runtime.bundle.errors import IntegrityError, UsageError

# {"role": "system" | "user" | "assistant" | ..., "content": text}, JSON values only.
Message = Mapping[str, object]


class TemplateRefusal(jinja2.TemplateError):
    """The template itself refused the messages, by `raise_exception`."""


class ChatTemplate:
    """A compiled chat template.

    Args:
        source: the template's text.
        special_tokens: the variables that name special tokens, {"bos_token": "<s>", ...}; tokens that the
            model lacks are left out, because templates test `bos_token is defined`.

    Raises:
        IntegrityError: the text is not a Jinja template.
    """

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        self._special_tokens = dict(special_tokens)
        try:
            self._template = _sandbox().from_string(source)
        except Exception as error:  # of its syntax, or of what Jinja makes of it: Python that nests too deeply
            raise IntegrityError(
                "The chat template does not parse",
                expected="a Jinja template",
                found=_one_line(error),
                repair="mend the model's chat template, or take it away, and rebuild the bundle with eagle3-build",
            ) from None

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = True) -> str:
        """The prompt text for `messages`, up to where the assistant's next answer begins.

        Raises:
            UsageError: the template refuses these messages, or fails on them.
            IntegrityError: the template tried something that the sandbox forbids.
        """
        # The template sees plain copies: even a hole in the sandbox could not change the caller's messages.
        copies = json.loads(json.dumps(list(messages)))
        try:
            return self._template.render(
                messages=copies,
                tools=None,
                documents=None,
                add_generation_prompt=add_generation_prompt,
                **self._special_tokens,
            )
        except SecurityError as error:
            raise IntegrityError(
                "The chat template does what a template may not",
                expected="text made from the messages",
                found=_one_line(error),
                repair="do not trust this model's files; pass --raw to prompt without the template",
            ) from None
        except TemplateRefusal as error:
            raise UsageError(
                "The chat template refuses these messages",
                found=_one_line(error),
                repair="give messages in the order and with the roles that the model was trained on",
            ) from None
        except Exception as error:  # a foreign program: whatever it raises is its own failure and not ours
            raise UsageError(
                "The chat template fails on these messages",
                found=f"{type(error).__name__}, {_one_line(error)}",
                repair="change the messages, or pass --raw to prompt without the template",
            ) from None


class _GenerationBlock(jinja2.ext.Extension):
    """`{% generation %} ... {% endgeneration %}` marks an answer for training; here, its content."""

    tags = {"generation"}  # noqa: RUF012 - Jinja declares it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _sandbox() -> ImmutableSandboxedEnvironment:
    """The environment that every template runs in."""
    sandbox = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, "jinja2.ext.loopcontrols"]
    )
    sandbox.filters["tojson"] = _to_json
    sandbox.globals["raise_exception"] = _refuse
    sandbox.globals["strftime_now"] = _strftime_now
    # The type itself would hand out unbound methods: `dict.update(message, ...)` passes the sandbox's check,
    # which looks at the object before the dot.
    sandbox.globals["dict"] = _make_dict
    return sandbox


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _refuse(message: str) -> NoReturn:
    raise TemplateRefusal(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _make_dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    return dict(*args, **kwargs)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__
