"""The prompts that the SmolLM2 demo is measured on: enough of each kind, none of them twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from runtime.prompts import Prompt, read_prompts

FILE = Path(__file__).parents[2] / "examples" / "smollm2" / "eval.jsonl"
KINDS = {"writing", "roleplay", "reasoning", "math", "coding", "extraction", "explanation", "rewriting"}


@pytest.fixture(scope="module")
def prompts() -> list[Prompt]:
    return read_prompts(FILE)


def test_there_are_at_least_eighty_prompts(prompts: list[Prompt]) -> None:
    assert len(prompts) >= 80


def test_each_of_the_eight_kinds_has_at_least_ten(prompts: list[Prompt]) -> None:
    counts = Counter(prompt.kind for prompt in prompts)
    assert counts.keys() == KINDS
    assert min(counts.values()) >= 10


def test_an_id_is_its_kind_and_number_and_no_other_prompt_has_it(prompts: list[Prompt]) -> None:
    ids = [prompt.id for prompt in prompts]
    assert len(set(ids)) == len(ids)
    for prompt in prompts:
        kind, _, number = str(prompt.id).rpartition("-")
        assert (kind, number.isdigit()) == (prompt.kind, True)


def test_no_prompt_is_there_twice_in_other_case_or_spacing(prompts: list[Prompt]) -> None:
    texts = [" ".join(str(prompt.content).casefold().split()) for prompt in prompts]
    assert [text for text, times in Counter(texts).items() if times > 1] == []


def test_every_prompt_is_a_text_of_at_most_120_words(prompts: list[Prompt]) -> None:
    for prompt in prompts:
        assert isinstance(prompt.content, str)
        assert 3 <= len(prompt.content.split()) <= 120, prompt.id
