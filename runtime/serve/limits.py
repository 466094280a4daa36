"""How long a prompt may be, checked before it is queued."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.serve.errors import ApiError, invalid
from runtime.serve.generation import Served


def check_text(text: str, served: Served, param: str) -> None:
    """Raise ApiError 400 for a text that has too many tokens for sure, before it is encoded, which may take seconds.

    None that fits is refused: `Tokenizer.least_tokens` is never more than there are.
    """
    least = served.tokenizer.least_tokens(text)
    if least >= served.max_model_len:
        raise _too_long(f"at least {least}", served, param)


def check_length(ids: Sequence[int], served: Served, param: str) -> None:
    """Raise ApiError 400 for a prompt that is empty, that leaves no room for an answer, or with foreign ids."""
    if not ids:
        raise invalid("The prompt is empty: expected at least one token.", param)
    if len(ids) >= served.max_model_len:
        raise _too_long(str(len(ids)), served, param)
    outside = next((token for token in ids if not 0 <= token < served.vocab_size), None)
    if outside is not None:
        raise invalid(f"The prompt is wrong: expected ids from 0 to {served.vocab_size - 1}, found {outside}.", param)


def _too_long(found: str, served: Served, param: str) -> ApiError:
    return invalid(
        f"The prompt is too long: expected at most {served.max_model_len - 1} tokens, for prompt and answer have "
        f"{served.max_model_len} together, found {found}.",
        param,
        "context_length_exceeded",
    )
