"""Which rows of a pass belong to which request: the index bookkeeping of speculative decoding, under vLLM's names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate


def decode_token_threshold(num_speculative_tokens: int) -> int:
    """The most tokens that one request may have in a pass that is still a decode pass: 1 + K, so 1 without drafts."""
    return 1 + num_speculative_tokens


@dataclass(frozen=True)
class SpecDecodeMetadata:
    """Where the logits of one pass's requests lie. Request i has num_draft_tokens[i] drafts, and one row more.

    The last 1 + n of a request's scheduled tokens have a row of logits each: rows 0..n-1 judge its n drafts, row n
    yields the bonus token. A request without drafts, and the last chunk of a prompt, have the bonus row only.

    Attributes:
        num_draft_tokens: drafts of each request, 0..K.
        cu_num_draft_tokens: their running sum.
        logits_indices: rows of the pass's (padded) tokens whose logits are needed, request by request.
        target_logits_indices: places in `logits_indices` whose logits judge a draft, one for each draft.
        bonus_logits_indices: places in `logits_indices` of each request's last row.
        draft_token_ids: the drafts, in the order of `target_logits_indices`.
    """

    num_draft_tokens: tuple[int, ...]
    cu_num_draft_tokens: tuple[int, ...]
    logits_indices: tuple[int, ...]
    target_logits_indices: tuple[int, ...]
    bonus_logits_indices: tuple[int, ...]
    draft_token_ids: tuple[int, ...]

    @classmethod
    def from_pass(
        cls, cu_num_scheduled_tokens: Sequence[int], num_draft_tokens: Sequence[int], input_ids: Sequence[int]
    ) -> SpecDecodeMetadata:
        """Read the drafts off a pass's input ids.

        Args:
            cu_num_scheduled_tokens: where each request's tokens end in the pass: the running sum of their counts, or,
                in a pass padded to 1 + K rows a request, its first row plus its count.
            num_draft_tokens: how many of each request's tokens, the last ones, are drafts.
            input_ids: ids of the whole pass, padding included.
        """
        first_rows = [end - 1 - drafts for end, drafts in zip(cu_num_scheduled_tokens, num_draft_tokens, strict=True)]
        drafts = [input_ids[first + 1 : end] for first, end in zip(first_rows, cu_num_scheduled_tokens, strict=True)]
        return cls.from_drafts(first_rows, drafts)

    @classmethod
    def from_drafts(cls, first_rows: Sequence[int], drafts: Sequence[Sequence[int]]) -> SpecDecodeMetadata:
        """The same from each request's first row of logits and its drafts."""
        counts = tuple(len(run) for run in drafts)
        ends = tuple(accumulate(count + 1 for count in counts))
        return cls(
            num_draft_tokens=counts,
            cu_num_draft_tokens=tuple(accumulate(counts)),
            logits_indices=tuple(
                row for first, count in zip(first_rows, counts, strict=True) for row in range(first, first + count + 1)
            ),
            target_logits_indices=tuple(
                place for end, count in zip(ends, counts, strict=True) for place in range(end - 1 - count, end - 1)
            ),
            bonus_logits_indices=tuple(end - 1 for end in ends),
            draft_token_ids=tuple(token for run in drafts for token in run),
        )

    def drafts_of(self, index: int) -> tuple[int, ...]:
        """The drafts of request `index`."""
        return self.draft_token_ids[self._drafts_before(index) : self.cu_num_draft_tokens[index]]

    def rows_of(self, index: int) -> tuple[int, ...]:
        """The rows of the pass that judge the drafts of request `index`, then that of its bonus token."""
        judging = self.target_logits_indices[self._drafts_before(index) : self.cu_num_draft_tokens[index]]
        return tuple(self.logits_indices[place] for place in (*judging, self.bonus_logits_indices[index]))

    def _drafts_before(self, index: int) -> int:
        return self.cu_num_draft_tokens[index - 1] if index else 0
