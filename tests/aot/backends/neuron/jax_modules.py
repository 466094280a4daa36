"""Small HLO modules written with jax as torch-xla would leave them, brought into our form, and run on the simulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from torch import Tensor

from aot.backends.neuron.hlo.passes import Lowered, Noted, canonical
from runtime.backends.sim import _Xla, to_torch


def raw(function: Callable[..., tuple[Any, ...]], *arguments: tuple[tuple[int, ...], str]) -> bytes:
    """The module of a function from arrays, each a shape and a dtype, to a tuple of at least two arrays."""
    _Xla(1)  # before anything else starts XLA: it says how many virtual devices there will be
    with jax.enable_x64(True):
        shapes = [jax.ShapeDtypeStruct(shape, jnp.dtype(dtype)) for shape, dtype in arguments]
        module = jax.jit(function, keep_unused=True).lower(*shapes).compiler_ir("hlo")
    data: bytes = module.as_serialized_hlo_module_proto()
    return data


def noted(
    parameters: Sequence[tuple[int, str, str]] = (),
    results: Sequence[str] = ("out", "other"),
    scalars: Sequence[tuple[int, float | int, str]] = (),
    collectives: Sequence[tuple[int, str, int]] = (),
) -> Noted:
    return Noted(parameters, scalars, collectives, results)


def in_our_form(data: bytes, facts: Noted, ranks: int = 1, order: Sequence[str] = ()) -> Lowered:
    """`canonical`, with parameters in the order in which they are noted if not told another."""
    return canonical(data, facts, name="toy", ranks=ranks, order=order or [name for _, name, _ in facts.parameters])


def run(data: bytes, arguments: Sequence[Sequence[Tensor]], folder: Path) -> list[list[Tensor]]:
    """A module's results on every rank; `arguments[i][r]` is the i-th parameter on rank r."""
    file = folder / "toy.hlo"
    file.write_bytes(data)
    xla = _Xla(len(arguments[0]))
    results = xla.execute(
        xla.compile(file.read_bytes(), file.name), [xla.put(parts, owned=True) for parts in arguments]
    )
    return [[to_torch(part) for part in parts] for parts in results]
