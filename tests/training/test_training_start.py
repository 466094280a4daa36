"""Where training starts, how fast it moves, and the process it runs in."""

from __future__ import annotations

import os
import sys

import pytest
import torch

from tests.training.toy import Toy
from training import process
from training.initial import feature_scale, start_from_target
from training.optimizer import Optimizer, learning_rate
from training.plan import Plan
from training.process import LIMITS, prepare_process


def test_the_draft_starts_as_the_targets_last_layer(toy: Toy) -> None:
    toy.draft.set_feature_scale(torch.ones(96))
    start_from_target(toy.draft, toy.config, toy.weights, toy.draft_ids, seed=0)
    mine, last = toy.draft.export(), "model.layers.3."
    for name in ("post_attention_layernorm", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"):
        assert torch.equal(mine[f"midlayer.{name}.weight"], toy.weights[f"{last}{name}.weight"]), name
    assert torch.equal(mine["midlayer.hidden_norm.weight"], toy.weights[f"{last}input_layernorm.weight"])
    assert torch.equal(mine["norm.weight"], toy.weights["model.norm.weight"])
    assert torch.equal(mine["lm_head.weight"], toy.draft_head)
    for name in "qkv":
        weight = mine[f"midlayer.self_attn.{name}_proj.weight"]
        # The embedding half comes first, and begins small
        assert torch.equal(weight[:, 32:], toy.weights[f"{last}self_attn.{name}_proj.weight"])
        assert 0 < float(weight[:, :32].abs().max()) < 0.2
    assert torch.equal(mine["fc.weight"][:, 64:], torch.eye(32))


def test_scaled_features_have_about_unit_spread_and_change_nothing_that_is_computed(toy: Toy) -> None:
    sequences = toy.sequences()
    features = torch.cat([sequence.features[1:] for sequence in sequences])
    with torch.no_grad():
        before = toy.draft.fc(features * toy.draft.feature_scale)
        scale = feature_scale(sequences)
        toy.draft.set_feature_scale(scale)
        torch.testing.assert_close(toy.draft.fc(features * scale), before, rtol=1e-4, atol=1e-4)
    spread = (features * scale).std(0, correction=0)
    assert bool(((spread > 0.7) & (spread < 1.42)).all())
    # Powers of two: no rounding in bf16
    assert torch.equal(scale, scale.to(torch.bfloat16).float())
    assert torch.equal(scale.log2(), scale.log2().round())


def test_the_rate_rises_stays_and_falls_to_nothing() -> None:
    plan = Plan(steps=100, warmup=0.1, cooldown=0.4)
    rates = [learning_rate(step, plan) for step in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[9:61] == [1.0] * 52
    assert rates[80] == pytest.approx(0.5)
    assert rates[99] == pytest.approx(1 / 40)
    assert learning_rate(0, Plan(steps=1)) == 1.0


@pytest.mark.parametrize("matrix_rate", [0.0, 1e-2])
def test_a_step_moves_every_parameter_and_clears_its_gradient(toy: Toy, matrix_rate: float) -> None:
    before = [parameter.detach().clone() for parameter in toy.draft.parameters()]
    for parameter in toy.draft.parameters():
        parameter.grad = torch.randn_like(parameter) * 100
    optimizer = Optimizer(toy.draft, 1e-2, matrix_rate)
    assert optimizer.step() > 1000
    for old, (name, new) in zip(before, toy.draft.named_parameters(), strict=True):
        assert new.grad is None
        # AdamW's first step is its rate in every entry, whatever the gradient's size
        assert 0 < float((new.detach() - old).abs().max()) < 0.1, name


def test_the_process_is_started_anew_once_with_the_allocators_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    for name in LIMITS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(process.sys, "platform", "linux")
    monkeypatch.setattr(sys, "argv", ["fit.py", "--steps", "3"])
    monkeypatch.setattr(os, "execv", lambda program, arguments: started.append([program, *arguments]))
    monkeypatch.setattr(os, "environ", dict(os.environ))
    prepare_process("training.fit")
    assert started == [[sys.executable, sys.executable, "-m", "training.fit", "--steps", "3"]]
    assert {name: os.environ[name] for name in LIMITS} == LIMITS
    prepare_process("training.fit")
    assert len(started) == 1
