"""The template language of the training prompts: choices, slots, forms and the list of kinds."""

from __future__ import annotations

from random import Random

import pytest

from examples.smollm2.prompt_kinds.grammar import (
    Kind,
    Source,
    Writer,
    kinds,
    mend_articles,
    phrases,
    plural,
    with_article,
)

SLOTS: dict[str, Source] = {
    "pet": ("cat", "owl"),
    "owner": ("the owner of {a pet}",),
    "code": lambda rng: "[x for x in {y}]",
    "topic": ("museums",),
}


def written(template: str, seed: int = 0) -> str:
    return Writer(SLOTS, Random(seed)).write(template)


def test_a_choice_takes_one_of_its_parts_and_choices_nest() -> None:
    assert {written("[Hi|Good [day|night]]!", seed) for seed in range(50)} == {"Hi!", "Good day!", "Good night!"}


def test_a_slot_keeps_its_value_within_a_prompt_and_a_digit_asks_for_another() -> None:
    for seed in range(20):
        first, again, other = written("{pet} {pet} {pet2}", seed).split()
        assert (first == again, first == other) == (True, False)


def test_a_slot_within_a_phrase_is_filled_too() -> None:
    assert {written("{cap owner}", seed) for seed in range(20)} == {"The owner of a cat", "The owner of an owl"}


def test_what_a_function_returns_is_not_read_as_a_template() -> None:
    assert written("{code}") == "[x for x in {y}]"


def test_a_range_is_a_number_within_its_limits() -> None:
    assert {written("{7-9}", seed) for seed in range(50)} == {"7", "8", "9"}
    assert written("{a 8-8}-day trip") == "an 8-day trip"


def test_verbs_agree_with_the_value() -> None:
    assert written("{topic} {is topic}, {do topic}, {has topic}") == "museums are, do, have"


@pytest.mark.parametrize(
    ("phrase", "expected"),
    [("cat", "a cat"), ("owl", "an owl"), ("hour", "an hour"), ("university", "a university"), ("unicorn", "a unicorn"),
     ("uninspired poem", "an uninspired poem"), ("used car", "a used car"),
     ("18", "an 18"), ("80", "an 80"), ("13", "a 13")],
)  # fmt: skip
def test_the_article_follows_the_sound(phrase: str, expected: str) -> None:
    assert with_article(phrase) == expected


@pytest.mark.parametrize(
    ("phrase", "expected"),
    [("box", "boxes"), ("city", "cities"), ("toy", "toys"), ("kitchen knife", "kitchen knives"),
     ("policeman", "policemen"),
     ("bookshelf", "bookshelves"), ("pair of headphones", "pairs of headphones"),
     ("moose", "moose"), ("human", "humans")],
)  # fmt: skip
def test_plurals(phrase: str, expected: str) -> None:
    assert plural(phrase) == expected


def test_articles_are_mended_and_other_words_left_alone() -> None:
    assert mend_articles("Write a adventure story. A owl and a cat.") == "Write an adventure story. An owl and a cat."
    assert mend_articles("Plan A and plan B; a + b") == "Plan A and plan B; a + b"


def test_kinds_are_read_from_lines_and_indented_lines_continue() -> None:
    assert kinds("= one tail=prose follow=ask\nWhat is\n    {pet}?\\nWhy?\n= two\nHello") == (
        Kind("one", ("What is {pet}?\nWhy?",), "prose", "ask"),
        Kind("two", ("Hello",)),
    )


@pytest.mark.parametrize("text", ["Hello", "= one\nA\n= one\nB", "= one\n= two\nA", "= one tial=prose\nA"])
def test_a_slip_in_the_list_of_kinds_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"kind|heading"):
        kinds(text)


def test_brackets_without_a_partner_and_unknown_slots_are_errors() -> None:
    with pytest.raises(ValueError, match="unbalanced"):
        written("[Hi|there")
    with pytest.raises(KeyError, match="dog"):
        written("{dog}")


def test_phrases_are_split_at_semicolons_over_lines() -> None:
    assert phrases("a; b c;\nd\n  e;") == ("a", "b c", "d e")
