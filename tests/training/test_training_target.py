"""The batched loop's answers, states and choices are the reference's, however requests lie beside one another."""

from __future__ import annotations

import pytest
import torch

from aot.reference import target_forward, target_greedy
from tests.training.toy import AUX, PROMPTS, Toy


def test_greedy_answers_are_those_of_the_reference(toy: Toy) -> None:
    for prompt, answer in zip(PROMPTS, toy.answers(), strict=True):
        assert answer.tokens.tolist() == [*prompt, *target_greedy(toy.weights, toy.config, prompt, 9)]
        assert answer.choices.tolist() == answer.tokens[len(prompt) :].tolist()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_states_are_those_of_the_reference_over_the_same_tokens(toy: Toy, temperature: float) -> None:
    for prompt, answer in zip(PROMPTS, toy.answers(temperature), strict=True):
        logits, features = target_forward(toy.weights, toy.config, answer.tokens.tolist()[:-1], AUX)
        torch.testing.assert_close(answer.features, features, rtol=1e-4, atol=1e-4)
        from_finals = answer.finals @ toy.weights["lm_head.weight"].T
        torch.testing.assert_close(from_finals, logits[len(prompt) :], rtol=1e-4, atol=1e-4)
        assert answer.choices.tolist() == logits[len(prompt) - 1 :].argmax(-1).tolist()


def test_sampled_answers_follow_the_softmax(toy: Toy) -> None:
    generator = torch.Generator().manual_seed(1)
    answers = toy.target.answer([PROMPTS[0]] * 4000, [0.8] * 4000, 1, (), generator)
    logits, _ = target_forward(toy.weights, toy.config, PROMPTS[0])
    expected = (logits[-1] / 0.8).softmax(-1)
    drawn = torch.bincount(torch.stack([answer.tokens[-1] for answer in answers]).long(), minlength=48) / 4000
    # Four standard deviations of a share of 4,000 draws
    assert bool(((drawn - expected).abs() <= 4 * (expected * (1 - expected) / 4000).sqrt() + 1e-3).all())


def test_an_answer_ends_at_an_end_of_sequence_and_its_neighbours_go_on(toy: Toy) -> None:
    plain = toy.answers()
    stop = int(plain[0].tokens[len(PROMPTS[0]) + 3])
    for prompt, whole, answer in zip(PROMPTS, plain, toy.answers(eos=(stop,)), strict=True):
        text = whole.tokens[len(prompt) :].tolist()
        expected = text[: text.index(stop) + 1] if stop in text else text
        assert answer.tokens[len(prompt) :].tolist() == expected
        assert len(answer.features) == len(prompt) + len(expected) - 1
        assert len(answer.finals) == len(expected) - 1
        torch.testing.assert_close(answer.features, whole.features[: len(answer.features)], rtol=1e-5, atol=1e-5)


def test_answers_that_do_not_fit_are_refused(toy: Toy) -> None:
    with pytest.raises(ValueError, match="exceed 32"):
        toy.answers(tokens=26)
