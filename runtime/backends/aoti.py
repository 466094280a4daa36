"""Compiled AOTInductor modules, opened in place: nothing is unpacked, nothing is written, no compiler is imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from runtime.backends import Run
from runtime.bundle.errors import HostError, IntegrityError
from runtime.bundle.manifest import KVCache, Unit
from runtime.bundle.open import Bundle
from runtime.pools import allocate_pools
from runtime.weights import Weights


class AotiBackend:
    """Opens one module instance per (unit, scope); instances of a unit share its code."""

    def __init__(self, bundle: Bundle, weights: Weights) -> None:
        self._bundle, self._weights = bundle, weights
        self._opened: dict[tuple[str, str], Run] = {}
        self._alive: list[dict[str, Tensor]] = []
        # AMX tiles stay off for a process that has not asked the kernel for them: the first tile instruction would end
        # it with an illegal instruction. Importing Inductor asks; this runtime does not import it.
        if bundle.manifest.requires.amx and not torch.cpu._init_amx():
            raise HostError(
                "The kernel does not let this process use AMX tiles",
                expected="AMX tile data permission",
                found="a refusal",
                repair="run on a kernel of 5.16 or later outside a restricting sandbox, or rebuild with gemm: library",
            )

    def open(self, unit: Unit, scope: str) -> Run:
        key = (unit.name, scope)
        if key not in self._opened:
            # The runner looks for unit.json beside a library called unit.so, and does what it says: this path leads to
            # the open file alone
            path = self._bundle.path(unit.artifact)
            runner: Any = torch._C._aoti.AOTIModelContainerRunnerCpu(path, 1)
            _check_constants(unit, runner.get_constant_names_to_original_fqns())
            constants = self._weights.bind(scope, unit.constants)
            # User-managed: the module keeps pointers and copies nothing, so the tensors must outlive it
            runner.update_constant_buffer(constants, False, True, True)
            self._alive.append(constants)
            self._opened[key] = runner.run
        return self._opened[key]

    def pools(self, cache: KVCache, num_blocks: int) -> Mapping[str, Tensor]:
        return allocate_pools(cache, num_blocks)


def _check_constants(unit: Unit, own: Mapping[str, str]) -> None:
    """Compare a unit's constants in the manifest with those that its code asks for.

    Args:
        own: each constant by the name that the code's loader takes, with its name in the module: the weight's, or one
            that the compiler made up for a packed one.

    Raises:
        IntegrityError: they are others.
    """
    weights = {constant.weight for constant in unit.constants}
    listed = {constant.name: constant.weight for constant in unit.constants}
    odd = {name for name in listed.keys() & own.keys() if own[name] in weights and own[name] != listed[name]}
    odd |= listed.keys() ^ own.keys()
    if odd:
        raise IntegrityError(
            f"The compiled code of unit {unit.name} takes other constants than the manifest says",
            expected=", ".join(f"{name} for {own.get(name, 'nothing')}" for name in sorted(odd)),
            found=", ".join(f"{name} for {listed.get(name, 'nothing')}" for name in sorted(odd)),
            repair="rebuild the bundle with eagle3-build",
        )
