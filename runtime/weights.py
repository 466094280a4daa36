"""A bundle's weights: mapped, never copied, bound by name to every unit that wants them."""

from __future__ import annotations

from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from runtime.bundle.errors import IntegrityError
from runtime.bundle.manifest import Constant
from runtime.bundle.open import Bundle


class Weights:
    """Looks weights up by name and layout. Tensors are views of mapped files and live as long as this object.

    Several units and layouts may name the same stored tensor; it is then one tensor in memory too.
    """

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._files: dict[str, Any] = {}
        self._tensors: dict[tuple[str, str], Tensor] = {}

    def get(self, name: str, layout: str) -> Tensor:
        """The weight called `name` ("target.layers.3.mlp.down_proj.weight") in `layout`.

        Raises:
            IntegrityError: the manifest or the file does not hold it.
        """
        try:
            reference = self._bundle.manifest.weights[name][layout]
        except KeyError:
            raise IntegrityError(
                f"The manifest holds no weight {name} in layout {layout}",
                repair="rebuild the bundle with eagle3-build",
            ) from None
        place = (reference.file, reference.tensor)
        if place not in self._tensors:
            try:
                if reference.file not in self._files:
                    self._files[reference.file] = safe_open(self._bundle.path(reference.file), framework="pt")
                self._tensors[place] = self._files[reference.file].get_tensor(reference.tensor)
            except SafetensorError:
                raise IntegrityError(
                    f"{reference.file} holds no tensor {reference.tensor}",
                    repair="rebuild the bundle with eagle3-build",
                ) from None
        return self._tensors[place]

    def bind(self, scope: str, constants: tuple[Constant, ...]) -> dict[str, Tensor]:
        """For a unit called with the weights of `scope`: module constant name -> tensor."""
        return {constant.name: self.get(f"{scope}.{constant.weight}", constant.layout) for constant in constants}

    @property
    def mapped_bytes(self) -> int:
        """Bytes of the distinct tensors handed out so far."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self._tensors.values())


def dtype_of(name: str) -> torch.dtype:
    """The torch dtype called `name` ("bfloat16")."""
    dtype: torch.dtype = getattr(torch, name)
    return dtype
