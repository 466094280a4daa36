"""Which tensors a checkpoint folder has, and in which of its files each lies: read from headers, no data touched.

A folder holds one file, or shards with an index whose `weight_map` says which shard has which tensor. The index is
followed: of a tensor that two shards have, the one that it names counts, and an index that leaves a tensor out, or
names a shard that lacks it, belongs to other shards. Only of a tensor that nobody reads it may say that it is there
where it is not: exporters drop such a tensor and keep its entry. Nothing here imports torch, but for a .bin file.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aot.checkpoint.fields import Fields, brief, read_json
from runtime.bundle.errors import ConfigError

if TYPE_CHECKING:
    import torch

Shapes = dict[str, tuple[int, ...]]

# safetensors' names of float types, and torch's.
_FLOATS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_FORMS = (
    ("model.safetensors", "model.safetensors.index.json"),
    ("pytorch_model.bin", "pytorch_model.bin.index.json"),
)
# Buffers that older checkpoints carry and nobody reads
_UNREAD = "rotary_emb.inv_freq"

REPAIR = "fetch the checkpoint again; it must hold model.safetensors, its shards, or pytorch_model.bin"


@dataclass(frozen=True)
class Headers:
    """A checkpoint's tensors.

    Attributes:
        files: each tensor's name, and the file that it is read from.
        shapes: their shapes.
        floats: the float types in which tensors are stored, such as "bfloat16"; other types, and GGUF's, are left out.
        notes: what a user should be told, one sentence each, without a full stop.
    """

    files: Mapping[str, Path]
    shapes: Shapes
    floats: frozenset[str]
    notes: tuple[str, ...] = ()


# A tensor's shape, and its float type or ""
_Entries = dict[str, tuple[tuple[int, ...], str]]


def read_headers(folder: Path, *, unread: frozenset[str] = frozenset()) -> Headers:
    """The tensors of the checkpoint in `folder`; safetensors are taken where both forms lie side by side.

    Args:
        unread: tensors that nobody reads, beside the rotary buffers; an index may name them though no shard has them.

    Raises:
        ConfigError: there are no weights; a file is damaged; an index names a shard that is missing, lies outside the
            folder or lacks the tensor, or leaves out a tensor of its shards.
    """
    for single, index in _FORMS:
        has_index = (folder / index).is_file()
        if (folder / single).is_file():
            entries = _entries(folder / single)
            notes: list[str] = []
            if has_index and set(_weight_map(folder / index).values()) != {single}:
                notes = [f"{folder.name} has {single} beside {index}, whose shards are not read"]
            return _headers(dict.fromkeys(entries, folder / single), {folder / single: entries}, notes)
        if has_index:
            return _followed(folder, index, unread)
    raise ConfigError(
        f"{folder.name} holds no weights",
        expected="model.safetensors, model.safetensors.index.json or pytorch_model.bin",
        repair=REPAIR,
    )


def _headers(files: Mapping[str, Path], found: Mapping[Path, _Entries], notes: list[str]) -> Headers:
    taken = {name: found[path][name] for name, path in files.items()}
    floats = frozenset(dtype for _, dtype in taken.values() if dtype)
    return Headers(files, {name: shape for name, (shape, _) in taken.items()}, floats, tuple(notes))


def _followed(folder: Path, index: str, unread: frozenset[str]) -> Headers:
    """The tensors as `index` places them."""
    weight_map = _weight_map(folder / index)
    found = {path: _entries(path) for path in (_shard(folder, name, index) for name in sorted({*weight_map.values()}))}
    held_by_any = {tensor for held in found.values() for tensor in held}
    files = {
        tensor: folder / name
        for tensor, name in weight_map.items()
        if tensor in held_by_any or not (tensor in unread or tensor.endswith(_UNREAD))
    }
    for tensor, path in files.items():
        if tensor not in found[path]:
            elsewhere = [other.name for other, held in found.items() if tensor in held]
            raise ConfigError(
                f"{index} names {path.name} for {tensor}, which that shard lacks",
                found=f"it in {elsewhere[0]}" if elsewhere else "it in no shard",
                repair=REPAIR,
            )
    for path, held in found.items():
        if left := sorted(tensor for tensor in held if tensor not in files and not tensor.endswith(_UNREAD)):
            raise ConfigError(
                f"{index} leaves out {listed(left)}, held by {path.name}",
                expected="every tensor of the shards in weight_map",
                repair=REPAIR,
            )
    twice = sorted(tensor for tensor in files if sum(tensor in held for held in found.values()) > 1)
    note = f"several shards of {folder.name} hold {listed(twice)}; those that {index} names are read"
    return _headers(files, found, [note] if twice else [])


def _weight_map(index: Path) -> dict[str, str]:
    weight_map = Fields(read_json(index), index.name).mapping("weight_map").raw
    if not weight_map or not all(isinstance(name, str) for name in weight_map.values()):
        raise ConfigError(f"{index.name} has no weight_map of file names", repair=REPAIR)
    return dict(weight_map)


def _shard(folder: Path, name: str, index: str) -> Path:
    if Path(name).name != name or not name.endswith((".safetensors", ".bin")) or not name.isprintable():
        raise ConfigError(f"{index} names a shard outside its folder", found=name, repair=REPAIR)
    if not (folder / name).is_file():
        raise ConfigError(f"{index} names a shard that is missing", found=name, repair=REPAIR)
    return folder / name


def _entries(path: Path) -> _Entries:
    if path.suffix == ".bin":
        return {
            name: (tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.") if tensor.is_floating_point() else "")
            for name, tensor in read_pickle(path).items()
        }
    from safetensors import safe_open

    try:
        with safe_open(path, framework="np") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            return {name: (tuple(part.get_shape()), _FLOATS.get(part.get_dtype(), "")) for name, part in slices.items()}
    # A header is a stranger's, and the library raises errors of its own and of Python for what is wrong with one
    except Exception as error:
        raise unreadable(path, error) from None


def read_pickle(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a .bin file, mapped where it can be. Only tensors are built, nothing else of the pickle is run.

    Raises:
        ConfigError: it cannot be read, or is something other than a dictionary of plain tensors by name.
    """
    import torch

    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    # As many errors as there are ways to damage a pickle
    except Exception as error:
        raise unreadable(path, error) from None
    pairs = list(loaded.items()) if isinstance(loaded, dict) else [("", loaded)]
    for name, value in pairs:
        if not isinstance(loaded, dict) or not _is_plain(name, value):
            raise ConfigError(
                f"{path.name} is not a dictionary of tensors by name",
                found=f"{brief(name)}: {type(value).__name__}" if name else type(value).__name__,
                repair=REPAIR,
            )
    return dict(pairs)


def _is_plain(name: object, value: object) -> bool:
    import torch

    if not isinstance(name, str) or not isinstance(value, torch.Tensor):
        return False
    return value.layout == torch.strided and value.device.type == "cpu" and not value.is_quantized


def unreadable(path: Path, error: Exception) -> ConfigError:
    """The refusal of a file that a library could not read."""
    reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(". ")
    return ConfigError(f"the weights in {path.name} cannot be read", found=reason[:300], repair=REPAIR)


def listed(names: list[str], most: int = 4) -> str:
    """The first `most` names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
