"""How few tokens a text can have, so that one that is far too long is refused without being encoded.

A token stands for no more of a text than its own piece says. So a text with n letters has at least n / m tokens, where
m is the most letters in any piece; the same for digits, spaces, other signs and bytes of other alphabets, and for all
together. The longest pieces of a vocabulary are mostly runs of spaces or signs, so counting by kind says much more than
the total alone.

That holds where nothing of a text gets lost before it is a token, so only what surely becomes one is counted:

- a byte or character that is in the vocabulary by itself; others may be dropped, or many of them be one unknown token
- behind a normaliser that keeps ASCII as it is (spaces written as U+2581, a prefix, composed characters), and before
  which pre-tokenizer nothing is removed; with any other nothing is known, and the bound is 0
- where Unicode composition may have shortened the text, all of it together, by at most MOST_COMPOSED
- no space where an added token takes those beside it
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import tokenizers
from tokenizers import models

SPACE = "\u2581"  # what stands for a space in pieces of SentencePiece's kind
COMPOSITIONS = ("NFC", "NFD", "NFKC", "NFKD")
# Bytes of a text for one byte of its composed form: each character, of up to four bytes, decomposes into one code point
# or more, and one byte of a composed character into at most 1.5 (three for U+01D6, of two bytes)
MOST_COMPOSED = 6
LETTERS, DIGITS, SPACES, SIGNS, OTHERS = range(5)
_UNKNOWN = 5


def byte_alphabet() -> dict[str, int]:
    """Byte-level tokenizers write each byte as one character that prints: itself, or one from U+0100 on."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(0x100 + n): byte for n, byte in enumerate(others)}


class TokenBound:
    """The bound for one tokenizer. Making one looks at the whole vocabulary."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._composes = False
        self._kinds = bytes([_UNKNOWN]) * 256  # of each byte, where it surely becomes a token
        self._most = (0, 0, 0, 0, 0, 0)  # in any piece: of each kind, and together
        shape = _shape(backend)
        if shape is None:
            return
        byte_level, self._composes = shape
        self._kinds = _known(backend, byte_level)
        if any(token.lstrip or token.rstrip for token in backend.get_added_tokens_decoder().values()):
            gone = (SPACES, OTHERS)  # there are spaces beyond ASCII
            self._kinds = bytes(_UNKNOWN if kind in gone else kind for kind in self._kinds)
        # Most pieces are of a few shapes
        shapes = {piece.translate(_KINDS) for piece in _pieces(backend, byte_level)}
        counts = [[0] * 5, *([shape.count(kind) for kind in range(5)] for shape in shapes)]
        self._most = tuple(max(column) for column in zip(*((*each, sum(each)) for each in counts), strict=True))

    def least_tokens(self, text: str) -> int:
        """At least so many tokens `text` is encoded to; 0 where nothing is known."""
        data = text.encode("utf-8", "replace")
        composed = self._composes and not data.isascii()
        if composed:
            # A letter may have become one with what follows it
            whole = _UNKNOWN not in self._kinds
            counts = [0, 0, 0, 0, 0, len(data) // MOST_COMPOSED if whole else 0]
        else:
            kinds = data.translate(self._kinds)
            each = [kinds.count(kind) for kind in range(5)]
            counts = [*each, sum(each)]
        return max((-(-count // most) for count, most in zip(counts, self._most, strict=True) if most), default=0)


def _shape(backend: tokenizers.Tokenizer) -> tuple[bool, bool] | None:
    """Whether pieces are bytes, and whether characters are composed; None where text may get lost."""
    model = backend.model
    if not isinstance(model, models.BPE) or model.continuing_subword_prefix or model.end_of_word_suffix:
        return None
    steps = [*_steps(backend.normalizer, "normalizers"), *_steps(backend.pre_tokenizer, "pretokenizers")]
    if not all(map(_keeps, steps)):
        return None
    names = {step["type"] for step in steps}
    if "ByteLevel" in names and names & {"Metaspace", "Replace", "Prepend"}:
        return None
    return "ByteLevel" in names, bool(names & set(COMPOSITIONS))


def _steps(part: Any, inner: str) -> Iterator[Mapping[str, object]]:
    """The steps of a normaliser or pre-tokenizer, sequences of them laid flat."""
    if part is None:
        return
    try:
        state = json.loads(part.__getstate__())
    except Exception:  # one written in Python
        yield {"type": "Python"}
        return
    waiting = [state]
    while waiting:
        step = waiting.pop()
        if step["type"] == "Sequence":
            waiting += step[inner]
        else:
            yield step


def _keeps(step: Mapping[str, object]) -> bool:
    match step:
        case {"type": "Replace", "pattern": {"String": " "}, "content": content}:
            return content == SPACE
        case {"type": "Metaspace", "replacement": replacement}:
            return replacement == SPACE
        case {"type": "Split" | "Punctuation", "behavior": behaviour}:
            return behaviour != "Removed"
        case {"type": name}:
            return name in (*COMPOSITIONS, "Prepend", "ByteLevel", "Digits", "UnicodeScripts")
    return False


def _kind(byte: int) -> int:
    character = chr(byte)
    if byte >= 0x80:
        return OTHERS
    if character.isalpha():
        return LETTERS
    if character.isdigit():
        return DIGITS
    return SPACES if character.isspace() else SIGNS


_KINDS = bytes(map(_kind, range(256)))


def _known(backend: tokenizers.Tokenizer, byte_level: bool) -> bytes:
    """The kind of each byte that surely becomes a token, for `bytes.translate`."""
    vocabulary = backend.get_vocab(with_added_tokens=False)
    if byte_level:
        known = {byte for character, byte in byte_alphabet().items() if character in vocabulary}
    elif backend.model.byte_fallback and all(f"<0x{byte:02X}>" in vocabulary for byte in range(256)):
        known = set(range(256))
    else:
        # A space may be written either way
        known = {byte for byte in range(128) if chr(byte) in vocabulary and (byte != 32 or SPACE in vocabulary)}
    return bytes(kind if byte in known else _UNKNOWN for byte, kind in enumerate(_KINDS))


class _Alphabet(dict[int, int]):
    """For `str.translate`: characters of no byte are one of another alphabet."""

    def __missing__(self, character: int) -> int:
        return 0x80


def _pieces(backend: tokenizers.Tokenizer, byte_level: bool) -> Iterator[bytes]:
    """The most that each token can stand for."""
    alphabet = _Alphabet({ord(character): byte for character, byte in byte_alphabet().items()})
    for piece in backend.get_vocab(with_added_tokens=False):
        if byte_level:
            yield piece.translate(alphabet).encode("latin-1")
        else:
            yield piece.replace(SPACE, SPACE + " ").encode()
    for token in backend.get_added_tokens_decoder().values():
        yield token.content.encode()
        if backend.normalizer is not None:
            yield backend.normalizer.normalize_str(token.content).encode()
