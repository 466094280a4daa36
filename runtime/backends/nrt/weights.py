"""Weights in device memory: each stored tensor is uploaded once, however many units and names refer to it."""

from __future__ import annotations

from runtime.backends.nrt.memory import Devices, NrtTensor
from runtime.bundle.errors import IntegrityError
from runtime.bundle.interface import Parameter
from runtime.bundle.manifest import Constant, Manifest, WeightRef
from runtime.weights import Weights, dtype_of


class DeviceWeights:
    """Hands out device tensors by constant. Layout "plain" is the same on every rank; of "shard" each has its part."""

    def __init__(self, devices: Devices, manifest: Manifest, weights: Weights) -> None:
        self._devices, self._manifest, self._weights = devices, manifest, weights
        self._uploaded: dict[tuple[WeightRef, ...], NrtTensor] = {}

    def get(self, constant: Constant, parameter: Parameter) -> NrtTensor:
        """The weight of `constant` on every rank, as the unit's `parameter` describes it.

        Raises:
            IntegrityError: the bundle lacks it, or holds another shape or dtype.
        """
        count = self._devices.ranks.count
        layouts = [f"shard.{rank}" if constant.layout == "shard" else constant.layout for rank in range(count)]
        values = [self._weights.get(constant.weight, layout) for layout in layouts]
        for layout, value in zip(layouts, values, strict=True):
            if (tuple(value.shape), value.dtype) != (parameter.shape, dtype_of(parameter.dtype)):
                raise IntegrityError(
                    f"The weight {constant.weight} ({layout}) is not what its graphs take",
                    expected=f"{parameter.dtype} {list(parameter.shape)}",
                    found=f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}",
                    repair="rebuild the bundle with eagle3-build",
                )
        key = tuple(self._manifest.weights[constant.weight][layout] for layout in layouts)
        if key not in self._uploaded:
            tensor = self._devices.allocate(constant.weight, parameter.shape, parameter.dtype)
            self._devices.ranks.run(lambda rank: tensor.write(rank, values[rank]))
            self._uploaded[key] = tensor
        return self._uploaded[key]
