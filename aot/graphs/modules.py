"""From a unit's description to a module, example inputs and the dynamic dimensions that torch.export wants."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from aot.graphs.units import CONTEXT, POOL, RANK, UnitSpec
from aot.models.eagle3 import DraftInitial, DraftRecurrent, FinalFeatures
from aot.models.fused import DraftFused, DraftFusedPrefill
from aot.models.llama import TargetEmbed, TargetLayer, TargetPrefillHead, TargetVerifyHead
from aot.models.parallel import rank_first

MODULES: Mapping[str, type[nn.Module]] = {
    "target_embed": TargetEmbed,
    "target_layer": TargetLayer,
    "target_prefill_head": TargetPrefillHead,
    "target_verify_head": TargetVerifyHead,
    "target_final_features": FinalFeatures,
    "draft_initial": DraftInitial,
    "draft_recurrent": DraftRecurrent,
    "draft_fused_prefill": DraftFusedPrefill,
    "draft_fused": DraftFused,
}

# Sizes that stand for the dynamic dimensions in an example; any two distinct numbers above 1 would do.
EXAMPLE_DIMS = {CONTEXT: 6, POOL: 11}


def dtype_of(name: str) -> torch.dtype:
    """The torch dtype called `name` ("bfloat16")."""
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def module(spec: UnitSpec) -> nn.Module:
    """The unit's module in eval mode, its weights not filled. It takes the unit's inputs in their order."""
    kind = MODULES[spec.kind]
    if any(value.name == RANK for value in spec.inputs):
        kind = rank_first(kind)
    return kind(**spec.arguments, dtype=dtype_of(spec.dtype)).eval()


def fill_random(unit: nn.Module, seed: int = 0) -> None:
    """Fill all weights with distinct seeded random numbers, so that a constant can be told by its bits."""
    generator = torch.Generator().manual_seed(seed)
    for weight in unit.parameters():
        if weight.dtype.is_floating_point:
            weight.data = (torch.randn(weight.shape, generator=generator) * 0.05).to(weight.dtype)
        else:
            weight.data = torch.randint(0, 1 << 20, weight.shape, generator=generator).to(weight.dtype)


def example_inputs(spec: UnitSpec) -> tuple[Tensor, ...]:
    """Inputs of the right shapes for tracing; their values do not matter."""
    made = []
    for value in spec.inputs:
        shape = [EXAMPLE_DIMS[dim] if isinstance(dim, str) else dim for dim in value.shape]
        made.append(torch.zeros(shape, dtype=dtype_of(value.dtype)))
    return tuple(made)


def dynamic_shapes(spec: UnitSpec) -> tuple[dict[int, object], ...]:
    """For each input, its dynamic dimensions. Their least size is 2: export treats 0 and 1 as special."""
    dims = {name: torch.export.Dim(name, min=2) for name in EXAMPLE_DIMS}
    return tuple(
        {axis: dims[dim] for axis, dim in enumerate(value.shape) if isinstance(dim, str)} for value in spec.inputs
    )


def export(spec: UnitSpec, unit: nn.Module) -> torch.export.ExportedProgram:
    """`unit` traced on the example inputs, with the context and the pools of any size."""
    inputs, shapes = example_inputs(spec), dynamic_shapes(spec)
    named = inspect.signature(unit.forward).bind(*inputs).arguments
    # Export wants the dynamic dimensions of `*further` inputs nested as the call binds them
    positional = sum(not isinstance(value, tuple) for value in named.values())
    nested = shapes if positional == len(shapes) else (*shapes[:positional], shapes[positional:])
    return torch.export.export(unit, inputs, dynamic_shapes=nested if any(shapes) else None, strict=False)
