"""What a manifest's parts say of one another, for every backend, in numbers, dtypes and shapes.

A digest says that a bundle is the one that somebody sealed, and not that it makes sense: one that was sealed again with
another block size, or over weights of another shape, would give wrong text or end in a segmentation fault. So before a
unit is opened, all that two parts say of one thing is compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from runtime.bundle.calls import call_problems
from runtime.bundle.contract import graph_problems
from runtime.bundle.errors import Eagle3Error
from runtime.bundle.extents import extent_problems
from runtime.bundle.manifest import Manifest
from runtime.bundle.sizes import size_problems
from runtime.bundle.stored import file_use_problems, weight_problems
from runtime.bundle.tensors import Tensors

# One wrong number can contradict every graph
MOST_TOLD = 20


def contradictions(manifest: Manifest, tensors: Tensors) -> list[Eagle3Error]:
    """Every contradiction, the first few of them; of a manifest in which every name is defined (`references.py`).

    Args:
        tensors: what the files of weights hold.
    """
    return list(islice(_all(manifest, tensors), MOST_TOLD))


def _all(manifest: Manifest, tensors: Tensors) -> Iterator[Eagle3Error]:
    yield from size_problems(manifest)
    yield from graph_problems(manifest)
    yield from call_problems(manifest)
    yield from file_use_problems(manifest)
    yield from weight_problems(manifest, tensors)
    yield from extent_problems(manifest)
