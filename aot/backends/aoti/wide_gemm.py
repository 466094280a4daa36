"""What Inductor makes of `eagle3::mm_f32`: a product of half-precision factors that keeps its float32 sums.

Inductor's GEMM template sums in float32 in any case and rounds when it stores; asked for a float32 result, it stores
the sums as they are, from the same packed weight by the same micro-kernel. Where the template does not apply (plain
weights, other dtypes), one loop over the weight's rows widens in registers what it reads: the library's product would
round, and a widened copy of the weight would have to be written and read. A row's sums do not depend on other rows.
"""

from __future__ import annotations

from typing import Any


def lower_mm_f32() -> None:
    """Register the lowering of the operator, which aot/models/wide.py defines."""
    import torch
    from torch._inductor import lowering

    import aot.models.wide  # noqa: F401

    register: Any = lowering.register_lowering

    @register(torch.ops.eagle3.mm_f32.default, type_promotion_kind=None)  # type: ignore[untyped-decorator]
    def mm_f32(rows: Any, columns: Any) -> Any:
        if rows.get_dtype() == torch.float32:
            return lowering.lowerings[torch.ops.aten.mm.default](rows, columns)
        return _by_template(rows, columns) or _by_loop(rows, columns)

    @register(torch.ops.eagle3.linear_f32.default, type_promotion_kind=None)  # type: ignore[untyped-decorator]
    def linear_f32(rows: Any, weight: Any) -> Any:
        return mm_f32(rows, lowering.lowerings[torch.ops.aten.permute.default](weight, [1, 0]))


def _by_template(rows: Any, columns: Any) -> Any:
    """The GEMM template's product with a packed weight; None where it does not apply."""
    import torch
    from torch._inductor import ir
    from torch._inductor.codegen.cpp_gemm_template import CppGemmTemplate
    from torch._inductor.kernel import mm_common
    from torch._inductor.select_algorithm import autotune_select_algorithm
    from torch._inductor.utils import use_cpp_gemm_template

    template: Any = CppGemmTemplate
    common: Any = mm_common
    choose: Any = autotune_select_algorithm
    *_, rounded, rows, columns = common.mm_args(rows, columns)
    if not use_cpp_gemm_template(rounded, rows, columns):
        return None
    layout = ir.FixedLayout(rounded.device, torch.float32, rounded.size)
    choices: list[Any] = []
    template.add_choices(choices, layout, [rows, columns])
    made, _ = choose("mm_f32", choices, [rows, columns], layout)
    return made


def _by_loop(rows: Any, columns: Any) -> Any:
    """The product as a sum over widened factors."""
    import torch
    from torch._inductor import lowering

    low: Any = lowering
    aten = torch.ops.aten
    # [V, 1, H] times [1, M, H]: each row of the weight is read from memory once, however many rows there are
    weight = low.unsqueeze(low.to_dtype(low.permute(columns, [1, 0]), torch.float32), 1)
    states = low.unsqueeze(low.to_dtype(rows, torch.float32), 0)
    sums = low.lowerings[aten.sum.dim_IntList](low.lowerings[aten.mul.Tensor](weight, states), [2])
    return low.clone(low.permute(sums, [1, 0]))
