"""Greedy rejection: accept drafts while they are the target's own choice, then its next token, then -1."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aot.models.llama import argmax, greedy_rejection


def by_hand(target: list[int], drafts: list[int], count: int) -> list[int]:
    right = 0
    while right < count and drafts[right] == target[right]:
        right += 1
    return target[: right + 1] + [-1] * (len(target) - right - 1)


@st.composite
def passes(draw: st.DrawFn) -> tuple[list[list[int]], list[list[int]], list[int]]:
    """Target choices [R, 1+K], drafts [R, K] of three ids, so that they often agree, and real drafts 0..K each."""
    requests, k = draw(st.integers(1, 5)), draw(st.integers(0, 6))
    ids = st.integers(0, 2)
    rows = st.lists(st.lists(ids, min_size=k + 1, max_size=k + 1), min_size=requests, max_size=requests)
    target = draw(rows)
    drafts = [[draw(st.sampled_from([token, (token + 1) % 3])) for token in row[:k]] for row in target]
    counts = draw(st.lists(st.integers(0, k), min_size=requests, max_size=requests))
    return target, drafts, counts


def run(target: list[list[int]], drafts: list[list[int]], counts: list[int]) -> torch.Tensor:
    ints = [torch.tensor(values, dtype=torch.int32) for values in (target, drafts, counts)]
    return greedy_rejection(ints[0], ints[1].view(len(target), -1), ints[2])


@given(passes())
def test_it_is_the_rule_done_by_hand(case: tuple[list[list[int]], list[list[int]], list[int]]) -> None:
    target, drafts, counts = case
    accepted = run(*case)
    assert accepted.dtype == torch.int32
    assert accepted.tolist() == [by_hand(*row) for row in zip(target, drafts, counts, strict=True)]


@pytest.mark.parametrize(
    ("drafts", "count", "accepted"),
    [
        ([4, 5, 6], 3, [4, 5, 6, 7]),
        ([4, 5, 0], 3, [4, 5, 6, -1]),
        ([4, 0, 6], 3, [4, 5, -1, -1]),
        ([0, 5, 6], 3, [4, -1, -1, -1]),
        # Rows past the real drafts are padding, even where padding happens to be right
        ([4, 5, 6], 2, [4, 5, 6, -1]),
        ([4, 5, 6], 0, [4, -1, -1, -1]),
    ],
)
def test_three_drafts_of_a_target_that_writes_4567(drafts: list[int], count: int, accepted: list[int]) -> None:
    assert run([[4, 5, 6, 7]], [drafts], [count]).tolist() == [accepted]


def test_without_drafts_it_is_the_targets_token() -> None:
    assert run([[4], [9]], [[], []], [0, 0]).tolist() == [[4], [9]]


def test_padding_of_id_zero_is_not_accepted_by_a_target_that_chose_zero() -> None:
    assert run([[0, 0, 0, 0]], [[0, 0, 0]], [1]).tolist() == [[0, 0, -1, -1]]


def test_the_lowest_id_wins_a_tie() -> None:
    logits = torch.tensor([[1.0, 3.0, 3.0, 0.0], [2.0, 2.0, 2.0, 2.0]])
    assert argmax(logits).tolist() == [1, 0]
    assert argmax(logits).dtype == torch.int32
