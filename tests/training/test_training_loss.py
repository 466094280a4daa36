"""The chunked loss is the plain one, in value and in gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from training import loss as module
from training.loss import SoftCrossEntropy, target_shares


def plain(states: Tensor, head: Tensor, shares: Tensor, weights: Tensor) -> Tensor:
    return (-(shares * (states @ head.T).log_softmax(-1)).sum(-1) * weights).sum()


def test_value_gradients_and_guesses_are_those_of_autograd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROWS_AT_ONCE", 3)
    torch.manual_seed(0)
    states, head = torch.randn(8, 5, requires_grad=True), torch.randn(7, 5, requires_grad=True)
    shares, weights = torch.randn(8, 7).softmax(-1), torch.rand(8)
    expected = plain(states, head, shares, weights)
    wanted = torch.autograd.grad(expected, (states, head))
    total, guesses = SoftCrossEntropy.apply(states, head, shares, weights, torch.float32)
    found = torch.autograd.grad(2.0 * total, (states, head))
    torch.testing.assert_close(total, expected)
    assert guesses.tolist() == (states @ head.T).argmax(-1).tolist()
    for gradient, reference in zip(found, wanted, strict=True):
        torch.testing.assert_close(gradient, 2.0 * reference)


def test_target_shares_are_the_softmax_over_the_draft_vocabulary() -> None:
    finals, head = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    shares = target_shares(finals, head)
    assert shares[0].tolist() == pytest.approx([0.7310586, 0.2689414])
    assert shares[1].tolist() == pytest.approx([0.1192029, 0.8807971])
