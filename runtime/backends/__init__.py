"""Devices behind one small protocol: open a unit with its weights, call it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from torch import Tensor

from runtime.bundle.errors import HostError
from runtime.bundle.manifest import KVCache, Unit
from runtime.bundle.open import Bundle
from runtime.weights import Weights

# A unit with its weights bound: inputs in call order in, outputs in call order out. KV pools are updated in place.
Run = Callable[[Sequence[Tensor]], list[Tensor]]


class Backend(Protocol):
    """Runs the units of one bundle."""

    def open(self, unit: Unit, scope: str) -> Run:
        """`unit` bound to the weights of `scope`; the same pair gives the same object."""
        ...

    def pools(self, cache: KVCache, num_blocks: int) -> Mapping[str, Tensor]:
        """The KV pools `kv.N.k` and `kv.N.v`, zeroed, where the backend's units want them.

        On a device they are `runtime.backends.device.DeviceTensor`, which stands in for a tensor.
        """
        ...


def backend_for(bundle: Bundle, weights: Weights, device: str | None = None) -> Backend:
    """The backend that the bundle was built for.

    Args:
        device: "sim" to run a Neuron bundle's HLO on the CPU; None for the device that the bundle names.

    Raises:
        HostError: this runtime has no such backend, or the machine refuses it.
    """
    name = bundle.manifest.requires.backend
    if name == "aoti":
        from runtime.backends.aoti import AotiBackend

        return AotiBackend(bundle, weights)
    if name == "neuron" and device == "sim":
        from runtime.backends.sim import SimBackend

        return SimBackend(bundle, weights)
    if name == "neuron":
        from runtime.backends.nrt import NrtBackend

        return NrtBackend(bundle, weights)
    raise HostError(
        "The bundle is for a backend that this runtime lacks",
        expected="aoti or neuron",
        found=name,
        repair="run it with the version of eagle3-run that came with the builder",
    )
