"""d2t is accepted only as increasing target ids inside the vocabulary, and t2d must agree with it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aot.checkpoint.vocabulary_map import draft_to_target
from runtime.bundle.errors import ConfigError

V = 64


def offsets_of(ids: list[int]) -> torch.Tensor:
    return torch.tensor(ids) - torch.arange(len(ids))


def marks_of(ids: list[int]) -> torch.Tensor:
    marks = torch.zeros(V, dtype=torch.bool)
    marks[ids] = True
    return marks


@given(st.sets(st.integers(0, V - 1), min_size=1, max_size=V).map(sorted))
def test_any_increasing_ids_survive_the_round_trip(ids: list[int]) -> None:
    """B1, B4: draft id i -> i + d2t[i] gives the ids back, from t2d alone and from both."""
    for d2t, t2d in ((offsets_of(ids), marks_of(ids)), (None, marks_of(ids))):
        checked = draft_to_target(d2t, t2d, len(ids), V)
        assert checked.dtype == torch.int64
        assert (torch.arange(len(ids)) + checked).tolist() == ids


def test_equal_vocabularies_need_no_map() -> None:
    assert draft_to_target(None, None, V, V).tolist() == [0] * V


@pytest.mark.parametrize("count", [16, 80])
def test_ids_in_the_place_of_offsets_are_told_by_their_never_repeating(count: int) -> None:
    """Table 1.6, row 10: some exporters wrote 0, 1, 2, ...; and small ids need not lead outside the vocabulary."""
    with pytest.raises(ConfigError, match=r"d2t of the draft seems to hold ids in the place of offsets: expected off"):
        draft_to_target(torch.arange(count), None, count, 256)
    if count == 80:
        with pytest.raises(ConfigError, match=r"found 3, 4 and so on, no two alike"):
            draft_to_target(torch.arange(3, 83), None, count, 256)
    # Said by t2d as well, they are offsets
    even = torch.zeros(256, dtype=torch.bool)
    even[torch.arange(count) * 2] = True
    assert draft_to_target(torch.arange(count), even, count, 256).tolist() == list(range(count))


@pytest.mark.parametrize("ids", [[1, 3, 9], [0, 5], list(range(0, 60, 2))])
def test_C7_few_ascending_values_without_t2d_can_mean_both_and_are_refused(ids: list[int]) -> None:
    """Below 64 rows offsets may ascend too; read wrongly, next to nothing is accepted."""
    with pytest.raises(ConfigError, match="d2t of the draft can mean offsets or ids") as caught:
        draft_to_target(torch.tensor(ids), None, len(ids), 256)
    assert "t2d" in caught.value.repair
    marks = torch.zeros(256, dtype=torch.bool)
    marks[torch.tensor(ids)] = True
    with pytest.raises(ConfigError, match="d2t with the ids themselves in the place of offsets"):
        draft_to_target(torch.tensor(ids), marks, len(ids), 256)
    marks = torch.zeros(256, dtype=torch.bool)
    marks[torch.tensor(ids) + torch.arange(len(ids))] = True
    assert draft_to_target(torch.tensor(ids), marks, len(ids), 256).tolist() == ids


def test_C7_few_values_that_only_offsets_can_have_are_read() -> None:
    """Two neighbours have the same offset; ids are never the same. A single id is its own offset."""
    assert draft_to_target(torch.tensor([3, 3, 7]), None, 3, V).tolist() == [3, 3, 7]
    assert draft_to_target(torch.tensor([9]), None, 1, V).tolist() == [9]


def test_zero_offsets_stand_for_the_first_ids_only_when_t2d_says_so() -> None:
    """B3."""
    zeros = torch.zeros(16, dtype=torch.int64)
    assert draft_to_target(zeros, marks_of(list(range(16))), 16, V).tolist() == [0] * 16
    with pytest.raises(ConfigError, match=r"d2t of the draft is all zeros, which is what broken exports write"):
        draft_to_target(zeros, None, 16, V)


@pytest.mark.parametrize(
    ("d2t", "t2d", "sentence"),
    [
        (
            None,
            None,
            "the draft has a reduced vocabulary and no whole map to the target's: expected d2t with 4 "
            "offsets, "
            "found none.",
        ),
        (
            torch.tensor([1, 2, 3]),
            None,
            "the draft has a reduced vocabulary and no whole map to the target's: expected d2t with 4 "
            "offsets, "
            "found 3.",
        ),
        (
            None,
            marks_of([3, 5]),
            "the draft has a reduced vocabulary and no whole map to the target's: expected d2t with 4 "
            "offsets, "
            "found 2.",
        ),
        (
            torch.tensor([1.0, 2.0, 3.0, 4.0]),
            None,
            "d2t of the draft is not a tensor of integers: found torch.float32.",
        ),
        (
            offsets_of([3, 9, 9, 12]),
            None,
            "d2t of the draft is not strictly increasing at row 2: expected a target id above 9, found 9.",
        ),
        (
            offsets_of([3, 4, 5, 64]),
            None,
            "d2t of the draft leads outside the target's vocabulary at row 3: expected 3 + d2t[3] from 0 to "
            "63, "
            "found 64.",
        ),
        (
            offsets_of([-1, 9, 12, 63]),
            None,
            "d2t of the draft leads outside the target's vocabulary at row 0: expected 0 + d2t[0] from 0 to "
            "63, "
            "found -1.",
        ),
        (
            torch.tensor([3, 9, 12, 63]),
            None,
            "d2t of the draft leads outside the target's vocabulary at row 3: expected 3 + d2t[3] from 0 to "
            "63, "
            "found 66 (the values may be ids instead of offsets).",
        ),
        (
            offsets_of([3, 9, 12, 63]),
            marks_of([3, 9, 12, 62]),
            "d2t and t2d of the draft name different target ids: expected t2d true at the 4 ids of d2t and "
            "nowhere "
            "else, found 4 true.",
        ),
        (
            offsets_of([3, 9, 12, 63]),
            marks_of([3, 9, 12]),
            "d2t and t2d of the draft name different target ids: expected t2d true at the 4 ids of d2t and "
            "nowhere "
            "else, found 3 true.",
        ),
    ],
)
def test_a_wrong_map_is_refused(d2t: torch.Tensor | None, t2d: torch.Tensor | None, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        draft_to_target(d2t, t2d, 4, V)
    assert caught.value.sentence() == sentence
