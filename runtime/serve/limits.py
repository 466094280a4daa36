"""How long a prompt may be, checked before it is queued."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.serve.errors import invalid
from runtime.serve.generation import Served


def check_length(ids: Sequence[int], served: Served, param: str) -> None:
    """Raise ApiError 400 for a prompt that is empty, that leaves no room for an answer, or with foreign ids."""
    if not ids:
        raise invalid("The prompt is empty: expected at least one token.", param)
    if len(ids) >= served.max_model_len:
        raise invalid(
            f"The prompt is too long: expected at most {served.max_model_len - 1} tokens, for prompt and answer have "
            f"{served.max_model_len} together, found {len(ids)}.",
            param,
            "context_length_exceeded",
        )
    outside = next((token for token in ids if not 0 <= token < served.vocab_size), None)
    if outside is not None:
        raise invalid(f"The prompt is wrong: expected ids from 0 to {served.vocab_size - 1}, found {outside}.", param)
