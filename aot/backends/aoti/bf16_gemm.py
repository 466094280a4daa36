"""bf16 micro-kernels of our own for CPUs without AMX, added to Inductor's GEMM template.

A decode step multiplies a few rows by every weight once, so it should run at the speed of memory. On such CPUs nothing
at hand does: Inductor's own kernel widens bf16 to float32 lane by lane, and the library rearranges plain weights on
every call, or, on a CPU without bf16 instructions, computes at a tenth of memory's speed. These kernels read weights
that are packed in pairs already (layouts `block32_pair2` and `block16_pair2`): `pair_kernel` where the CPU multiplies
pairs of bf16, `widening_kernel` elsewhere.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from aot.backends.aoti import pair_kernel, widening_kernel

PAIR = 2
# How far ahead of use weights are asked for. Measured on an EPYC, 30 layers, 4 rows: 7.4 ms without, 6.8 ms with 1 or
# 4 KB.
PREFETCH_BYTES = 4096

_CALL = r"""
{{declare_kernel}} {
    for (int64_t n = 0; n < N; n += {{block_n}}) {
        for (int64_t m = 0; m < M; m += {{block_m}}) {
            const auto* a = A + m * lda;
            const auto* b = B + n;
            auto* c = C + m * ldc + n;
            switch (std::min<int64_t>(M - m, {{block_m}})) {
{%- for rows in range(block_m, 0, -1) %}
                case {{rows}}: {{kernel_name}}_rows<{{rows}}, accum>(a, b, c, K, lda, ldb, ldc); break;
{%- endfor %}
            }
        }
    }
}
"""


@dataclasses.dataclass(frozen=True)
class MicroKernel:
    """One of our kernels.

    Attributes:
        isa: name of Inductor's instruction set class that it belongs to.
        block_m, block_n: rows and columns of C that it holds in registers.
        rows: C++ of the block, see `pair_kernel.ROWS`.
        options: what the C++ wants beside the common options.
        flag: of the C++ compiler, without its dash; "" for none beyond the -march level.
    """

    isa: str
    block_m: int
    block_n: int
    rows: str
    options: Mapping[str, object] = dataclasses.field(default_factory=dict)
    flag: str = ""


# Blocks leave registers for the weights: 8 x 32 takes 16 of 32 registers, 6 x 16 takes 12 of AVX2's 16.
KERNELS = {
    "avx512_bf16": MicroKernel("VecAVX512", 8, 32, pair_kernel.ROWS, flag="mavx512bf16"),
    "avx512": MicroKernel("VecAVX512", 8, 32, widening_kernel.ROWS, widening_kernel.ZMM),
    "avx2": MicroKernel("VecAVX2", 6, 16, widening_kernel.ROWS, widening_kernel.YMM),
}


def source(name: str, common: Mapping[str, Any]) -> str:
    """C++ of a kernel.

    Args:
        name: of `KERNELS`.
        common: `declare_kernel` and Inductor's common options: kernel_name, input_t, input2_t, output_t and others.
    """
    from torch._inductor.codegen.common import KernelTemplate

    kernel = KERNELS[name]
    blocks = {"block_m": kernel.block_m, "block_n": kernel.block_n, "prefetch_bytes": PREFETCH_BYTES}
    rendered: str = KernelTemplate._template_from_string(kernel.rows + _CALL).render(
        {**blocks, **kernel.options, **common}
    )
    return rendered


def register(name: str) -> None:
    """Offer a kernel of `KERNELS` to Inductor's GEMM template; it is chosen for bf16 over Inductor's own."""
    import torch
    from torch._inductor import cpu_vec_isa
    from torch._inductor.codegen import cpp_micro_gemm

    micro: Any = cpp_micro_gemm
    base: Any = micro.CppMicroGemm
    chosen = KERNELS[name]

    class Bf16Gemm(base):  # type: ignore[misc]
        """C [M, N] float32 (+)= A [M, K] bf16 times B [K, N] bf16, packed in pairs of k."""

        def codegen_define(self, kernel: Any) -> str:
            return source(name, {"declare_kernel": self.get_kernel_declaration(), **self.get_common_options()})

        def get_b_layout(self) -> Any:
            return micro.LayoutType.VNNI2

    def fits(config: Any, m: Any, n: Any, k: Any, alpha: Any, num_threads: Any, **rest: Any) -> bool:
        return bool(k % PAIR == 0 and alpha == 1)

    def odd(config: Any, m: Any, n: Any, k: Any, *rest: Any, **more: Any) -> bool:
        return bool(k % PAIR)

    configs = micro.generate_gemm_config(
        getattr(cpu_vec_isa, chosen.isa),
        [(chosen.block_m, chosen.block_n, PAIR)],
        input_dtype=torch.bfloat16,
        output_dtype=torch.float,
        extra_check=fits,
    )
    micro.register_micro_gemm(*configs)(Bf16Gemm)
    # The template ranks kernels by how well their blocks divide the problem, and a decode step's few rows divide by
    # none: Inductor's own kernel is left what this one cannot do
    known = micro.micro_gemm_configs
    known[micro.CppMicroGemmFP32Vec] = [
        dataclasses.replace(config, extra_check=odd) if config.input2_dtype == torch.bfloat16 else config
        for config in known[micro.CppMicroGemmFP32Vec]
    ]
