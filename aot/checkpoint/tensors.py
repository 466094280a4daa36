"""The tensor files of a checkpoint folder, read by name: safetensors, one or sharded, or pytorch_model.bin.

safetensors is taken where both lie side by side. A .bin file is opened with `weights_only=True`, which builds
tensors and nothing else; whatever more its pickle asks for is refused. Listing the shapes of safetensors
reads only their headers and needs no torch.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from aot.checkpoint.fields import Fields, read_json
from runtime.bundle.errors import ConfigError

if TYPE_CHECKING:
    import torch

Shapes = dict[str, tuple[int, ...]]

# safetensors' names of float types, and torch's.
_FLOATS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}

_REPAIR = "fetch the checkpoint again; it must hold model.safetensors, its shards, or pytorch_model.bin"


def tensor_files(folder: Path) -> list[Path]:
    """The files that hold the folder's tensors.

    Raises:
        ConfigError: there are none, or an index names a shard that is missing or lies outside the folder.
    """
    for single, index in (
        ("model.safetensors", "model.safetensors.index.json"),
        ("pytorch_model.bin", "pytorch_model.bin.index.json"),
    ):
        if (folder / single).is_file():
            return [folder / single]
        if (folder / index).is_file():
            return [_shard(folder, name, index) for name in _shard_names(folder / index)]
    raise ConfigError(
        f"{folder.name} holds no weights",
        expected="model.safetensors, model.safetensors.index.json or pytorch_model.bin",
        repair=_REPAIR,
    )


def _shard_names(index: Path) -> list[str]:
    weight_map = Fields(read_json(index), index.name).mapping("weight_map").raw
    if not weight_map or not all(isinstance(name, str) for name in weight_map.values()):
        raise ConfigError(f"{index.name} has no weight_map of file names", repair=_REPAIR)
    return sorted(set(weight_map.values()))


def _shard(folder: Path, name: str, index: str) -> Path:
    if Path(name).name != name or not name.endswith((".safetensors", ".bin")):
        raise ConfigError(f"{index} names a shard outside its folder", found=name, repair=_REPAIR)
    if not (folder / name).is_file():
        raise ConfigError(f"{index} names a shard that is missing", found=name, repair=_REPAIR)
    return folder / name


def read_shapes(folder: Path) -> Shapes:
    """Every tensor's name and shape. Imports torch only for a .bin file."""
    shapes: Shapes = {}
    for path in tensor_files(folder):
        if path.suffix == ".bin":
            shapes |= {name: tuple(tensor.shape) for name, tensor in _read_pickle(path).items()}
            continue
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="np") as file:
                shapes |= {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise _unreadable(path, error) from None
    return shapes


def stored_dtypes(folder: Path) -> str:
    """The float types in which the folder's tensors are stored, such as "bfloat16"; several joined by " and "."""
    found: set[str] = set()
    for path in tensor_files(folder):
        if path.suffix == ".bin":
            tensors = _read_pickle(path).values()
            found |= {str(t.dtype).removeprefix("torch.") for t in tensors if t.is_floating_point()}
            continue
        from safetensors import safe_open

        with safe_open(path, framework="np") as file:
            names = {file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
        found |= {_FLOATS[name] for name in names if name in _FLOATS}
    return " and ".join(sorted(found))


def read_tensors(folder: Path, *, only: frozenset[str] | None = None) -> dict[str, torch.Tensor]:
    """Every tensor by name, or those of `only`, on the CPU, in its stored dtype."""
    if only is not None:
        return dict(_some_tensors(folder, only))
    tensors: dict[str, torch.Tensor] = {}
    for path in tensor_files(folder):
        if path.suffix == ".bin":
            tensors |= _read_pickle(path)
            continue
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            tensors |= load_file(path)
        except (SafetensorError, OSError) as error:
            raise _unreadable(path, error) from None
    return tensors


def _some_tensors(folder: Path, only: frozenset[str]) -> Iterator[tuple[str, torch.Tensor]]:
    for path in tensor_files(folder):
        if path.suffix == ".bin":
            yield from ((name, tensor) for name, tensor in _read_pickle(path).items() if name in only)
            continue
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="pt") as file:
                yield from ((name, file.get_tensor(name)) for name in only & set(file.keys()))
        except (SafetensorError, OSError) as error:
            raise _unreadable(path, error) from None


def _read_pickle(path: Path) -> dict[str, torch.Tensor]:
    import torch

    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, OSError, EOFError, ValueError) as error:
        raise _unreadable(path, error) from None
    if not isinstance(loaded, dict) or not all(isinstance(value, torch.Tensor) for value in loaded.values()):
        raise ConfigError(f"{path.name} is not a dictionary of tensors", repair=_REPAIR)
    return loaded


def _unreadable(path: Path, error: Exception) -> ConfigError:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(". ")
    return ConfigError(f"the weights in {path.name} cannot be read", found=reason, repair=_REPAIR)


def check_shapes(found: Mapping[str, tuple[int, ...]], expected: Shapes, *, what: str) -> None:
    """Refuse a checkpoint whose tensors are not exactly `expected`.

    Args:
        found: the checkpoint's tensors.
        expected: every tensor that must be there, with its shape.
        what: "target" or "draft".

    Raises:
        ConfigError: naming the missing tensors, else the unexpected ones, else those of a wrong shape.
    """
    missing = [name for name in expected if name not in found]
    if missing:
        raise ConfigError(f"the {what} checkpoint lacks {_listed(missing)}", repair=_REPAIR)
    unexpected = [name for name in found if name not in expected]
    if unexpected:
        raise ConfigError(
            f"the {what} checkpoint holds tensors that its architecture lacks, {_listed(unexpected)}",
            repair="check that config.json and weights belong together; the variant may not be supported yet",
        )
    for name, shape in expected.items():
        if tuple(found[name]) != shape:
            raise ConfigError(
                f"{name} of the {what} checkpoint has the wrong shape",
                expected=str(list(shape)),
                found=str(list(found[name])),
                repair="check that config.json and the weights belong together",
            )


def _listed(names: Iterable[str], most: int = 4) -> str:
    """The first `most` names, and how many more there are."""
    every = sorted(names)
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more
