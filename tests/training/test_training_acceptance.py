"""Walk measured on stored answers is what serving would count."""

from __future__ import annotations

import pytest
import torch

from aot.reference import eagle3_greedy_chain
from tests.training.toy import PROMPTS, Toy
from training.acceptance import Walk, measure


def test_a_walk_by_hand() -> None:
    found = Walk(2)
    # Five answer tokens: chains at places 0..3; the walk goes 0 (two right) -> 3 (one right of one) -> end
    hits = torch.tensor([[1, 1], [0, 0], [0, 1], [1, 1]], dtype=torch.bool)
    found.observe(hits, 5)
    assert (found.steps, found.accepted) == (2, [2, 1])
    assert found.mean_acceptance_length == 2.5
    assert found.rates == [1.0, 0.5]
    # Over all places: guess 0 right at places 0 and 3 of four; guess 1 judged where guess 0 was right, of places 0..2
    assert (found.correct, found.judged) == ([2, 1], [4, 1])


def test_nothing_right_is_one_token_a_step() -> None:
    found = Walk(3)
    found.observe(torch.zeros(4, 3, dtype=torch.bool), 5)
    assert (found.steps, found.accepted, found.mean_acceptance_length) == (4, [0, 0, 0], 1.0)


@pytest.mark.parametrize("learned", [False, True])
def test_it_counts_what_the_reference_loop_counts(toy: Toy, learned: bool) -> None:
    """A step of serving at every place that the walk visits, with the reference's chain."""
    sequences = toy.sequences(tokens=12)
    if learned:
        # A head that knows the answers' ids, so that some chains are accepted
        with torch.no_grad():
            used = torch.cat([sequence.choices for sequence in sequences]).unique()
            toy.draft_ids[:] = torch.cat([used, torch.arange(48)]).unique(sorted=False)[:16].sort().values
    draft_weights = toy.draft.export()
    draft_weights["d2t"] = toy.draft_ids - torch.arange(16)
    steps, accepted = 0, [0, 0, 0]
    for prompt, sequence in zip(PROMPTS, sequences, strict=True):
        text = sequence.tokens.tolist()
        place = len(prompt) + 1
        while place < len(text):
            chain = eagle3_greedy_chain(
                toy.weights, toy.config, draft_weights, toy.draft_config, text[:place], num_speculative_tokens=3
            )
            taken = 0
            while taken < 3 and place + taken < len(text) and chain[taken] == text[place + taken]:
                accepted[taken] += 1
                taken += 1
            steps, place = steps + 1, place + taken + 1
    found = measure(toy.draft, toy.draft_ids, sequences, 3, torch.float32, at_once=2)
    assert (found.steps, found.accepted) == (steps, accepted)


def test_sampled_answers_are_passed_over(toy: Toy) -> None:
    assert measure(toy.draft, toy.draft_ids, toy.sequences(temperature=1.0), 3, torch.float32).steps == 0
