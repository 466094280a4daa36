"""The number of drafts per batch size: vLLM's list read, refused in a sentence each, and looked up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.bundle.errors import UsageError
from runtime.schedule import KSchedule, read_schedule


def test_k_is_used_as_written() -> None:
    """N4 (vllm#26504): {1-2: 3, 3-4: 1, 5 and more: 0}."""
    schedule = KSchedule.of([[1, 2, 3], [3, 4, 1], [5, 5, 0]], most=3)
    assert [schedule.k_for(size) for size in (1, 2, 3, 4, 5, 6, 1000)] == [3, 3, 1, 1, 0, 0, 0]


def test_a_gap_carries_the_k_before_it() -> None:
    schedule = KSchedule.of([[1, 16, 3], [64, 128, 2]])
    assert [schedule.k_for(size) for size in (16, 17, 63, 64, 128, 129)] == [3, 3, 3, 2, 2, 2]


def test_ranges_may_come_in_any_order() -> None:
    """As vLLM takes them."""
    assert KSchedule.of([[3, 4, 1], [1, 2, 3]]) == KSchedule(((1, 2, 3), (3, 4, 1)))


def test_a_constant_schedule_has_one_k() -> None:
    assert [KSchedule.constant(2).k_for(size) for size in (1, 2, 99)] == [2, 2, 2]


@pytest.mark.parametrize(
    ("k", "buckets"),
    # Bucket 2 takes batches of 2, bucket 4 of 3 and 4, bucket 8 of 5 to 8
    [(3, (1, 2)), (1, (4,)), (0, (8,)), (2, ())],
)
def test_the_buckets_in_which_a_k_can_run(k: int, buckets: tuple[int, ...]) -> None:
    schedule = KSchedule.of([[1, 2, 3], [3, 4, 1], [5, 5, 0]])
    assert schedule.buckets((1, 2, 4, 8), k) == buckets


def test_a_bucket_may_have_several_ks() -> None:
    schedule = KSchedule.of([[1, 2, 3], [3, 5, 1], [6, 6, 0]])
    assert [schedule.buckets((1, 8), k) for k in (3, 1, 0)] == [(1, 8), (8,), (8,)]


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ([], "is not a schedule: expected a list of [first, last, K], found []"),
        ({"1-4": 3}, "is not a schedule: expected a list of [first, last, K], found {'1-4': 3}"),
        (None, "is not a schedule"),
        ("[[1, 2, 3]]", "is not a schedule"),
        ([1, 4, 3], "holds what is no range: expected [first, last, K], three whole numbers, found 1"),
        ([[1, 4]], "holds what is no range"),
        ([[1, 4, True]], "holds what is no range"),
        ([[1, 4, 3.0]], "holds what is no range"),
        ([["1", 4, 3]], "holds what is no range"),
        ([[1, 4, 1, 2048, 3]], "has a range of context lengths, which is not supported"),
        ([[0, 4, 3]], "holds an empty range: expected 1 <= first <= last, found [0, 4, 3]"),
        ([[4, 1, 3]], "holds an empty range"),
        ([[1, 4, -1]], "holds a negative K"),
        ([[2, 4, 3]], "does not begin with one request: expected a first range that starts at 1, found [2, 4, 3]"),
        (
            [[1, 4, 3], [4, 8, 1]],
            "has ranges that overlap: expected each batch size in one range, so above 4 after [1, 4, 3]",
        ),
        ([[1, 4, 3], [1, 4, 3]], "has ranges that overlap"),
        ([[1, 4, 4]], "asks for more draft tokens than num_speculative_tokens: expected a K of at most 3"),
    ],
)
def test_what_is_no_schedule_is_refused_in_a_sentence(value: object, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        KSchedule.of(value, most=3)
    assert f"num_speculative_tokens_per_batch_size {sentence}" in caught.value.sentence()
    assert caught.value.repair
    assert "\n" not in caught.value.sentence()


def test_an_option_is_a_list_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "k.json").write_text("[[1, 2, 3], [3, 3, 0]]\n")
    wanted = KSchedule(((1, 2, 3), (3, 3, 0)))
    assert read_schedule(" [[1,2,3],[3,3,0]]") == wanted
    assert read_schedule(str(tmp_path / "k.json"), most=3) == wanted


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[[1, 2, 3]", "is not JSON"),
        ("[[1, 2, NaN]]", "is not JSON"),
        ("nowhere.json", "names a file that cannot be read"),
        ("", "names a file that cannot be read"),
        ("{}", "is not a schedule"),
    ],
)
def test_an_option_that_is_neither_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence) as caught:
        read_schedule(text)
    assert caught.value.repair


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "k.json").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="no UTF-8 text"):
        read_schedule(str(tmp_path / "k.json"))


@st.composite
def schedules(draw: st.DrawFn) -> list[list[int]]:
    """Right ones: widths and gaps drawn, not the numbers themselves."""
    ranges, first = [], 1
    for width, gap, k in draw(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 5), st.integers(0, 7)), min_size=1)):
        ranges.append([first, first + width - 1, k])
        first += width + gap
    return ranges


@settings(max_examples=200, deadline=None)
@given(schedules())
def test_every_batch_size_has_the_k_of_the_last_range_that_starts_at_or_below_it(ranges: list[list[int]]) -> None:
    schedule = KSchedule.of(ranges, most=7)
    assert read_schedule(json.dumps(schedule.to_json())) == schedule
    for size in range(1, ranges[-1][1] + 5):
        assert schedule.k_for(size) == [k for first, _, k in ranges if first <= size][-1]


@settings(max_examples=100, deadline=None)
@given(schedules(), st.sets(st.integers(1, 40), min_size=1))
def test_a_k_has_the_buckets_of_its_batch_sizes(ranges: list[list[int]], sizes: set[int]) -> None:
    schedule, buckets = KSchedule.of(ranges), sorted(sizes)
    for k in range(8):
        of_batches = {min(b for b in buckets if b >= n) for n in range(1, buckets[-1] + 1) if schedule.k_for(n) == k}
        assert set(schedule.buckets(buckets, k)) == of_batches


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(st.integers(-1, 6) | st.booleans() | st.none(), min_size=2, max_size=4), max_size=3))
def test_any_other_list_is_refused_with_a_repair_or_read_as_it_is(value: list[list[int]]) -> None:
    refused = None
    try:
        schedule = KSchedule.of(value)
    except UsageError as error:
        refused = error
    if refused is None:
        assert schedule.to_json() == sorted(value)
    else:
        assert all((refused.expected, refused.found, refused.repair))
