"""A decoder layer with what families add to Llama's, compiled: eager PyTorch's numbers, every constant known."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from aot.backends.aoti.packing import PLAIN, apply
from aot.graphs.modules import fill_random, module
from aot.graphs.units import UnitSpec
from tests.aot.backends.test_compiled_units import LINEARS, compile_unit, layer_inputs, layer_spec

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

# Qwen2's biases, Qwen3's norms and Mistral's window in one layer
FEATURES = {"qkv_bias": True, "o_bias": True, "qk_norm": True, "window": 2}


def weighty(spec: UnitSpec) -> nn.Module:
    """The unit's module with weights as large as a model's, so that attention decides what comes out."""
    unit = module(spec)
    fill_random(unit)
    for name, weight in unit.named_parameters():
        weight.data = weight.data * (20 if "norm" in name else 4)
    return unit


def run_eager(spec: UnitSpec, window: int) -> list[Tensor]:
    """The outputs and both pools in eager PyTorch, with a window of that size."""
    arguments = {key: value for key, value in spec.arguments.items() if key != "window"}
    unit = weighty(dataclasses.replace(spec, arguments={**arguments, "window": window} if window else arguments))
    inputs = layer_inputs(spec)
    with torch.no_grad():
        return [unit(*inputs), *inputs[-2:]]


def run_compiled(spec: UnitSpec, out: Path) -> list[Tensor]:
    weights = dict(weighty(spec).named_parameters())
    record = json.loads((out / "unit.json").read_text())
    constants = {c["name"]: apply(c["layout"], weights[c["weight"]].detach().clone()) for c in record["constants"]}
    runner: Any = torch._C._aoti.AOTIModelContainerRunnerCpu(str(out / "unit.so"), 1)  # type: ignore[attr-defined]
    runner.update_constant_buffer(constants, False, True, True)
    inputs = layer_inputs(spec)
    outputs: list[Tensor] = runner.run(inputs)
    return [*outputs, *inputs[-2:]]


@pytest.mark.parametrize("gemm", ["packed", "library"])
def test_a_layer_with_every_feature_computes_what_eager_pytorch_does(
    gemm: str, tiny_config: Path, tmp_path: Path
) -> None:
    plain = layer_spec(tiny_config, "target_layer.r1x4")
    spec = dataclasses.replace(plain, arguments={**plain.arguments, **FEATURES})
    layouts = compile_unit(spec, tmp_path / "unit", tmp_path / "scratch", gemm)
    assert {name.removesuffix(".weight") for name, _ in module(spec).named_parameters()} == set(layouts)
    packed = {name for name, layout in layouts.items() if layout != PLAIN}
    assert packed == (set(LINEARS) if gemm == "packed" else set())
    eager, without_window = run_eager(spec, FEATURES["window"]), run_eager(spec, 0)
    for ours, right in zip(run_compiled(spec, tmp_path / "unit"), eager, strict=True):
        scale = float(right.abs().max())
        assert scale > 0.1, "a comparison of zeros says nothing"
        assert (ours - right).abs().max() <= 2**-5 * scale
    assert (without_window[0] - eager[0]).abs().max() > 2**-2 * eager[0].abs().max(), "the window changes nothing here"
