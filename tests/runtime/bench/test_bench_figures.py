"""Figures worked out on paper, and what must hold between them for any run."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.bench.figures import Acceptance, Difference, Figures, Speed
from runtime.request import SpecDecodeStats
from tests.runtime.bench.records import plain_and_speculative, run, step


def test_acceptance_of_five_steps() -> None:
    """Drafts and accepted: 3 3, 3 0, 3 2, 2 1, and one step without a draft, which does not count.

    Of four steps three accepted position 1, two position 2 and one position 3. Three came to position 2 with a draft
    there, of which two accepted it; two came to position 3, of which one did. The step of two drafts never had a third.
    """
    steps = [step(3, 3), step(3, 0), step(3, 2), step(2, 1), step(0, 0)]
    acceptance = Acceptance.of(steps)
    assert acceptance == Acceptance(4, 11, 6, (3 / 4, 2 / 4, 1 / 4), (3 / 4, 2 / 3, 1 / 2))
    assert acceptance.mean_acceptance_length == 2.5
    assert acceptance.to_json() == {
        "num_drafts": 4,
        "num_draft_tokens": 11,
        "num_accepted_tokens": 6,
        "mean_acceptance_length": 2.5,
        "unconditional_per_pos": [0.75, 0.5, 0.25],
        "conditional_per_pos": [0.75, 0.6667, 0.5],
    }


def test_a_position_that_no_step_came_to_has_no_conditional_acceptance() -> None:
    assert Acceptance.of([step(3, 0), step(3, 1)]) == Acceptance(2, 6, 1, (1 / 2, 0, 0), (1 / 2, 0, None))


def test_without_drafts_a_step_commits_one_token() -> None:
    acceptance = Acceptance.of([step(0, 0)] * 4)
    assert acceptance == Acceptance(0, 0, 0, (), ())
    assert acceptance.mean_acceptance_length == 1


counted_steps = st.integers(0, 6).flatmap(lambda drafts: st.tuples(st.just(drafts), st.integers(0, drafts)))


@given(st.lists(counted_steps, max_size=30))
def test_the_length_is_one_more_than_the_sum_of_unconditional_acceptance(pairs: list[tuple[int, int]]) -> None:
    acceptance, stats = Acceptance.of(step(*pair) for pair in pairs), SpecDecodeStats()
    for pair in pairs:
        stats.observe(*pair)
    assert acceptance.mean_acceptance_length == pytest.approx(1 + sum(acceptance.unconditional))
    assert acceptance.mean_acceptance_length == stats.mean_acceptance_length
    assert [round(share * stats.num_drafts) for share in acceptance.unconditional] == stats.num_accepted_tokens_per_pos
    assert list(acceptance.unconditional) == sorted(acceptance.unconditional, reverse=True)


@given(st.integers(1, 6).flatmap(lambda k: st.lists(st.integers(0, k).map(lambda n: (k, n)), min_size=1)))
def test_where_every_step_has_k_drafts_conditional_acceptance_multiplies_up(pairs: list[tuple[int, int]]) -> None:
    acceptance = Acceptance.of(step(*pair) for pair in pairs)
    for position, share in enumerate(acceptance.unconditional, start=1):
        so_far = acceptance.conditional[:position]
        assert share == pytest.approx(math.prod(0.0 if value is None else value for value in so_far))


def test_speed_from_sums() -> None:
    """10 + 4 tokens after the first in 1 + 2 s; 16 tokens in 1.5 + 2.5 s."""
    runs = plain_and_speculative()
    speed = Speed.of([runs[0], runs[2]])
    assert speed.completion_tokens == 16
    assert speed.decode_tokens_per_s == pytest.approx(14 / 3)
    assert speed.end_to_end_tokens_per_s == pytest.approx(16 / 4)


def test_milliseconds_are_medians_over_steps() -> None:
    """Verify 8, 9, 8, 8, 8; draft 1, 1, 1, 3 and a last step after which none ran; host 0.5."""
    speed = Speed.of(plain_and_speculative()[1:2])
    assert (speed.verify_ms, speed.draft_ms, speed.host_ms) == (8.0, 1.0, 0.5)
    plain = Speed.of(plain_and_speculative()[:1])
    assert (plain.verify_ms, plain.draft_ms, plain.host_ms) == (7.0, None, 0.25)


def test_speculation_beside_plain_decoding() -> None:
    """3 s become 2.5 s, prompt by prompt 2x and 1x; with prefill 4 s become 3.5 s."""
    runs = plain_and_speculative()
    figures = Figures.of([runs[0], runs[2]], [runs[1], runs[3]])
    assert figures.decode_speedup == pytest.approx(3 / 2.5)
    assert figures.decode_median_speedup == pytest.approx(1.5)
    assert figures.end_to_end_speedup == pytest.approx(4 / 3.5)
    assert (figures.prompts, figures.identical, figures.differences) == (2, 2, ())
    assert figures.acceptance.mean_acceptance_length == 2.5


def test_a_text_that_leaves_plain_decoding_is_found_where_it_does() -> None:
    plain = run(4, 0, [7, 8, 9, 10], after_first=1, seconds=1)
    other = run(4, 2, [7, 8, 5, 10], after_first=1, seconds=1)
    shorter = run(4, 2, [7, 8, 9], after_first=1, seconds=1)
    stopped = replace(plain, output=replace(plain.output, finish_reason="stop"))
    assert Figures.of([plain], [other]).differences == (Difference(4, 2, 2),)
    assert Figures.of([plain], [shorter]).differences == (Difference(4, 2, 3),)
    assert Figures.of([plain], [stopped]).differences == (Difference(4, 0, 4),)
    assert Figures.of([plain], [other]).identical == 0


def test_answers_of_one_token_have_no_decode_rate() -> None:
    single = run(0, 0, [7], after_first=0.0, seconds=0.5)
    figures = Figures.of([single], [single])
    assert figures.plain.decode_tokens_per_s is None
    assert (figures.decode_speedup, figures.decode_median_speedup) == (None, None)
    assert figures.plain.end_to_end_tokens_per_s == 2.0
    assert figures.plain.verify_ms is None
    assert figures.to_json()["speedup"] == {"decode": None, "decode_median": None, "end_to_end": 1.0}
