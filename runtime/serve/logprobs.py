"""Log probabilities in OpenAI's two forms. Both have an entry for every id of the answer, the last one included."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass

from runtime.sampling.params import LEAST_LOGPROB, TokenLogprobs
from runtime.text.pieces import Pieces


@dataclass(frozen=True)
class TokenNames:
    """How log probabilities name tokens.

    Attributes:
        as_ids: by their ids, "token_id:42", and not by their texts.
        skip_special_tokens: special tokens have no place in the answer's text.
    """

    pieces: Pieces
    as_ids: bool = False
    skip_special_tokens: bool = True

    def name(self, token: int) -> str:
        return f"token_id:{token}" if self.as_ids else self.pieces.text_of(token)

    def in_text(self, token: int) -> bool:
        return not (self.skip_special_tokens and self.pieces.is_special(token))


def chat_logprobs(tokens: Sequence[TokenLogprobs], names: TokenNames) -> dict[str, object]:
    """Chat completions: {"content": [{"token", "logprob", "bytes", "top_logprobs": [...]}]}."""
    return {
        "content": [
            _entry(token.token_id, token.logprob, names)
            | {"top_logprobs": [_entry(other, logprob, names) for other, logprob in token.top]}
            for token in tokens
        ],
        "refusal": None,
    }


def _entry(token: int, logprob: float, names: TokenNames) -> dict[str, object]:
    return {"token": names.name(token), "logprob": _number(logprob), "bytes": list(names.pieces.bytes_of(token))}


class CompletionLogprobs:
    """Completions: parallel lists `tokens`, `token_logprobs`, `top_logprobs`, `text_offset`, a part at a time.

    `top_logprobs` names the token itself too where it is not among the likeliest. `text_offset` counts the characters
    of the answer before the token's first whole one; tokens that are left out of it have none.
    """

    def __init__(self, names: TokenNames) -> None:
        self._names = names
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._offset = 0

    def push(self, tokens: Sequence[TokenLogprobs]) -> dict[str, object]:
        names, offsets = self._names, []
        for token in tokens:
            offsets.append(self._offset)
            if names.in_text(token.token_id):
                self._offset += len(self._decoder.decode(names.pieces.bytes_of(token.token_id)))
        return {
            "text_offset": offsets,
            "token_logprobs": [_number(token.logprob) for token in tokens],
            "tokens": [names.name(token.token_id) for token in tokens],
            "top_logprobs": [
                {
                    names.name(other): _number(logprob)
                    for other, logprob in (*token.top, (token.token_id, token.logprob))
                }
                for token in tokens
            ],
        }


def _number(logprob: float) -> float:
    return max(logprob, LEAST_LOGPROB)
