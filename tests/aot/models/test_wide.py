"""Logits are float32 sums: what bfloat16 cannot tell apart is told apart (T2)."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from aot.models import wide
from aot.models.eagle3 import DraftRecurrent
from aot.models.llama import TargetHead, TargetPrefillHead, TargetVerifyHead
from aot.models.wide import Head

H, V = 4, 8
BF16 = torch.bfloat16


def filled(head: TargetHead | DraftRecurrent) -> None:
    """Logits of 24, 24 + 1/32 and 24 + 1/16 for tokens 1 to 3 after a state of twos; bfloat16's step there is 1/8."""
    for weight in head.parameters():
        weight.data.zero_()
    head.norm.weight.data[:] = torch.tensor([8.0, 1.0, 1.0, 1.0])
    head.lm_head.weight.data[1:4, 0] = 3.0
    head.lm_head.weight.data[2, 1], head.lm_head.weight.data[3, 1] = 2.0**-5, 2.0**-4


RIGHT = torch.tensor([0.0, 24.0, 24.03125, 24.0625, 0.0, 0.0, 0.0, 0.0])


def states(rows: int) -> Tensor:
    return torch.full((rows, H), 2.0, dtype=BF16)


def test_the_toy_ties_when_it_is_rounded() -> None:
    assert RIGHT.to(BF16).tolist()[1:4] == [24.0] * 3


@pytest.mark.parametrize("sampled", [False, True])
def test_a_prefill_head_takes_the_best_token(sampled: bool) -> None:
    head = TargetPrefillHead(V, H, 1e-6, BF16, True, sampled=sampled)
    filled(head)
    # temperature 0.001: the best token has a weight of 1, the next one e**-31
    asked = [torch.tensor([0.001]), torch.tensor([0], dtype=torch.int32), torch.ones(1), torch.zeros(1)]
    further = [*asked, torch.tensor([1 - 2.0**-10])] if sampled else []
    token, _, logits = head(states(3), torch.tensor([2], dtype=torch.int32), *further, states(3))
    assert token.tolist() == [3]
    assert logits.dtype is torch.float32
    assert torch.equal(logits[0], RIGHT)


def test_a_verify_head_accepts_the_best_token_alone() -> None:
    head = TargetVerifyHead(V, H, 1e-6, BF16, 2, True)
    filled(head)
    tokens = torch.tensor([5, 3, 5, 1], dtype=torch.int32)
    accepted, _, logits = head(states(4), tokens, torch.tensor([1, 1], dtype=torch.int32), states(4))
    assert accepted.tolist() == [[3, 3], [3, -1]]
    assert torch.equal(logits, RIGHT.expand(4, V))


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_a_draft_proposes_the_best_token(scale: float) -> None:
    draft = DraftRecurrent(V, V, H, 8, 2, 1, 2, 1e-6, 16, False, BF16, mapped=False, logit_scale=scale)
    filled(draft)
    token, _ = draft.propose(states(2))
    assert token.tolist() == [3, 3]
    assert torch.equal(draft.logits_of_output(states(2)), (RIGHT * scale).expand(2, V))


def test_a_head_of_more_columns_than_are_widened_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wide, "CHUNK", 3)
    head = Head(H, V, BF16)
    head.weight.data = torch.randn(V, H).to(BF16)
    rows = torch.randn(5, H).to(BF16)
    right = rows.double() @ head.weight.double().t()
    torch.testing.assert_close(head(rows), right.float(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_the_other_dtypes_give_float32_too(dtype: torch.dtype) -> None:
    head = Head(H, V, dtype)
    head.weight.data = torch.randn(V, H).to(dtype)
    rows = torch.randn(5, H).to(dtype)
    right = rows.double() @ head.weight.double().t()
    torch.testing.assert_close(head(rows), right.float(), rtol=1e-6, atol=1e-6)
