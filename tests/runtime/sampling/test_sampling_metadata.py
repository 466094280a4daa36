"""Index bookkeeping of a pass: the source document's example, and gathers against a plain loop."""

from __future__ import annotations

from itertools import accumulate

from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.sampling.metadata import SpecDecodeMetadata, decode_token_threshold


def test_uneven_drafts_of_five_requests() -> None:
    """E5 (vllm-gaudi#593), which is also the worked example of the bookkeeping."""
    input_ids = list(range(1000, 1209))
    metadata = SpecDecodeMetadata.from_pass([4, 104, 107, 207, 209], [3, 0, 2, 0, 1], input_ids)
    assert metadata.cu_num_draft_tokens == (3, 3, 5, 5, 6)
    assert metadata.logits_indices == (0, 1, 2, 3, 103, 104, 105, 106, 206, 207, 208)
    assert metadata.target_logits_indices == (0, 1, 2, 5, 6, 9)
    assert metadata.bonus_logits_indices == (3, 4, 7, 8, 10)
    assert metadata.draft_token_ids == (1001, 1002, 1003, 1105, 1106, 1208)
    assert [metadata.rows_of(index) for index in range(5)] == [
        (0, 1, 2, 3),
        (103,),
        (104, 105, 106),
        (206,),
        (207, 208),
    ]
    assert [metadata.drafts_of(index) for index in range(5)] == [(1001, 1002, 1003), (), (1105, 1106), (), (1208,)]


def test_no_requests() -> None:
    metadata = SpecDecodeMetadata.from_pass([], [], [])
    assert metadata.logits_indices == metadata.bonus_logits_indices == metadata.draft_token_ids == ()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 9)), max_size=6), st.booleans())
def test_gathers_agree_with_a_plain_loop(requests: list[tuple[int, int]], padded: bool) -> None:
    """Row by row, for tokens laid end to end and for passes padded to a fixed number of rows a request."""
    counts = [drafts for drafts, _ in requests]
    scheduled = [drafts + others for drafts, others in requests]
    width = 14
    ends = [i * width + n for i, n in enumerate(scheduled)] if padded else list(accumulate(scheduled))
    input_ids = [7 * row for row in range(ends[-1] + 3 if ends else 0)]
    metadata = SpecDecodeMetadata.from_pass(ends, counts, input_ids)
    rows: list[int] = []
    target, bonus, drafts = [], [], []
    for end, count in zip(ends, counts, strict=True):
        for row in range(end - count - 1, end):
            (bonus if row == end - 1 else target).append(row)
            rows.append(row)
        drafts += input_ids[end - count : end]
    assert list(metadata.logits_indices) == rows
    assert [metadata.logits_indices[place] for place in metadata.target_logits_indices] == target
    assert [metadata.logits_indices[place] for place in metadata.bonus_logits_indices] == bonus
    assert list(metadata.draft_token_ids) == drafts
    # A draft lies one row after the logits that judge it
    judged = [input_ids[metadata.logits_indices[place] + 1] for place in metadata.target_logits_indices]
    assert judged == drafts
    assert metadata == SpecDecodeMetadata.from_drafts(
        [end - 1 - count for end, count in zip(ends, counts, strict=True)],
        [input_ids[end - count : end] for end, count in zip(ends, counts, strict=True)],
    )
    assert sum((metadata.rows_of(index) for index in range(len(ends))), ()) == metadata.logits_indices


def test_a_decode_pass_has_one_token_and_its_drafts() -> None:
    assert [decode_token_threshold(k) for k in (0, 1, 3, 5)] == [1, 2, 4, 6]
