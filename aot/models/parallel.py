"""Tensor parallelism: ranks that each hold a part of every large weight, and the two ways in which they speak.

`all_reduce` adds the parts of a sum, after a linear layer whose inputs are spread over the ranks; `all_gather` joins
what each rank has of a row. In an exported graph both are single nodes (`torch.ops.eagle3.*`), which a backend turns
into collectives of its hardware, over one group of all ranks.

All ranks run the same program. The only thing that tells them apart is the rank, an int32 tensor [1] that the program
takes as an input, so that one compiled graph serves them all.

On the CPU the ranks are threads of one process (`Ranks`), which really exchange tensors: a sharded model can be
compared with the whole one on any machine.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn

from runtime.bundle.errors import HostError

Made = TypeVar("Made")

_here = threading.local()


class Ranks:
    """`size` ranks as threads of this process; collectives that they call exchange tensors between them."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._barrier = threading.Barrier(size)
        self._handed: list[tuple[str, Tensor] | None] = [None] * size

    def run(self, work: Callable[[int], Made]) -> list[Made]:
        """`work(rank)` on every rank at the same time; what they return, in rank order.

        Raises:
            Exception: what the first rank that failed raised; the others stop waiting for it.
        """
        made: dict[int, Made] = {}
        failed: list[Exception] = []

        def one(rank: int) -> None:
            _here.ranks, _here.rank = self, rank
            try:
                made[rank] = work(rank)
            except threading.BrokenBarrierError:
                pass  # another rank failed, and its error is the one to tell
            except Exception as error:  # raised again by the caller's thread
                failed.append(error)
                self._barrier.abort()

        threads = [threading.Thread(target=one, args=(rank,), daemon=True) for rank in range(self.size)]
        self._barrier.reset()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]
        if len(made) < self.size:
            raise RuntimeError("a rank left before its last collective, so the others waited in vain")
        return [made[rank] for rank in range(self.size)]

    def exchange(self, what: str, rank: int, part: Tensor) -> list[Tensor]:
        """Every rank's tensor in rank order, once all have handed in theirs.

        Args:
            what: the collective; ranks that are not in the same one, with the same shape and dtype, have diverged.
        """
        self._handed[rank] = (f"{what} of {part.dtype} {list(part.shape)}", part)
        self._barrier.wait(timeout=60)
        handed = [entry for entry in self._handed if entry is not None]
        # Nobody may hand in the next tensor before all have read this one
        self._barrier.wait(timeout=60)
        if len({kind for kind, _ in handed}) > 1:
            raise RuntimeError(f"ranks have diverged: they are in {', '.join(kind for kind, _ in handed)}")
        return [tensor for _, tensor in handed]


def _exchange(what: str, part: Tensor, ranks: int) -> list[Tensor]:
    group: Ranks | None = getattr(_here, "ranks", None)
    if group is None or group.size != ranks:
        raise HostError(
            f"A graph of {ranks} ranks was run outside of them",
            expected=f"a call inside Ranks({ranks}).run",
            found="a call of one program alone" if group is None else f"{group.size} ranks",
            repair="run all ranks of the graph together",
        )
    return group.exchange(what, _here.rank, part)


@torch.library.custom_op("eagle3::all_reduce", mutates_args=(), schema="(Tensor x, int ranks) -> Tensor")
def _all_reduce(x: Tensor, ranks: int) -> Tensor:
    _refuse_integers(x)
    first, *others = _exchange("all_reduce", x, ranks)
    made = first.clone()
    for part in others:  # in rank order on every rank, so that all hold the same bits
        made += part
    return made


@_all_reduce.register_fake
def _(x: Tensor, ranks: int) -> Tensor:
    _refuse_integers(x)
    return torch.empty_like(x)


@torch.library.custom_op("eagle3::all_gather", mutates_args=(), schema="(Tensor x, int dim, int ranks) -> Tensor")
def _all_gather(x: Tensor, dim: int, ranks: int) -> Tensor:
    return torch.cat(_exchange("all_gather", x, ranks), dim=dim)


@_all_gather.register_fake
def _(x: Tensor, dim: int, ranks: int) -> Tensor:
    shape = list(x.shape)
    shape[dim] *= ranks
    return x.new_empty(shape)


def _refuse_integers(x: Tensor) -> None:
    if not x.dtype.is_floating_point:
        # An accelerator adds in float32 and would lose whatever lies above 2**24
        raise TypeError(f"all_reduce adds floating-point tensors only, not {x.dtype}")


def all_reduce(x: Tensor, ranks: int) -> Tensor:
    """The sum of every rank's `x`, in its shape and dtype; the same bits on every rank.

    Raises:
        TypeError: `x` holds integers.
        HostError: called outside of `ranks` ranks that run together.
    """
    return torch.ops.eagle3.all_reduce(x, ranks)  # type: ignore[no-any-return]


def all_gather(x: Tensor, dim: int, ranks: int) -> Tensor:
    """Every rank's `x` side by side along `dim`, in rank order: `dim` is `ranks` times as long.

    Raises:
        HostError: called outside of `ranks` ranks that run together.
    """
    return torch.ops.eagle3.all_gather(x, dim, ranks)  # type: ignore[no-any-return]


def rank_first(kind: type[nn.Module]) -> type[nn.Module]:
    """`kind` with its keyword `rank` as the first of its inputs, for units have no keywords."""

    def forward(self: nn.Module, rank: Tensor, *inputs: Tensor) -> object:
        return kind.forward(self, *inputs, rank=rank)

    # Export names a graph's inputs after the signature
    own, *others = inspect.signature(kind.forward).parameters.values()
    first = inspect.Parameter("rank", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    inputs = [value for value in others if value.name != "rank"]
    forward.__signature__ = inspect.Signature([own, first, *inputs])  # type: ignore[attr-defined]
    return type(kind.__name__, (kind,), {"forward": forward})
