"""How often each token of a request was generated, kept from step to step so that a step counts its new tokens only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


class TokenCounts:
    """The distinct tokens of prompt and answer. A cache: `follow` makes it agree with any token ids.

    Attributes:
        ids: [n] distinct ids, those of the prompt first. One that `remove` took back may stay.
        generated: [n] float32, how often each was generated.
    """

    def __init__(self) -> None:
        self._seen, self._in_prompt = 0, 0
        self.ids: NDArray[np.intp] = np.empty(0, dtype=np.intp)
        self.generated: NDArray[np.float32] = np.empty(0, dtype=np.float32)

    @property
    def present(self) -> NDArray[np.bool_]:
        """[n] whether each is in the prompt or was generated."""
        present = self.generated > 0
        present[: self._in_prompt] = True
        return present

    def follow(self, token_ids: Sequence[int], num_prompt_tokens: int) -> None:
        """Agree with these tokens, of which earlier calls may have seen the beginning."""
        if not 0 < self._seen <= len(token_ids):
            self._count_all(token_ids, num_prompt_tokens)
        else:
            for token in token_ids[self._seen :]:
                self.add(token)
        self._seen = len(token_ids)

    def add(self, token_id: int) -> None:
        """Count one more generated token."""
        place = np.flatnonzero(self.ids == token_id)
        if len(place):
            self.generated[place] += 1
        else:
            self.ids = np.append(self.ids, np.intp(token_id))
            self.generated = np.append(self.generated, np.float32(1))

    def remove(self, token_id: int) -> None:
        """Take one `add` back."""
        self.generated[self.ids == token_id] -= 1

    def _count_all(self, token_ids: Sequence[int], num_prompt_tokens: int) -> None:
        counts = dict.fromkeys(token_ids[:num_prompt_tokens], 0)
        self._in_prompt = len(counts)
        counts.update(Counter(token_ids[num_prompt_tokens:]))
        self.ids = np.fromiter(counts.keys(), dtype=np.intp, count=len(counts))
        self.generated = np.fromiter(counts.values(), dtype=np.float32, count=len(counts))
