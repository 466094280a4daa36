"""Numbers that are no tokens in `accepted` and `next_token`, by which a target's graph speaks to the loop.

They are part of the bundle's format: a change of their meaning is a new `FORMAT_VERSION`. Neither is ever a draft, so
the acceptance of drafts ends where one stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

# Behind a request's last token
NOTHING = -1
# In place of the token of the first reached row whose logits are not all finite
NOT_FINITE = -2


@dataclass(frozen=True)
class Chosen:
    """What a request's row of `accepted` says: tokens, and the sign behind them (NOTHING where the row is full)."""

    tokens: list[int]
    sign: int

    @classmethod
    def of(cls, row: Sequence[int], vocab_size: int) -> Chosen:
        """Read a row up to what is no id of the vocabulary."""
        tokens = list(takewhile(lambda token: 0 <= token < vocab_size, row))
        return cls(tokens, row[len(tokens)] if len(tokens) < len(row) else NOTHING)

    @property
    def num_accepted(self) -> int:
        """How many of the tokens were drafts: all before another sign, else all but the corrected or bonus token."""
        return len(self.tokens) - (self.sign == NOTHING and bool(self.tokens))
