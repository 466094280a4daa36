"""Every processor on every verify row, with the tokens before that row, against the plain reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.sampling.counts import TokenCounts
from runtime.sampling.params import GREEDY, SamplingParams
from runtime.sampling.processors import RowProcessors
from runtime.sampling.sampler import SampledRows, Sampler
from tests.runtime.sampling.reference import processed

V = 12
IDS = st.integers(0, V - 1)
PARAMS = st.builds(
    SamplingParams,
    presence_penalty=st.sampled_from([0.0, 0.7, -1.5]),
    frequency_penalty=st.sampled_from([0.0, 0.3, -2.0]),
    repetition_penalty=st.sampled_from([1.0, 1.3, 0.6]),
    logit_bias=st.dictionaries(IDS, st.sampled_from([-100.0, -1.25, 3.5, 100.0]), max_size=3),
    allowed_token_ids=st.none() | st.lists(IDS, min_size=1, max_size=6).map(tuple),
    bad_words_token_ids=st.lists(st.lists(IDS, min_size=1, max_size=3).map(tuple), max_size=4).map(tuple),
    min_tokens=st.integers(0, 5),
)


def run(params: SamplingParams, history: Sequence[int], prompt: int, drafts: Sequence[int], rows: Any) -> list[Any]:
    """The rows, changed one after another."""
    processors = RowProcessors(params, history, prompt, {1, 5}, V)
    changed = []
    for place, row in enumerate(rows):
        row = row.copy()
        processors.apply(row)
        changed.append(row)
        if place < len(drafts):
            processors.advance(drafts[place])
    return changed


@settings(max_examples=80, deadline=None)
@given(PARAMS, st.lists(IDS, min_size=1, max_size=8), st.integers(1, 8), st.lists(IDS, max_size=3), st.integers(0, 99))
def test_rows_are_those_of_the_reference(
    params: SamplingParams, history: list[int], prompt: int, drafts: list[int], seed: int
) -> None:
    """H8 (vllm#42744) and H9 (vllm#18902): each row has the drafts of the rows before it as its history."""
    prompt = min(prompt, len(history))
    rows = torch.randn(1 + len(drafts), V, generator=torch.Generator().manual_seed(seed)) * 3
    rows[0, 3] = 0.0
    changed = run(params, history, prompt, drafts, rows.numpy())
    for place, row in enumerate(changed):
        expected = processed(rows[place], params, [*history, *drafts[:place]], prompt, frozenset({1, 5}))
        torch.testing.assert_close(torch.from_numpy(row), expected, rtol=1e-6, atol=1e-6)


def test_frequency_counts_the_drafts_before_a_row() -> None:
    """H9 (vllm#18902; the per-row rule is vllm#6718): drafts [4, 4, 4] weigh 0, 1, 2, 3 times on rows 0 to 3."""
    rows = np.zeros((4, V), dtype=np.float32)
    changed = run(replace(GREEDY, frequency_penalty=2.0), [4, 4], 2, [4, 4, 4], rows)
    assert [float(row[4]) for row in changed] == [0.0, -2.0, -4.0, -6.0]
    changed = run(replace(GREEDY, presence_penalty=2.0), [4, 4], 2, [4, 4, 4], rows)
    assert [float(row[4]) for row in changed] == [0.0, -2.0, -2.0, -2.0]
    changed = run(replace(GREEDY, repetition_penalty=2.0), [3], 1, [4, 4, 4], rows + np.float32(1))
    assert [(float(row[3]), float(row[4])) for row in changed] == [(0.5, 1.0), (0.5, 0.5), (0.5, 0.5), (0.5, 0.5)]


def test_a_bad_word_that_spans_accepted_drafts_is_not_completed() -> None:
    """(7, 8, 9) after 7 was generated: drafts 8 then anything leave 9 banned in the row after 8, and there only."""
    params = replace(GREEDY, bad_words_token_ids=((7, 8, 9), (2,)))
    changed = run(params, [1, 7], 1, [8, 9], np.zeros((3, V), dtype=np.float32))
    assert [np.flatnonzero(row == -np.inf).tolist() for row in changed] == [[2], [2, 9], [2]]
    # Tokens of the prompt do not begin a bad word
    changed = run(params, [1, 7], 2, [8], np.zeros((2, V), dtype=np.float32))
    assert [np.flatnonzero(row == -np.inf).tolist() for row in changed] == [[2], [2]]


def test_min_tokens_counts_the_drafts_before_a_row() -> None:
    params = replace(GREEDY, min_tokens=3)
    changed = run(params, [1, 7, 7], 2, [6, 6], np.zeros((3, V), dtype=np.float32))
    assert [np.flatnonzero(row == -np.inf).tolist() for row in changed] == [[1, 5], [1, 5], []]


@pytest.mark.parametrize(
    ("params", "lowest"),
    [
        (replace(GREEDY, allowed_token_ids=(4, 6), bad_words_token_ids=((4,), (6,))), 4),
        (replace(GREEDY, bad_words_token_ids=tuple((token,) for token in range(V))), 0),
        (replace(GREEDY, allowed_token_ids=(1,), min_tokens=9), 1),
    ],
)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("rejection", ["coupled", "standard"])
def test_where_all_is_banned_the_lowest_allowed_id_is_given(
    params: SamplingParams, lowest: int, temperature: float, rejection: Any
) -> None:
    """H1 (vllm#53029): never an id past the vocabulary."""
    params = replace(params, temperature=temperature, seed=4, top_k=2, logprobs=1)
    request = SampledRows(params, [3], 1, (), 0, frozenset({1}))
    assert Sampler(V, rejection).choose([request], torch.zeros(1, V))[0].token_ids == [lowest]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(IDS, min_size=1, max_size=5), st.lists(st.tuples(st.lists(IDS, max_size=3), st.integers(0, 3)), max_size=6)
)
def test_counts_kept_over_steps_are_those_counted_anew(prompt: list[int], steps: list[tuple[list[int], int]]) -> None:
    """Whatever was drafted and how much of it was accepted, and after a step back."""
    params = SamplingParams(presence_penalty=0.5, frequency_penalty=0.25, repetition_penalty=1.7)
    counts, tokens = TokenCounts(), list(prompt)
    for drafts, accepted in (*steps, *steps[:1]):
        processors = RowProcessors(params, tokens, len(prompt), (), V, counts)
        for draft in drafts:
            processors.advance(draft)
        kept_rows = np.linspace(-2, 2, V, dtype=np.float32)
        processors.apply(kept_rows)
        anew = np.linspace(-2, 2, V, dtype=np.float32)
        RowProcessors(params, [*tokens, *drafts], len(prompt), (), V).apply(anew)
        assert (kept_rows == anew).all()
        processors.close()
        tokens += [*drafts[:accepted], 3]
    counts.follow(prompt, len(prompt))
    assert counts.generated.sum() == 0


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("penalty", [1e300, 3.5e38, 1e38, 1e-38, 1e-45, 5e-324])
def test_a_repetition_penalty_beyond_float32_makes_no_nan(penalty: float) -> None:
    """A logit of 0 times infinity, or 0 divided by 0, would be NaN, and the largest of a row with one is that one."""
    row = np.array([0.0, -0.0, 2.0, -2.0, 1e-30, np.inf, -np.inf, 5.0], dtype=np.float32)
    history = range(7)
    for params in (GREEDY, SamplingParams(seed=1), SamplingParams(seed=1, top_k=3, top_p=0.9)):
        asked = replace(params, repetition_penalty=penalty, frequency_penalty=0.5, presence_penalty=-0.5)
        (changed,) = run(asked, history, 3, [], [row])
        assert not np.isnan(changed).any()
        assert changed[6] == -np.inf
        assert changed[7] == 5
        rows = SampledRows(asked, list(history), 3, [], 0, frozenset())
        # A graph's infinity is no logit (NOT_FINITE); the largest number is, and a penalty may make one of it
        finite = np.nan_to_num(row, posinf=float(np.finfo(np.float32).max))
        (choice,) = Sampler(8).choose([rows], torch.from_numpy(finite)[None])
        assert choice.token_ids == [5 if penalty < 1 else 7]
