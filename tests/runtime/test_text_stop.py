"""Stop strings: the text and the stop string are a function of the ids alone, and nothing is shown too early."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.text import StopStrings, Tokenizer
from tests.runtime.test_text_stream import BYTE_FALLBACK, BYTE_LEVEL, KINDS

REPLACEMENT = "\ufffd"
# Strings that texts of these letters are likely to hold, overlap and begin
STOPS = st.lists(
    st.text("aeht 你😀\n", min_size=1, max_size=4) | st.sampled_from(["the", "the t", "he", "aa", "aab", "\n\n"]),
    min_size=1,
    max_size=3,
).map(tuple)


def ids_of(tokenizer: Tokenizer) -> st.SearchStrategy[list[int]]:
    size = tokenizer._backend.get_vocab_size()
    newline = tokenizer.encode("\n", False)
    of_text = st.text("aeht 你😀\n", max_size=6).map(lambda text: tokenizer.encode(text, False))
    pieces = st.one_of(of_text, of_text, st.lists(st.integers(0, size - 1), max_size=3), st.just(newline))
    return st.lists(pieces, max_size=12).map(lambda lists: [token for ids in lists for token in ids])


def whole(tokenizer: Tokenizer, ids: list[int]) -> str:
    """The text of `ids`, without a last character or run of bytes that more ids could still complete."""
    end = len(ids)
    special, bytes_ = tokenizer.special_token_ids, tokenizer.byte_token_ids
    while end and ids[end - 1] in bytes_ | special:
        end -= 1
    run = tokenizer.decode([token for token in ids[end:] if token in bytes_])
    if bytes_ and REPLACEMENT in run:
        return tokenizer.decode(ids[:end]).rstrip(REPLACEMENT)
    return tokenizer.decode(ids).removesuffix(REPLACEMENT)


def reference(
    tokenizer: Tokenizer, ids: list[int], stop: tuple[str, ...], include: bool, skip: int
) -> tuple[str, str | None, int]:
    """Text, stop string and how many ids it takes: by looking through the whole text after every id."""
    exempt = len(whole(tokenizer, ids[:skip]))
    for count in range(skip + 1, len(ids) + 1):
        text = whole(tokenizer, ids[:count])
        for end in range(exempt + 1, len(text) + 1):
            complete = [each for each in stop if text[:end].endswith(each)]
            if complete:
                longest = max(complete, key=len)
                return (text[:end] if include else text[: end - len(longest)]), longest, count
    return tokenizer.decode(ids), None, len(ids)


def cut(data: st.DataObject, ids: list[int]) -> list[list[int]]:
    chunks = []
    while ids:
        size = data.draw(st.integers(0, min(5, len(ids))))
        chunks.append(ids[:size])
        ids = ids[size:] if size else ids
        if not size:
            chunks.append(ids[:1])
            ids = ids[1:]
    return chunks


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=200)
@given(data=st.data(), stop=STOPS, include=st.booleans(), skip=st.integers(0, 5))
def test_text_and_stop_string_are_those_of_the_whole_text(
    kind: str, data: st.DataObject, stop: tuple[str, ...], include: bool, skip: int
) -> None:
    tokenizer = KINDS[kind]
    ids = data.draw(ids_of(tokenizer))
    text, found, count = reference(tokenizer, ids, stop, include, skip)
    one_by_one = StopStrings(tokenizer, stop, include, skip)
    shown = ""
    for number, token in enumerate(ids, start=1):
        delta, reported = one_by_one.push([token])
        shown += delta
        assert text.startswith(shown)
        assert reported == (found if number >= count else None)
    assert (shown + one_by_one.flush(), one_by_one.found) == (text, found)
    at_once = StopStrings(tokenizer, stop, include, skip)
    pieces = [at_once.push(chunk)[0] for chunk in cut(data, ids)]
    assert ("".join(pieces) + at_once.flush(), at_once.found) == (text, found)


@settings(deadline=None, max_examples=100)
@given(text=st.text("aeht 你😀\n", max_size=20), stop=STOPS)
def test_all_is_shown_but_what_may_begin_a_stop_string_or_is_half_a_character(text: str, stop: tuple[str, ...]) -> None:
    strings, shown = StopStrings(BYTE_LEVEL, stop), ""
    ids = BYTE_LEVEL.encode(text, False)
    for count, token in enumerate(ids, start=1):
        delta, found = strings.push([token])
        shown += delta
        if found is not None:
            return
        settled = whole(BYTE_LEVEL, ids[:count])
        begins = [n for n in range(len(settled)) if any(each.startswith(settled[n:]) for each in stop)]
        assert shown == settled[: min(begins, default=len(settled))]


def test_a_stop_string_over_several_tokens_is_never_shown_in_part() -> None:
    strings = StopStrings(BYTE_LEVEL, ("###",))
    ids = [BYTE_LEVEL.encode(letter, False)[0] for letter in "a#b##c###d"]
    assert [strings.push([token]) for token in ids] == [
        ("a", None),
        ("", None),
        ("#b", None),
        ("", None),
        ("", None),
        ("##c", None),
        ("", None),
        ("", None),
        ("", "###"),
        ("", "###"),
    ]
    assert strings.flush() == ""


def test_what_was_held_back_comes_when_the_request_ends_otherwise() -> None:
    strings = StopStrings(BYTE_LEVEL, ("###",))
    assert strings.push(BYTE_LEVEL.encode("a##", False)) == ("a", None)
    assert strings.flush() == "##"
    assert strings.flush() == ""


@pytest.mark.parametrize(
    ("stop", "text", "found"),
    [
        (("bcd", "c"), "ab", "c"),  # the first to be complete
        (("abc", "bc", "c"), "", "abc"),  # complete at once: the longest
        (("abcd", "d"), "", "abcd"),
        (("x", "abx"), "abcd", None),
    ],
)
def test_of_several_stop_strings_the_first_complete_one_wins_however_it_is_cut(
    stop: tuple[str, ...], text: str, found: str | None
) -> None:
    ids = [BYTE_LEVEL.encode(letter, False)[0] for letter in "abcd"]
    for chunks in ([ids], [[token] for token in ids], [ids[:1], ids[1:]], [ids[:3], ids[3:]]):
        strings = StopStrings(BYTE_LEVEL, stop)
        shown = "".join(strings.push(chunk)[0] for chunk in chunks)
        assert (shown + strings.flush(), strings.found) == (text, found)


def test_a_newline_that_is_a_byte_token_ends_the_text_at_once() -> None:
    word, newline = BYTE_FALLBACK._backend.token_to_id("▁the"), BYTE_FALLBACK._backend.token_to_id("<0x0A>")
    strings = StopStrings(BYTE_FALLBACK, ("\n",))
    assert [strings.push([word]), strings.push([newline])] == [("the", None), ("", "\n")]


def test_a_stop_string_within_the_first_min_tokens_does_not_count_and_one_that_ends_later_does() -> None:
    ids = [BYTE_LEVEL.encode(letter, False)[0] for letter in "ab-ab-"]
    for skip, shown in ((0, ""), (1, ""), (2, "ab-"), (4, "ab-"), (5, "ab-ab-")):
        strings = StopStrings(BYTE_LEVEL, ("ab",), skip=skip)
        assert strings.push(ids)[0] + strings.flush() == shown


def test_a_stop_string_that_overlaps_one_that_did_not_count_is_found() -> None:
    strings = StopStrings(BYTE_LEVEL, ("aa",), skip=2)
    letter = BYTE_LEVEL.encode("a", False)
    assert [strings.push(letter) for _ in range(3)] == [("", None), ("a", None), ("", "aa")]


def test_without_stop_strings_it_is_the_stream_of_text() -> None:
    ids = BYTE_LEVEL.encode("the cat 😀", False)
    strings = StopStrings(BYTE_LEVEL)
    assert (strings.push(ids), strings.flush()) == (("the cat 😀", None), "")


def test_a_long_stop_string_of_one_letter_costs_no_more_than_a_short_one() -> None:
    letter = BYTE_LEVEL.encode("a", False)
    strings = StopStrings(BYTE_LEVEL, ("a" * 20_000 + "b",))
    for _ in range(20_000):
        assert strings.push(letter) == ("", None)
    assert strings.push(BYTE_LEVEL.encode("b", False)) == ("", "a" * 20_000 + "b")
