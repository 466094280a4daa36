"""A bf16 micro-kernel for CPUs with AVX512-BF16 and no AMX, added to Inductor's GEMM template.

A decode step multiplies a few rows by every weight once, so it should run at the speed of memory. On such CPUs nothing
at hand does: Inductor's own kernel widens bf16 to float32 lane by lane, and the library rearranges plain weights into
pairs on every call. This kernel reads weights that are packed in pairs already (layout `block32_pair2`) and multiplies
pairs with one instruction. Measured on an EPYC with two cores, 30 layers, 4 rows: 19.1 ms with Inductor's kernel, 12.4
ms with the library's, 6.5 to 7.3 ms with this one.

Numerics: products of a pair are added in float32 to the accumulator, pair after pair in order of k, whatever the number
of rows; so a row's bits depend neither on its place nor on the other rows.
"""

from __future__ import annotations

import dataclasses
from typing import Any

BLOCK_M, BLOCK_N, PAIR = 8, 32, 2
# How far ahead of use weights are asked for. Measured on 30 layers, 4 rows: 7.4 ms without, 6.8 ms with 1 or 4 KB.
PREFETCH_BYTES = 4096

_KERNEL = r"""
#include <immintrin.h>
template <int64_t ROWS, bool accum>
inline void {{kernel_name}}_rows(
    const {{input_t}}* {{restrict_keyword}} A,
    const {{input2_t}}* {{restrict_keyword}} B,
    {{output_t}}* {{restrict_keyword}} C,
    int64_t K, int64_t lda, int64_t ldb, int64_t ldc) {
    constexpr int64_t COLUMNS = {{block_n}} / 16;
    __m512 sums[ROWS][COLUMNS];
    #pragma GCC unroll 16
    for (int64_t row = 0; row < ROWS; ++row) {
        #pragma GCC unroll 4
        for (int64_t column = 0; column < COLUMNS; ++column) {
            sums[row][column] = accum ? _mm512_loadu_ps(C + row * ldc + 16 * column) : _mm512_setzero_ps();
        }
    }
    for (int64_t k = 0; k < K; k += 2) {
        __m512bh weights[COLUMNS];
        #pragma GCC unroll 4
        for (int64_t column = 0; column < COLUMNS; ++column) {
            _mm_prefetch((const char*)(B + k * ldb + 32 * column) + {{prefetch_bytes}}, _MM_HINT_T0);
            weights[column] = (__m512bh)_mm512_loadu_si512(B + k * ldb + 32 * column);
        }
        #pragma GCC unroll 16
        for (int64_t row = 0; row < ROWS; ++row) {
            int32_t pair;
            std::memcpy(&pair, A + row * lda + k, sizeof(pair));
            const __m512bh inputs = (__m512bh)_mm512_set1_epi32(pair);
            #pragma GCC unroll 4
            for (int64_t column = 0; column < COLUMNS; ++column) {
                sums[row][column] = _mm512_dpbf16_ps(sums[row][column], inputs, weights[column]);
            }
        }
    }
    #pragma GCC unroll 16
    for (int64_t row = 0; row < ROWS; ++row) {
        #pragma GCC unroll 4
        for (int64_t column = 0; column < COLUMNS; ++column) {
            _mm512_storeu_ps(C + row * ldc + 16 * column, sums[row][column]);
        }
    }
}

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


def register() -> None:
    """Offer the kernel to Inductor's GEMM template; it is chosen for bf16 over kernels of plain AVX-512."""
    import torch
    from torch._inductor.codegen import cpp_micro_gemm
    from torch._inductor.codegen.common import KernelTemplate
    from torch._inductor.cpu_vec_isa import VecAVX512

    micro: Any = cpp_micro_gemm
    base: Any = micro.CppMicroGemm

    class Bf16PairGemm(base):  # type: ignore[misc]
        """C [M, N] float32 (+)= A [M, K] bf16 times B [K, N] bf16, packed in pairs of k."""

        def codegen_define(self, kernel: Any) -> str:
            options = {
                "declare_kernel": self.get_kernel_declaration(),
                "block_m": BLOCK_M,
                "block_n": BLOCK_N,
                "prefetch_bytes": PREFETCH_BYTES,
                **self.get_common_options(),
            }
            rendered: str = KernelTemplate._template_from_string(_KERNEL).render(options)
            return rendered

        def get_b_layout(self) -> Any:
            return micro.LayoutType.VNNI2

    def fits(config: Any, m: Any, n: Any, k: Any, alpha: Any, num_threads: Any, **rest: Any) -> bool:
        return bool(k % PAIR == 0 and alpha == 1)

    def odd(config: Any, m: Any, n: Any, k: Any, *rest: Any, **more: Any) -> bool:
        return bool(k % PAIR)

    configs = micro.generate_gemm_config(
        VecAVX512,
        [(BLOCK_M, BLOCK_N, PAIR)],
        input_dtype=torch.bfloat16,
        output_dtype=torch.float,
        extra_check=fits,
    )
    micro.register_micro_gemm(*configs)(Bf16PairGemm)
    # The template ranks kernels by how well their blocks divide the problem, and a decode step's few rows divide by
    # none: Inductor's own kernel is left what this one cannot do
    known = micro.micro_gemm_configs
    known[micro.CppMicroGemmFP32Vec] = [
        dataclasses.replace(config, extra_check=odd) if config.input2_dtype == torch.bfloat16 else config
        for config in known[micro.CppMicroGemmFP32Vec]
    ]
