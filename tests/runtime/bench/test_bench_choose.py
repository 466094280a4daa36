"""Which numbers of draft tokens and which prompts a benchmark takes."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.bench.choose import parse_counts, sample
from runtime.bundle.errors import UsageError
from runtime.prompts import Prompt


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("3", (3,)),
        ("1-6", (1, 2, 3, 4, 5, 6)),
        ("1,3", (1, 3)),
        ("3,1", (1, 3)),
        ("1-3,2,6", (1, 2, 3, 6)),
        ("2-2", (2,)),
        (" 1 , 3 ", (1, 3)),
    ],
)
def test_a_list_names_numbers_ascending_and_once(text: str, counts: tuple[int, ...]) -> None:
    assert parse_counts(text) == counts


@pytest.mark.parametrize("text", ["", "0", "3-1", "1-", "-3", "a", "1,,3", "1.5", "1-100", "²", "1-2-3"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"is not a list of whole numbers: expected .*\"1-6\"") as caught:
        parse_counts(text)
    assert caught.value.found == repr(text)


@given(st.text(alphabet="0123456789-, ", max_size=12))
def test_a_list_is_read_or_refused(text: str) -> None:
    try:
        counts = parse_counts(text)
    except UsageError:
        return
    assert counts == tuple(sorted(set(counts)))
    assert 1 <= counts[0] <= counts[-1] <= 99


def prompts_of(kinds: str) -> list[Prompt]:
    """A prompt for each letter, of the kind that it names; "." for none."""
    return [Prompt(f"line {n}", "text", kind=None if kind == "." else kind) for n, kind in enumerate(kinds, start=1)]


def test_a_sample_takes_the_first_of_each_kind_in_the_order_of_the_file() -> None:
    chosen = sample(prompts_of("aaabbbccc"), 6)
    assert [prompt.where for prompt in chosen] == ["line 1", "line 2", "line 4", "line 5", "line 7", "line 8"]


def test_a_kind_that_has_run_out_leaves_its_place_to_the_others() -> None:
    assert Counter(prompt.kind for prompt in sample(prompts_of("aaaaab"), 4)) == {"a": 3, "b": 1}


def test_without_kinds_a_sample_is_the_beginning() -> None:
    assert [prompt.where for prompt in sample(prompts_of("....."), 2)] == ["line 1", "line 2"]


@given(st.text(alphabet="abc.", min_size=1, max_size=12), st.integers(1, 14))
def test_a_sample_is_even_and_grows(kinds: str, limit: int) -> None:
    """Kinds differ by one prompt at most unless one has no more, and a larger sample holds the smaller one."""
    prompts = prompts_of(kinds)
    chosen = sample(prompts, limit)
    assert len(chosen) == min(limit, len(prompts))
    had, have = Counter(prompt.kind for prompt in prompts), Counter(prompt.kind for prompt in chosen)
    most = max(have.values())
    assert all(have[kind] >= min(had[kind], most - 1) for kind in had)
    assert set(chosen) <= set(sample(prompts, limit + 1))


def test_no_limit_takes_all() -> None:
    prompts = prompts_of("ab.")
    assert sample(prompts, None) == tuple(prompts)
