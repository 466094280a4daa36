"""The tokenizer of a bundle, over the tokenizers library; transformers is not needed to run one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ParamSpec, TypeVar

import tokenizers

from runtime.bundle.errors import IntegrityError, UsageError
from runtime.bundle.panics import LibraryError, asked
from runtime.text.bound import TokenBound
from runtime.text.template import ChatTemplate, Message

TOKENIZER, INFO, TEMPLATE = "tokenizer.json", "tokenizer_info.json", "chat_template.jinja"
# A text is encoded in the thread that asks for it. Else the library starts a thread for each core, beside the engine's
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
_REPAIR = "rebuild the bundle with eagle3-build"
_P = ParamSpec("_P")
_T = TypeVar("_T")


def has_tokenizer(folder: Path) -> bool:
    """Whether `folder` holds a tokenizer; a bundle of a toy model has none and takes token ids only."""
    return (folder / TOKENIZER).is_file()


@dataclass(frozen=True)
class TokenizerInfo:
    """tokenizer_info.json: what tokenizer.json does not say.

    Attributes:
        bos_token, eos_token, pad_token: the special tokens' texts, None where the model has none.
        add_bos: whether a text begins with the BOS token, be it by tokenizer.json's own rule or not.
        eos_token_ids: the ids that end an answer.
    """

    bos_token: str | None
    eos_token: str | None
    pad_token: str | None
    add_bos: bool
    eos_token_ids: tuple[int, ...]

    @staticmethod
    def load(file: Path) -> TokenizerInfo:
        """Read `file`; raises IntegrityError naming the field that does not fit."""
        return TokenizerInfo.of(_content(file))

    @staticmethod
    def of(content: bytes) -> TokenizerInfo:
        """What the file's content says; raises IntegrityError naming the field that does not fit."""
        file = INFO
        try:
            data = json.loads(content.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise _unreadable(file, "JSON text", error) from None
        if not isinstance(data, dict):
            raise _unreadable(file, "a JSON object", type(data).__name__)
        texts = {name: data.get(name) for name in ("bos_token", "eos_token", "pad_token")}
        for name, text in texts.items():
            if not isinstance(text, str | None):
                raise _unreadable(file, f"{name} to be text or null", repr(text))
        add_bos, ids = data.get("add_bos", False), data.get("eos_token_ids", [])
        if not isinstance(add_bos, bool):
            raise _unreadable(file, "add_bos to be true or false", repr(add_bos))
        if not isinstance(ids, list) or not all(type(token) is int for token in ids):
            raise _unreadable(file, "eos_token_ids to be a list of ids", repr(ids))
        return TokenizerInfo(**texts, add_bos=add_bos, eos_token_ids=tuple(ids))

    def special_tokens(self) -> dict[str, str]:
        """The special tokens that the model has, under the names that chat templates use."""
        named = {"bos_token": self.bos_token, "eos_token": self.eos_token, "pad_token": self.pad_token}
        return {name: text for name, text in named.items() if text is not None}


class Tokenizer:
    """Text to ids and back, and messages to text. Make one with `Tokenizer.load(folder)`."""

    def __init__(self, backend: tokenizers.Tokenizer, info: TokenizerInfo, template: str | None = None) -> None:
        # Some published tokenizer.json files cut or pad, for training batches; a prompt must arrive whole.
        backend.no_truncation()
        backend.no_padding()
        self._backend, self.info = backend, info
        # At once: a template that is none is told when the bundle is opened, and not by every chat request
        self._template = None if template is None else ChatTemplate(template, info.special_tokens())
        self._bos_id = None if info.bos_token is None else backend.token_to_id(info.bos_token)

    @staticmethod
    def load(folder: Path) -> Tokenizer:
        """Read tokenizer.json, tokenizer_info.json and, where there is one, chat_template.jinja from
        `folder`.

        Raises:
            IntegrityError: a file is missing or is not what it should be, or the chat template does not parse.
        """
        names = (INFO, TOKENIZER, *([TEMPLATE] if (folder / TEMPLATE).is_file() else []))
        return Tokenizer.of({name: _content(folder / name) for name in names})

    @staticmethod
    def of(files: Mapping[str, bytes]) -> Tokenizer:
        """The tokenizer whose files have these contents, by name: a bundle's, read as its manifest lists them.

        Raises:
            IntegrityError: a file is missing or is not what it should be.
        """
        for name in (INFO, TOKENIZER):
            if name not in files:
                raise _unreadable(name, "a file", "none")
        info = TokenizerInfo.of(files[INFO])
        try:
            backend = asked(tokenizers.Tokenizer.from_str, files[TOKENIZER].decode("utf-8"))
        except ValueError as error:
            raise _unreadable(TOKENIZER, "a tokenizer of the tokenizers library", error) from None
        try:
            source = files[TEMPLATE].decode("utf-8") if TEMPLATE in files else None
        except ValueError as error:
            raise _unreadable(TEMPLATE, "UTF-8 text", error) from None
        return Tokenizer(backend, info, source)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """The ids of `text`, at the beginning BOS where the model's texts begin so.

        A text that begins with the BOS token's own text has its BOS already and gets no second one, however
        tokenizer.json was written.

        Args:
            text: any Unicode text.
            add_special_tokens: False for a text that a chat template made, which holds its special tokens
            already.

        Raises:
            UsageError: the text holds a lone surrogate, which no UTF-8 text can.
            IntegrityError: tokenizer.json opens, but the library fails with this text.
        """
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise UsageError(
                "The prompt is not valid Unicode text",
                expected="UTF-8",
                found=f"the code point U+{ord(text[error.start]):04X} at character {error.start}",
                repair="give the prompt as UTF-8",
            ) from None
        ids = self._ids(text, add_special_tokens)
        if not add_special_tokens or self._bos_id is None:
            return ids
        begins = self._leading_bos(ids)
        if begins == 0:
            return [self._bos_id, *ids] if self.info.add_bos else ids
        if begins == 1 and self.info.add_bos:
            return ids
        # Some of them are the text's own, or tokenizer.json's rule, which gives way to the model's declaration
        plain = self._ids(text, False)
        if not self.info.add_bos:
            return plain
        return ids[begins - max(1, self._leading_bos(plain)) :]

    def _leading_bos(self, ids: Sequence[int]) -> int:
        """How many BOS tokens `ids` begin with."""
        return next((place for place, token in enumerate(ids) if token != self._bos_id), len(ids))

    def _ids(self, text: str, add_special_tokens: bool) -> list[int]:
        # The batch's encoder lets go of the interpreter's lock, which `encode` keeps: for seconds, with a long text
        batch = self._backend.encode_batch_fast
        (encoding,) = _used(batch, [text], add_special_tokens=add_special_tokens)
        ids: list[int] = encoding.ids
        return ids

    def least_tokens(self, text: str) -> int:
        """At least so many ids `encode` gives, found without it; 0 where nothing is known. See `runtime.text.bound`."""
        return self._bound.least_tokens(text)

    def prepare(self) -> None:
        """Make now what `least_tokens` looks up, which takes a part of a second with a large vocabulary.

        Raises:
            IntegrityError: the library fails with the vocabulary's own texts.
        """
        _ = self._bound

    @cached_property
    def _bound(self) -> TokenBound:
        return _used(TokenBound, self._backend)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of `ids`; bytes that are no UTF-8 become U+FFFD, unknown ids become nothing.

        Raises:
            IntegrityError: tokenizer.json opens, but the library fails with these ids.
        """
        return _used(self._backend.decode, list(ids), skip_special_tokens=skip_special_tokens)

    @property
    def has_chat_template(self) -> bool:
        return self._template is not None

    def apply_chat_template(self, messages: Sequence[Message], add_generation_prompt: bool = True) -> str:
        """The prompt text for `messages`; encode it with add_special_tokens=False.

        Raises:
            UsageError: the model has no chat template, or its template refuses these messages.
            IntegrityError: the template tried to leave its sandbox.
        """
        if self._template is None:
            raise UsageError(
                "This bundle's model has no chat template",
                repair="pass --raw to give the prompt to the model as it is",
            )
        return self._template.render(messages, add_generation_prompt=add_generation_prompt)

    @cached_property
    def byte_token_ids(self) -> frozenset[int]:
        """Ids of the tokens that stand for one byte each, `<0x00>` to `<0xFF>`, where the decoder joins such
        runs.

        Empty for a byte-level tokenizer, whose tokens are bytes by another rule.
        """
        letter = self._backend.token_to_id("<0x41>")
        if letter is None or self.decode([letter], skip_special_tokens=False) != "A":
            return frozenset()
        ids = (self._backend.token_to_id(f"<0x{byte:02X}>") for byte in range(256))
        return frozenset(token for token in ids if token is not None)

    @cached_property
    def special_token_ids(self) -> frozenset[int]:
        """Ids that `decode` leaves out."""
        added = self._backend.get_added_tokens_decoder()
        return frozenset(token for token, entry in added.items() if entry.special)

    @cached_property
    def added_token_ids(self) -> frozenset[int]:
        """Ids of tokens beside the vocabulary proper, whose text is as it stands; special ones are among them."""
        return frozenset(self._backend.get_added_tokens_decoder())

    @cached_property
    def is_byte_level(self) -> bool:
        """Whether tokens are bytes, each written as a character (`Ġ` is a space)."""
        space = self._backend.token_to_id("Ġ")
        return space is not None and self.decode([space], skip_special_tokens=False) == " "

    def piece(self, token: int) -> str | None:
        """A token as tokenizer.json writes it; None for an id that it does not have."""
        return self._backend.id_to_token(token)


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise _unreadable(file.name, "a file", error) from None


def _used(call: Callable[_P, _T], *args: _P.args, **options: _P.kwargs) -> _T:
    try:
        return asked(call, *args, **options)
    except LibraryError as error:
        raise IntegrityError(
            f"The bundle's {TOKENIZER} cannot be used",
            expected="a tokenizer that encodes every text and decodes all ids",
            found=_line(error),
            repair=_REPAIR,
        ) from error


def _unreadable(name: str, expected: str, found: object) -> IntegrityError:
    return IntegrityError(f"The bundle's {name} is not readable", expected=expected, found=_line(found), repair=_REPAIR)


def _line(found: object) -> str:
    return " ".join(str(found).split()).rstrip(".")
