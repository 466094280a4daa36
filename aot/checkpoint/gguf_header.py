"""The facts at the head of a GGUF file: its scalar metadata and the names of its tensors.

`gguf.GGUFReader` makes one object for every string of the vocabulary and the merges, 1.7 s for SmolLM2's 98
thousand, and an unchanged rebuild has 5 s in all. A model's config needs only the scalars, so this walks the
header once and steps over arrays. The layout is GGUF version 2 and 3, little-endian (ggml's docs/gguf.md):

    "GGUF", version u32, tensor count u64, key count u64
    per key:     name, type u32, value        string: length u64, bytes; array: type u32, count u64, items
    per tensor:  name, dimensions u32, each size u64, type u32, offset u64
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

from runtime.bundle.errors import ConfigError

Scalar = int | float | bool | str

_SCALARS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True)
class GgufHeader:
    """A GGUF file's scalar metadata (strings included, arrays left out) and its tensors' shapes.

    `shapes` are in PyTorch's order, the row length last; GGUF stores them the other way round.
    """

    metadata: dict[str, Scalar]
    shapes: dict[str, tuple[int, ...]]


def read_gguf_header(path: Path) -> GgufHeader:
    """Read the head of `path`; the tensors themselves are not touched.

    Raises:
        ConfigError: the file is missing, is not GGUF, is of another version, or ends too early.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Cursor(data).header()
    except (OSError, ValueError, struct.error, OverflowError) as error:
        raise ConfigError(
            f"{path.name} cannot be read as a GGUF model", found=str(error), repair="fetch the file again"
        ) from None


class _Cursor:
    """A position in the header that only moves forward."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at = data, 0

    def header(self) -> GgufHeader:
        if self.data[:4] != b"GGUF":
            raise ValueError("no GGUF magic at its start")
        self.at = 4
        version = int(self.scalar("<I"))
        if version not in (2, 3):
            raise ValueError(f"GGUF version {version}, known are 2 and 3")
        tensor_count, key_count = int(self.scalar("<Q")), int(self.scalar("<Q"))
        metadata: dict[str, Scalar] = {}
        keys: set[str] = set()
        for _ in range(key_count):
            name, kind = self.string(), int(self.scalar("<I"))
            self.once(name, keys)
            if kind == _ARRAY:
                self.skip_array()
            else:
                metadata[name] = self.string() if kind == _STRING else self.scalar(self.format(kind))
        shapes: dict[str, tuple[int, ...]] = {}
        for _ in range(tensor_count):
            name, dimensions = self.string(), int(self.scalar("<I"))
            self.once(name, shapes)
            if dimensions > 8:
                raise ValueError(f"a tensor of {dimensions} dimensions")
            shapes[name] = tuple(int(self.scalar("<Q")) for _ in range(dimensions))[::-1]
            self.step(12)
        return GgufHeader(metadata, shapes)

    def once(self, name: str, known: set[str] | dict[str, tuple[int, ...]]) -> None:
        """Refuse a second key or tensor of one name: readers differ in which of them they take."""
        if name in known:
            raise ValueError(f"{name} twice")
        if isinstance(known, set):
            known.add(name)

    def format(self, kind: int) -> str:
        if kind not in _SCALARS:
            raise ValueError(f"unknown value type {kind}")
        return _SCALARS[kind]

    def scalar(self, layout: str) -> int | float | bool:
        (value,) = struct.unpack_from(layout, self.data, self.at)
        self.at += struct.calcsize(layout)
        return value  # type: ignore[no-any-return]

    def step(self, size: int) -> None:
        if self.at + size > len(self.data):
            raise ValueError("the file ends inside its header")
        self.at += size

    def string(self) -> str:
        start, size = self.at + 8, int(self.scalar("<Q"))
        self.step(size)
        return self.data[start : start + size].decode("utf-8")

    def skip_array(self) -> None:
        kind, count = int(self.scalar("<I")), int(self.scalar("<Q"))
        if kind == _STRING:
            # The hot loop: one unpack a string, nothing kept.
            unpack, data, at, end = struct.Struct("<Q").unpack_from, self.data, self.at, len(self.data)
            for _ in range(count):
                at += 8 + unpack(data, at)[0]
                if at > end:
                    raise ValueError("the file ends inside its header")
            self.at = at
        elif kind == _ARRAY:
            raise ValueError("an array of arrays")
        else:
            self.step(count * struct.calcsize(self.format(kind)))
