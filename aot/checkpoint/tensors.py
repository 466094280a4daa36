"""The tensors of a checkpoint folder, read by name, checked in shape, cast to a build's dtype.

A .bin file is opened with `weights_only=True`, which builds tensors and nothing else; whatever more its pickle asks
for is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from aot.checkpoint.headers import REPAIR, Shapes, listed, read_headers, read_pickle, unreadable
from runtime.bundle.errors import ConfigError

if TYPE_CHECKING:
    import torch

# Significant bits and bits of the exponent of the float types
_PRECISION = {"float64": (53, 11), "float32": (24, 8), "float16": (11, 5), "bfloat16": (8, 8)}


def read_tensors(
    folder: Path, *, only: frozenset[str] | None = None, unread: frozenset[str] = frozenset()
) -> dict[str, torch.Tensor]:
    """Every tensor by name, or those of `only`, on the CPU, in its stored dtype, from the file that the index names.

    Args:
        unread: as in `read_headers`.

    Raises:
        ConfigError: as `read_headers`, or a file's data cannot be read.
    """
    files = read_headers(folder, unread=unread).files
    wanted = {name: path for name, path in files.items() if only is None or name in only}
    tensors: dict[str, torch.Tensor] = {}
    for path in sorted(set(wanted.values())):
        names = [name for name, held in wanted.items() if held == path]
        if path.suffix == ".bin":
            found = read_pickle(path)
            tensors |= {name: found[name] for name in names}
            continue
        from safetensors import safe_open

        try:
            with safe_open(path, framework="pt") as file:
                tensors |= {name: file.get_tensor(name) for name in names}
        # As in `read_headers`
        except Exception as error:
            raise unreadable(path, error) from None
    return tensors


def cast(name: str, tensor: torch.Tensor, dtype: torch.dtype, *, what: str, hint: str = "") -> torch.Tensor:
    """`tensor` in `dtype`, contiguous, each of its values finite: one that is not spreads through every request.

    Args:
        what: "target" or "draft".
        hint: one more way to mend values that are not finite as they are stored.

    Raises:
        ConfigError: the tensor is none of floats, or holds NaN or infinite values, as it is or once it is cast.
    """
    if not tensor.is_floating_point():
        raise ConfigError(
            f"{name} of the {what} checkpoint is not a tensor of floats",
            found=str(tensor.dtype),
            repair="give an unquantised checkpoint",
        )
    made = tensor.to(dtype).contiguous()
    # NaN is passed on by both, and this is ten times as fast as a look at each value
    if made.numel() == 0 or all(bool(one.isfinite()) for one in made.aminmax()):
        return made
    bad, short = int(made.isfinite().logical_not().sum()), str(dtype).removeprefix("torch.")
    stored = str(tensor.dtype).removeprefix("torch.")
    if bool(tensor.isfinite().all()):
        found = f"{bad} of {made.numel()} beyond the range of {short}, stored as {stored}"
        wider = {"float16": "bfloat16 or float32", "bfloat16": "float32"}.get(short)
        repair = f"set dtype: {wider}, with a larger range" if wider else "export the checkpoint with smaller values"
    else:
        found = f"{bad} of {made.numel()} in {short}, stored as {stored}"
        repair = "fetch the checkpoint again, or export it again" + hint
    raise ConfigError(
        f"{name} of the {what} checkpoint holds values that are not finite",
        expected=f"finite values in {short}",
        found=found,
        repair=repair,
    )


def cast_note(stored: frozenset[str], dtype: str, *, what: str) -> str:
    """What a user should be told of the cast of weights that are stored as `stored` to `dtype`; "" for nothing."""
    bits, exponent = _PRECISION[dtype]
    wider = sorted(one for one in stored if _PRECISION[one][0] > bits or _PRECISION[one][1] > exponent)
    if not wider:
        return ""
    lost = f"keeps {bits} of their significant bits" if _PRECISION[wider[0]][0] > bits else "has a smaller range"
    return f"the {what}'s weights are stored in {' and '.join(wider)} and are cast to {dtype}, which {lost}"


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
        raise ConfigError(f"the {what} checkpoint lacks {listed(sorted(missing))}", repair=REPAIR)
    unexpected = [name for name in found if name not in expected]
    if unexpected:
        raise ConfigError(
            f"the {what} checkpoint holds tensors that its architecture lacks, {listed(sorted(unexpected))}",
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
