"""A graph in eager PyTorch: the same calls and weights, the modules instead of compiled units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from aot.build.scopes import Scope
from aot.graphs.modules import module
from aot.graphs.units import UnitSpec
from runtime.backends import Run
from runtime.bundle.manifest import Unit


class EagerBackend:
    """Implements `runtime.backends.Backend` with the modules of `aot.models`."""

    def __init__(self, specs: Mapping[str, UnitSpec], weights: Mapping[str, Scope]) -> None:
        self._specs, self._weights = specs, weights
        self._opened: dict[tuple[str, str], nn.Module] = {}

    def open(self, unit: Unit, scope: str) -> Run:
        eager = self.module(unit.name, scope)

        def run(inputs: Sequence[Tensor]) -> list[Tensor]:
            with torch.no_grad():
                made = eager(*inputs)
            return list(made) if isinstance(made, tuple) else [made]

        return run

    def module(self, unit: str, scope: str) -> nn.Module:
        """The module behind a unit with the weights of `scope`, shared and not copied."""
        key = (unit, scope)
        if key not in self._opened:
            with torch.device("meta"):
                eager = module(self._specs[unit])
            own = {name: self._weights[scope][name] for name, _ in eager.named_parameters()}
            eager.load_state_dict(own, strict=True, assign=True)
            self._opened[key] = eager.requires_grad_(False)
        return self._opened[key]
