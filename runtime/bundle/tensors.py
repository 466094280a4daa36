"""The headers of the bundle's safetensors files, doubted before anything is mapped.

A file is an 8-byte little-endian length, a JSON object of that many bytes, and data: for each tensor its dtype, shape
and [begin, end) in the data. A header that points outside of its file, or names one place twice, would hand a unit
memory that is not its weight. The tensors MUST fill the data without gap or overlap, as the format says.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass

from runtime.bundle.dtypes import BY_SAFETENSORS_NAME, itemsize
from runtime.bundle.errors import Eagle3Error, IntegrityError
from runtime.bundle.files import AGAIN, OpenFiles
from runtime.bundle.manifest import Manifest
from runtime.bundle.record import parse

# The format's own bound
MAX_HEADER_BYTES = 100_000_000
_METADATA = "__metadata__"


@dataclass(frozen=True)
class Stored:
    """A tensor as its file's header has it."""

    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)}"


# File: tensor: what it is
Tensors = Mapping[str, Mapping[str, Stored]]


def stored_tensors(manifest: Manifest, files: OpenFiles) -> tuple[Tensors, list[Eagle3Error]]:
    """What every file that the manifest takes weights from holds, and a problem for each that is not readable."""
    found: dict[str, dict[str, Stored]] = {}
    problems: list[Eagle3Error] = []
    names = {reference.file for layouts in manifest.weights.values() for reference in layouts.values()}
    for name in sorted(names):
        fd = files.descriptor(name)
        try:
            found[name] = read_tensors(fd)
        except (OSError, ValueError, RecursionError) as error:
            problems.append(
                IntegrityError(
                    f"{name} is no readable safetensors file",
                    expected="a header that describes its data",
                    found=str(error) or type(error).__name__,
                    repair=AGAIN,
                )
            )
    return found, problems


def read_tensors(fd: int) -> dict[str, Stored]:
    """The tensors of the open safetensors file `fd`.

    Raises:
        ValueError: the header is not one, or does not describe the file.
    """
    size = os.fstat(fd).st_size
    start = os.pread(fd, 8, 0)
    length = int.from_bytes(start, "little")
    if len(start) < 8 or length > min(MAX_HEADER_BYTES, size - 8):
        raise ValueError(f"{size} bytes, with a header of {length if len(start) == 8 else 'no'} bytes")
    data = parse(os.pread(fd, length, 8).decode("utf-8"))
    if not isinstance(data, dict):
        raise ValueError("a header that is no object")
    places = []
    found = {}
    for name, entry in data.items():
        if name != _METADATA:
            found[name], place = _entry(name, entry)
            places.append((*place, name))
    reached = 0
    for begin, end, name in sorted(places):
        if begin != reached:
            raise ValueError(f"tensor {name!r} at {begin} where the data before it ends at {reached}")
        reached = end
    if reached != size - 8 - length:
        raise ValueError(f"tensors of {reached} bytes in data of {size - 8 - length} bytes")
    return found


def _entry(name: str, entry: object) -> tuple[Stored, tuple[int, int]]:
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"tensor {name!r} without dtype, shape and data_offsets, or with more")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in BY_SAFETENSORS_NAME:
        raise ValueError(f"tensor {name!r} of dtype {dtype!r:.40}")
    if not _sizes(shape) or not _sizes(offsets) or len(offsets) != 2:
        raise ValueError(f"tensor {name!r} whose shape or offsets are no sizes")
    stored = Stored(BY_SAFETENSORS_NAME[dtype], tuple(shape))
    if offsets[1] - offsets[0] != math.prod(shape) * itemsize(stored.dtype):
        raise ValueError(f"tensor {name!r} of {stored} in {offsets[1] - offsets[0]} bytes")
    return stored, (offsets[0], offsets[1])


def _sizes(value: object) -> bool:
    return isinstance(value, list) and all(type(size) is int and 0 <= size < 2**63 for size in value) and len(value) < 9
