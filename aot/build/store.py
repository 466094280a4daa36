"""Weights into a bundle: packed as the compiled units want them, each distinct content stored once.

One safetensors file per scope, named by the digest of what it holds. Data begins at a multiple of 64 bytes, so that
mapped weights sit on cache lines.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor

from aot.backends.aoti.packing import PLAIN
from aot.backends.protocol import BuildBackend
from aot.build.scopes import Scope
from aot.seal import naming
from runtime.bundle.manifest import Call, Unit, WeightRef

ALIGNMENT = 64


def wanted_layouts(calls: Iterable[Call], units: Mapping[str, Unit], backend: BuildBackend) -> dict[str, set[str]]:
    """For every weight that some call's unit binds, by full name: the layouts that are wanted."""
    wanted: dict[str, set[str]] = {}
    for unit, scope in {(call.unit, call.scope) for call in calls}:
        for constant in units[unit].constants:
            full_name = f"{scope}.{constant.weight}" if scope else constant.weight
            wanted.setdefault(full_name, set()).update(backend.layouts(full_name, constant.layout))
    return wanted


class WeightStore:
    """Writes scopes into `folder` and remembers where everything went."""

    def __init__(self, folder: Path, wanted: Mapping[str, set[str]], backend: BuildBackend) -> None:
        self._folder, self._wanted, self._backend = folder, wanted, backend
        self._by_content: dict[str, WeightRef] = {}
        self.references: dict[str, dict[str, WeightRef]] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, scope: str, weights: Scope) -> None:
        """Store what the units want of `scope`; content that is stored already is only referred to."""
        fresh: dict[str, Tensor] = {}
        pending: list[tuple[str, str, str]] = []
        for name, weight in weights.items():
            for layout in sorted(self._wanted.get(f"{scope}.{name}", ())):
                tensor = self._backend.arrange(scope, name, layout, weight).detach()
                content = digest(tensor)
                if content not in self._by_content:
                    key = name if layout == PLAIN else f"{name}@{layout}"
                    fresh[key] = tensor
                    self._by_content[content] = WeightRef("", key, content)
                pending.append((f"{scope}.{name}", layout, content))
        if fresh:
            file = self._write(scope, fresh)
            for content, reference in self._by_content.items():
                if not reference.file:
                    self._by_content[content] = WeightRef(file, reference.tensor, content)
        for full_name, layout, content in pending:
            self.references.setdefault(full_name, {})[layout] = self._by_content[content]

    def _write(self, scope: str, tensors: Mapping[str, Tensor]) -> str:
        data = aligned(save(dict(tensors)))
        name = f"{scope}-{hashlib.sha256(data).hexdigest()[:16]}.safetensors"
        with naming(self._folder / name):
            (self._folder / name).write_bytes(data)
        return f"{self._folder.name}/{name}"


def digest(tensor: Tensor) -> str:
    """sha256 over dtype, shape and bytes."""
    head = f"{tensor.dtype} {tuple(tensor.shape)} ".encode()
    made = hashlib.sha256(head)
    made.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().data)
    return made.hexdigest()


def aligned(data: bytes) -> bytes:
    """Safetensors bytes with the header padded by spaces, which the format allows, so that data is aligned.

    Tensors of 64-byte multiples come first, so that one odd size does not displace all that follow.
    """
    length = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8 : 8 + length]), memoryview(data)[8 + length :]
    metadata = {key: value for key, value in header.items() if key == "__metadata__"}
    entries = [(key, value) for key, value in header.items() if key != "__metadata__"]
    entries.sort(key=lambda entry: (_size(entry[1]) % ALIGNMENT != 0, entry[0]))
    offset, parts, placed = 0, [], {}
    for key, value in entries:
        begin, end = value["data_offsets"]
        placed[key] = {**value, "data_offsets": [offset, offset + end - begin]}
        offset += end - begin
        parts.append(body[begin:end])
    text = json.dumps({**metadata, **placed}, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    return b"".join([len(text).to_bytes(8, "little"), text, *parts])


def _size(entry: Mapping[str, list[int]]) -> int:
    begin, end = entry["data_offsets"]
    return end - begin
