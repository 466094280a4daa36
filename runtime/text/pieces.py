"""The bytes of single tokens, which log probabilities are reported with.

A token's text alone may be no text: an emoji is four bytes, and each may be a token. Decoded alone they all show as
U+FFFD, so a list of such texts tells nothing and does not add up to the answer. Their bytes do.
"""

from __future__ import annotations

from functools import lru_cache

from runtime.text.bound import byte_alphabet
from runtime.text.tokenizer import Tokenizer

_BYTES = byte_alphabet()


class Pieces:
    """Looks tokens up in a tokenizer. Put together, the bytes of an answer's ids are the answer in UTF-8, but for a
    space before the first word that some decoders drop.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._byte_level = tokenizer.is_byte_level
        self.bytes_of = lru_cache(maxsize=65536)(self._bytes_of)

    def text_of(self, token: int) -> str:
        """The token as text: as it is where it is whole characters, else like "bytes:\\xe4\\xbd", as OpenAI does."""
        data = self.bytes_of(token)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)

    def is_special(self, token: int) -> bool:
        """Whether the token is left out of the text."""
        return token in self._tokenizer.special_token_ids

    def _bytes_of(self, token: int) -> bytes:
        name = self._tokenizer.piece(token)
        if name is None:
            return b""
        if token in self._tokenizer.byte_token_ids:
            return bytes([int(name[3:5], 16)])
        if token in self._tokenizer.added_token_ids:
            return name.encode("utf-8")
        if self._byte_level and all(character in _BYTES for character in name):
            return bytes(_BYTES[character] for character in name)
        # After itself, since some decoders drop the space before the first word
        once, twice = (self._tokenizer.decode([token] * times, skip_special_tokens=False) for times in (1, 2))
        return twice[len(once) :].encode("utf-8")
