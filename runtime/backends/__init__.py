"""Devices behind one small protocol: open a unit with its weights, call it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from torch import Tensor

from runtime.bundle.errors import HostError
from runtime.bundle.manifest import Unit
from runtime.bundle.open import Bundle
from runtime.weights import Weights

# A unit with its weights bound: inputs in call order in, outputs in call order out. KV pools are updated in place.
Run = Callable[[Sequence[Tensor]], list[Tensor]]


class Backend(Protocol):
    """Runs the units of one bundle."""

    def open(self, unit: Unit, scope: str) -> Run:
        """`unit` bound to the weights of `scope`; the same pair gives the same object."""
        ...


def backend_for(bundle: Bundle, weights: Weights) -> Backend:
    """The backend that the bundle was built for.

    Raises:
        HostError: this runtime has no such backend, or the machine refuses it.
    """
    name = bundle.manifest.requires.backend
    if name == "aoti":
        from runtime.backends.aoti import AotiBackend

        return AotiBackend(bundle, weights)
    raise HostError(
        "The bundle is for a backend that this runtime lacks",
        expected="aoti",
        found=name,
        repair="run it with the version of eagle3-run that came with the builder",
    )
