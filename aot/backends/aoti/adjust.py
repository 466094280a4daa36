"""Two adjustments to the pinned Inductor, made in the compile worker only.

Both are for torch 2.13.0 and are checked by tests/aot/backends: another release may need neither, or others.
"""

from __future__ import annotations

import itertools
from typing import Any


def adjust_inductor() -> None:
    """Apply both; the process compiles one unit and ends."""
    keep_library_bmm()
    name_packed_constants()


def keep_library_bmm() -> None:
    """Send batched products to ATen whatever the GEMM backend is.

    Inductor's own batched template takes no dynamic width, and attention's products have one.
    """
    import importlib

    bmm: Any = importlib.import_module("torch._inductor.kernel.bmm")

    bmm.use_aten_gemm_kernels = lambda: True
    bmm.use_cpp_bmm_template = lambda *_, **__: False


def name_packed_constants() -> None:
    """Give every frozen constant a name that is never given twice.

    Inductor calls them `constantN` by how many constants there are at that moment. Packing drops the plain weights as
    it goes, so N comes up again, two constants share one original name, and the package keeps only one of them.
    """
    from torch._inductor.graph import GraphLowering

    allocate = GraphLowering.allocate_non_dup_const_name
    numbers = itertools.count()

    def named(self: Any, name: str | None, data: Any) -> str:
        return allocate(self, name if name is not None else f"frozen{next(numbers)}", data)

    GraphLowering.allocate_non_dup_const_name = named  # type: ignore[method-assign]
