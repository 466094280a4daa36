"""Tensors that stay on devices: KV pools, and results that the next graph reads without a trip through the host."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor


class DeviceTensor(ABC):
    """One value on every rank's device, in place of a host tensor among a unit's inputs and outputs.

    It has as much of torch.Tensor's interface as the loop uses. `shape` is that of the whole value, or for a KV pool
    that of one rank's part. A result's memory belongs to its unit: the unit's next run overwrites it.
    """

    def __init__(self, shape: tuple[int, ...], dtype: str) -> None:
        self.shape, self.dtype = shape, dtype

    @abstractmethod
    def host(self) -> Tensor:
        """The value as a host tensor: rank 0's, which for anything but a KV pool is every rank's."""

    @abstractmethod
    def parts(self) -> list[Tensor]:
        """The value on every rank, as host tensors; ranks differ in a KV pool alone."""

    @abstractmethod
    def fill_(self, value: float) -> None:
        """Set every element on every rank."""

    @abstractmethod
    def nbytes(self) -> int:
        """Bytes on all ranks together."""

    def tolist(self) -> Any:
        """The value as nested lists of Python numbers: waits for the device, and reads once."""
        return self.host().tolist()


def to_host(value: Tensor | DeviceTensor) -> Tensor:
    """`value` as a host tensor."""
    return value.host() if isinstance(value, DeviceTensor) else value
