"""What a request asks to be done to its logits before a token is chosen, for each row with the tokens before that row.

Order and meaning are vLLM's: allowed ids, bad words, min_tokens, logit bias, then repetition, frequency and presence
penalty. A ban is -inf, which neither bias nor penalty changes, so bans may be set last. Work is in proportion to the
ids that are touched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from runtime.sampling.params import SamplingParams


class RowProcessors:
    """Changes one request's rows of logits, one after another: `apply` to a row, `advance` by its draft, and again.

    A row must see the drafts of the rows before it: they are its history if it is reached at all.
    """

    def __init__(
        self,
        params: SamplingParams,
        token_ids: Sequence[int],
        num_prompt_tokens: int,
        stop_ids: Iterable[int],
        vocab_size: int,
    ) -> None:
        self._params, self._vocab_size = params, vocab_size
        self._num_generated = len(token_ids) - num_prompt_tokens
        self._stop_ids = np.array([token for token in stop_ids if 0 <= token < vocab_size], dtype=np.intp)
        self._allowed = None if params.allowed_token_ids is None else np.unique(_ids(params.allowed_token_ids))
        self._biased = _ids(tuple(params.logit_bias))
        self._biases = np.array(list(params.logit_bias.values()), dtype=np.float32)
        prefix = max((len(word) for word in params.bad_words_token_ids), default=1) - 1
        self._recent = list(token_ids[max(num_prompt_tokens, len(token_ids) - prefix) :])
        self._penalties = _Penalties(params, token_ids, num_prompt_tokens) if params.penalised else None

    def apply(self, row: NDArray[np.float32]) -> None:
        """Change a row of float32 logits, [vocab_size], in place."""
        if len(self._biased):
            row[self._biased] += self._biases
        if self._penalties is not None:
            self._penalties.apply(row)
        banned = self._banned()
        if len(banned):
            row[banned] = -np.inf
        if self._allowed is not None:
            kept = row[self._allowed]
            row.fill(-np.inf)
            row[self._allowed] = kept

    def advance(self, token_id: int) -> None:
        """The next row comes after this token, which is in the vocabulary."""
        self._num_generated += 1
        self._recent.append(token_id)
        if self._penalties is not None:
            self._penalties.count(token_id)

    def lowest_allowed(self) -> int:
        """The lowest id that nothing bans, for a row without a finite logit; if all are banned, the lowest allowed."""
        banned = set(self._banned().tolist())
        ids = range(self._vocab_size) if self._allowed is None else self._allowed.tolist()
        return next((token for token in ids if token not in banned), ids[0])

    def _banned(self) -> NDArray[np.intp]:
        words = [word[-1] for word in self._params.bad_words_token_ids if self._completes(word)]
        if self._num_generated < self._params.min_tokens:
            return np.concatenate((_ids(words), self._stop_ids))
        return _ids(words)

    def _completes(self, word: Sequence[int]) -> bool:
        """Whether the generated tokens end with all but the last of a bad word."""
        prefix = len(word) - 1
        return not prefix or (len(self._recent) >= prefix and self._recent[-prefix:] == list(word[:-1]))


class _Penalties:
    """The ids that penalties touch, with how often each was generated."""

    def __init__(self, params: SamplingParams, token_ids: Sequence[int], num_prompt_tokens: int) -> None:
        self._params = params
        counts = Counter(token_ids[num_prompt_tokens:])
        if params.repetition_penalty != 1.0:
            for token in set(token_ids[:num_prompt_tokens]):
                counts.setdefault(token, 0)
        # Ids of prompt and answer, for all that are here; those of the prompt alone have the count 0
        self._ids = np.fromiter(counts.keys(), dtype=np.intp, count=len(counts))
        self._counts = np.fromiter(counts.values(), dtype=np.float32, count=len(counts))

    def count(self, token_id: int) -> None:
        place = np.flatnonzero(self._ids == token_id)
        if len(place):
            self._counts[place] += 1
        else:
            self._ids = np.append(self._ids, np.intp(token_id))
            self._counts = np.append(self._counts, np.float32(1))

    def apply(self, row: NDArray[np.float32]) -> None:
        params = self._params
        logits = row[self._ids]
        if params.repetition_penalty != 1.0:
            factor = np.float32(params.repetition_penalty)
            logits = np.where(logits > 0, logits / factor, logits * factor)
        logits -= np.float32(params.frequency_penalty) * self._counts
        logits -= np.float32(params.presence_penalty) * (self._counts > 0)
        row[self._ids] = logits


def _ids(token_ids: Sequence[int]) -> NDArray[np.intp]:
    return np.array(token_ids, dtype=np.intp)
