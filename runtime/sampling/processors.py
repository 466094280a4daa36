"""What a request asks to be done to its logits before a token is chosen, for each row with the tokens before that row.

Order and meaning are vLLM's: allowed ids, bad words, min_tokens, logit bias, then repetition, frequency and presence
penalty. A ban is -inf, which neither bias nor penalty changes, so bans may be set last. Work is in proportion to the
ids that are touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from runtime.sampling.counts import TokenCounts
from runtime.sampling.params import SamplingParams

# A repetition penalty beyond is 0 or infinite in float32, and makes NaN of a logit that is infinite or 0
_SMALLEST, _LARGEST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)


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
        counts: TokenCounts | None = None,
    ) -> None:
        self._params, self._vocab_size = params, vocab_size
        self._num_generated = len(token_ids) - num_prompt_tokens
        self._stop_ids = np.array([token for token in stop_ids if 0 <= token < vocab_size], dtype=np.intp)
        self._allowed = None if params.allowed_token_ids is None else np.unique(_ids(params.allowed_token_ids))
        self._biased = _ids(tuple(params.logit_bias))
        self._biases = np.array(list(params.logit_bias.values()), dtype=np.float32)
        prefix = max((len(word) for word in params.bad_words_token_ids), default=1) - 1
        self._recent = list(token_ids[max(num_prompt_tokens, len(token_ids) - prefix) :])
        self._counts = (counts or TokenCounts()) if params.penalised else None
        self._added: list[int] = []
        if self._counts is not None:
            self._counts.follow(token_ids, num_prompt_tokens)

    def apply(self, row: NDArray[np.float32]) -> None:
        """Change a row of float32 logits, [vocab_size], in place."""
        if len(self._biased):
            row[self._biased] += self._biases
        if self._counts is not None:
            _penalise(row, self._params, self._counts)
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
        if self._counts is not None:
            self._counts.add(token_id)
            self._added.append(token_id)

    def close(self) -> None:
        """Leave the counts as they were: which of the drafts are committed is known with the next step's tokens."""
        if self._counts is not None:
            for token in self._added:
                self._counts.remove(token)
            self._added = []

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


def _penalise(row: NDArray[np.float32], params: SamplingParams, counts: TokenCounts) -> None:
    """Repetition, then frequency, then presence penalty, of the counted ids only."""
    logits = row[counts.ids]
    if params.repetition_penalty != 1.0:
        factor = np.float32(min(max(params.repetition_penalty, _SMALLEST), _LARGEST))
        # What overflows is infinite, which a row may hold: such a token is certain, or never comes
        with np.errstate(over="ignore", under="ignore"):
            repeated = np.where(logits > 0, logits / factor, logits * factor)
        logits = np.where(counts.present, repeated, logits)
    logits -= np.float32(params.frequency_penalty) * counts.generated
    logits -= np.float32(params.presence_penalty) * (counts.generated > 0)
    row[counts.ids] = logits


def _ids(token_ids: Sequence[int]) -> NDArray[np.intp]:
    return np.array(token_ids, dtype=np.intp)
