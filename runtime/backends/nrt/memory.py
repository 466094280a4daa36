"""Device memory: a value is one tensor on every rank, and everything is given back together."""

from __future__ import annotations

import math
from contextlib import suppress

import torch
from torch import Tensor

from runtime.backends.device import DeviceTensor
from runtime.backends.nrt.library import Library
from runtime.backends.nrt.ranks import Ranks
from runtime.bundle.errors import Eagle3Error, UsageError
from runtime.weights import dtype_of

# What `fill_` keeps on the host at a time
CHUNK = 16 * 2**20
# How long `close` waits for ranks that are still in a pass, in seconds
PATIENCE = 5.0


class Devices:
    """The logical cores that one bundle runs on, and what it holds there: tensors, sets, models."""

    def __init__(self, library: Library, count: int) -> None:
        self.library, self.ranks, self.closed = library, Ranks(count), False
        self._tensors: list[int] = []
        self._sets: list[int] = []
        self._models: list[int] = []

    def allocate(self, name: str, shape: tuple[int, ...], dtype: str) -> NrtTensor:
        """Memory for a value on every rank, its content not defined.

        Raises:
            HostError: a device has no room.
        """
        size = math.prod(shape) * dtype_of(dtype).itemsize
        handles = []
        for rank in range(self.ranks.count):
            handles.append(self.library.allocate(rank, size, name))
            self._tensors.append(handles[-1])
        return NrtTensor(self, name, tuple(handles), shape, dtype)

    def new_set(self, subject: str) -> int:
        """A tensor set that lives until `close`."""
        self._sets.append(self.library.new_set(subject))
        return self._sets[-1]

    def load(self, neff: bytes, unit: str) -> list[int]:
        """The model handles of `neff`, one a rank; all ranks load at once, because they meet to do it."""

        def load(rank: int) -> int:
            handle = self.library.load(neff, rank, self.ranks.count, f"unit {unit}, rank {rank}")
            self._models.append(handle)
            return handle

        return self.ranks.run(load)

    def close(self) -> None:
        """Free everything and give the cores back; a second call does nothing.

        A rank that hangs in a pass still uses its memory: then all of it is left to the end of the process.
        """
        if self.closed:
            return
        self.closed = True
        if not self.ranks.close(PATIENCE):
            return
        for tensor_set in self._sets:
            self.library.destroy_set(tensor_set)
        for model in self._models:
            # A device that failed may refuse this too; what follows is to be given back all the same
            with suppress(Eagle3Error):
                self.library.unload(model, "a model that is no longer needed")
        for tensor in self._tensors:
            self.library.free(tensor)
        self.library.close()


class NrtTensor(DeviceTensor):
    """A value in device memory: `handles[rank]` is that rank's tensor."""

    def __init__(
        self, devices: Devices, name: str, handles: tuple[int, ...], shape: tuple[int, ...], dtype: str
    ) -> None:
        super().__init__(shape, dtype)
        self.devices, self.name, self.handles = devices, name, handles

    def _size(self) -> int:
        return math.prod(self.shape) * dtype_of(self.dtype).itemsize

    def _library(self) -> Library:
        if self.devices.closed:
            raise UsageError(
                f"{self.name} was read or written after its bundle was closed", repair="open the bundle again"
            )
        return self.devices.library

    def host(self) -> Tensor:
        return self._read(0)

    def parts(self) -> list[Tensor]:
        return [self._read(rank) for rank in range(len(self.handles))]

    def _read(self, rank: int) -> Tensor:
        made = torch.empty(self.shape, dtype=dtype_of(self.dtype))
        self._library().read(self.handles[rank], made.data_ptr(), self._size(), f"{self.name}, rank {rank}")
        return made

    def write(self, rank: int, value: Tensor) -> None:
        """Copy `value`, of this tensor's shape and dtype, to one rank."""
        value = value.contiguous()
        self._library().write(self.handles[rank], value.data_ptr(), self._size(), f"{self.name}, rank {rank}")

    def fill_(self, value: float) -> None:
        size, library = self._size(), self._library()
        for rank, handle in enumerate(self.handles):
            subject = f"{self.name}, rank {rank}"
            if value == 0:
                library.clear(handle, size, subject)
                continue
            dtype = dtype_of(self.dtype)
            part = torch.full((max(min(size, CHUNK) // dtype.itemsize, 1),), value, dtype=dtype)
            for offset in range(0, size, part.nbytes):
                library.write(handle, part.data_ptr(), min(part.nbytes, size - offset), subject, offset)

    def nbytes(self) -> int:
        return self._size() * len(self.handles)
