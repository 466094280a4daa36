"""Log probabilities in OpenAI's two forms. Both have an entry for every id of the answer, the last one included."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from runtime.sampling.params import LEAST_LOGPROB, TokenLogprobs
from runtime.text.pieces import Pieces


def chat_logprobs(tokens: Sequence[TokenLogprobs], pieces: Pieces) -> dict[str, object]:
    """Chat completions: {"content": [{"token", "logprob", "bytes", "top_logprobs": [...]}]}."""
    return {
        "content": [
            _entry(token.token_id, token.logprob, pieces)
            | {"top_logprobs": [_entry(other, logprob, pieces) for other, logprob in token.top]}
            for token in tokens
        ],
        "refusal": None,
    }


def _entry(token: int, logprob: float, pieces: Pieces) -> dict[str, object]:
    return {"token": pieces.text_of(token), "logprob": _number(logprob), "bytes": list(pieces.bytes_of(token))}


class CompletionLogprobs:
    """Completions: parallel lists `tokens`, `token_logprobs`, `top_logprobs`, `text_offset`, a part at a time.

    `top_logprobs` names the token itself too where it is not among the likeliest. `text_offset` counts the characters
    of the answer before the token's first whole one; special tokens have none.
    """

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._offset = 0

    def push(self, tokens: Sequence[TokenLogprobs]) -> dict[str, object]:
        pieces, offsets = self._pieces, []
        for token in tokens:
            offsets.append(self._offset)
            if not pieces.is_special(token.token_id):
                self._offset += len(self._decoder.decode(pieces.bytes_of(token.token_id)))
        return {
            "text_offset": offsets,
            "token_logprobs": [_number(token.logprob) for token in tokens],
            "tokens": [pieces.text_of(token.token_id) for token in tokens],
            "top_logprobs": [
                {
                    pieces.text_of(other): _number(logprob)
                    for other, logprob in (*token.top, (token.token_id, token.logprob))
                }
                for token in tokens
            ],
        }


def _number(logprob: float) -> float:
    return max(logprob, LEAST_LOGPROB)
