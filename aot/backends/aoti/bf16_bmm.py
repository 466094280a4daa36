"""Batched bf16 products for CPUs without bf16 instructions: attention's two, with a context width that is not known.

The library takes two to ten times as long for them on such a CPU, and Inductor's batched template takes no dynamic
width. Here a block of the second factor is widened to float32 once, whichever of its dimensions lies densely, and
multiplied by the rows of the first as in `widening_kernel`.

Numerics: products are added in float32 in order of k, and the sum is rounded once. So a row's bits depend neither on
its place, nor on the other rows; and entries of weight 0 behind a row's context change nothing, however many they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aot.backends.aoti.widening_kernel import WIDEN, YMM, ZMM

# For each register width: rows and columns of a block, and what the C++ wants.
BLOCKS = {"avx512": (8, 32, ZMM), "avx2": (6, 16, YMM)}

# C [B, M, N] = A [B, M, K] times B [B, K, N]; `gather` where k is B's dense dimension, and then K is even.
_KERNEL = (
    WIDEN
    + r"""
// From float32 to bf16, to the nearest, ties to even
template <typename Half>
inline void {{kernel_name}}_narrow(const float* wide, Half* narrow, int64_t length) {
    constexpr int64_t LANES = {{bits}} / 32;
    int64_t k = 0;
    for (; k + LANES <= length; k += LANES) {
        const auto sum = _mm{{bits}}_loadu_ps(wide + k);
        const auto lanes = _mm{{bits}}_castps_si{{bits}}(sum);
        const auto even = _mm{{bits}}_and_si{{bits}}(_mm{{bits}}_srli_epi32(lanes, 16), _mm{{bits}}_set1_epi32(1));
        const auto bias = _mm{{bits}}_add_epi32(even, _mm{{bits}}_set1_epi32(0x7fff));
        const auto upper = _mm{{bits}}_srli_epi32(_mm{{bits}}_add_epi32(lanes, bias), 16);
{%- if bits == 512 %}
        const auto nan = _mm512_cmp_ps_mask(sum, sum, _CMP_UNORD_Q);
        const auto half = _mm512_mask_mov_epi32(upper, nan, _mm512_set1_epi32(0x7fc0));
        _mm256_storeu_si256((__m256i*)(narrow + k), _mm512_cvtepi32_epi16(half));
{%- else %}
        const auto nan = _mm256_castps_si256(_mm256_cmp_ps(sum, sum, _CMP_UNORD_Q));
        const auto half = _mm256_blendv_epi8(upper, _mm256_set1_epi32(0x7fc0), nan);
        const auto packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(half, half), 0x08);
        _mm_storeu_si128((__m128i*)(narrow + k), _mm256_castsi256_si128(packed));
{%- endif %}
    }
    for (; k < length; ++k) {
        uint32_t bits;
        std::memcpy(&bits, wide + k, 4);
        const uint32_t upper = (bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        std::memcpy(narrow + k, &upper, 2);
    }
}

template <int64_t ROWS, typename Half>
inline void {{kernel_name}}_rows(
    const Half* A, int64_t a_row, const float* {{restrict}} weights, float* {{restrict}} C,
    int64_t length, bool accum) {
    constexpr int64_t LANES = {{bits}} / 32;
    constexpr int64_t COLUMNS = {{block_n}} / LANES;
    alignas(64) float inputs[ROWS][{{chunk}}];
    __m{{bits}} sums[ROWS][COLUMNS];
    for (int64_t row = 0; row < ROWS; ++row) {{kernel_name}}_widen(A + row * a_row, inputs[row], length);
    #pragma GCC unroll 16
    for (int64_t row = 0; row < ROWS; ++row) {
        #pragma GCC unroll 4
        for (int64_t column = 0; column < COLUMNS; ++column) {
            sums[row][column] =
                accum ? _mm{{bits}}_loadu_ps(C + row * {{block_n}} + LANES * column) : _mm{{bits}}_setzero_ps();
        }
    }
    for (int64_t k = 0; k < length; ++k) {
        __m{{bits}} weight[COLUMNS];
        #pragma GCC unroll 4
        for (int64_t column = 0; column < COLUMNS; ++column) {
            weight[column] = _mm{{bits}}_load_ps(weights + k * {{block_n}} + LANES * column);
        }
        #pragma GCC unroll 16
        for (int64_t row = 0; row < ROWS; ++row) {
            const auto input = _mm{{bits}}_set1_ps(inputs[row][k]);
            #pragma GCC unroll 4
            for (int64_t column = 0; column < COLUMNS; ++column) {
                sums[row][column] = _mm{{bits}}_fmadd_ps(input, weight[column], sums[row][column]);
            }
        }
    }
    #pragma GCC unroll 16
    for (int64_t row = 0; row < ROWS; ++row) {
        #pragma GCC unroll 4
        for (int64_t column = 0; column < COLUMNS; ++column) {
            _mm{{bits}}_storeu_ps(C + row * {{block_n}} + LANES * column, sums[row][column]);
        }
    }
}

// `columns` columns of `length` rows of B as float32, [length, block_n]; what is beyond `columns` counts for nothing
template <typename Half>
inline void {{kernel_name}}_block(
    const Half* B, int64_t b_k, int64_t b_n, float* weights, int64_t length, int64_t columns) {
{%- if gather %}
    constexpr int64_t LANES = {{bits}} / 32;
    for (int64_t first = 0; first < {{block_n}}; first += LANES) {
        alignas(64) int32_t offsets[LANES];
        for (int64_t lane = 0; lane < LANES; ++lane) offsets[lane] = std::min(first + lane, columns - 1) * b_n;
        const auto index = _mm{{bits}}_load_si{{bits}}((const __m{{bits}}i*)offsets);
        for (int64_t k = 0; k < length; k += 2) {
{%- if bits == 512 %}
            const auto pairs = _mm512_i32gather_epi32(index, (const void*)(B + k), 2);
{%- else %}
            const auto pairs = _mm256_i32gather_epi32((const int*)(B + k), index, 2);
{%- endif %}
            const auto upper = _mm{{bits}}_and_si{{bits}}(pairs, _mm{{bits}}_set1_epi32(0xffff0000));
            auto* place = weights + k * {{block_n}} + first;
            _mm{{bits}}_store_ps(place, _mm{{bits}}_castsi{{bits}}_ps(_mm{{bits}}_slli_epi32(pairs, 16)));
            _mm{{bits}}_store_ps(place + {{block_n}}, _mm{{bits}}_castsi{{bits}}_ps(upper));
        }
    }
{%- else %}
    for (int64_t k = 0; k < length; ++k) {
        auto* row = weights + k * {{block_n}};
        {{kernel_name}}_widen(B + k * b_k, row, columns);
        for (int64_t column = columns; column < {{block_n}}; ++column) row[column] = 0;
    }
{%- endif %}
}

template <typename Half>
inline void {{kernel_name}}_products(
    const Half* A, const Half* B, Half* C, int64_t batches, int64_t M, int64_t N, int64_t K,
    int64_t a_batch, int64_t a_row, int64_t b_batch, int64_t b_k, int64_t b_n) {
    constexpr int64_t GROUP = {{group}};
    const int64_t row_groups = (M + GROUP - 1) / GROUP;
    const int64_t blocks = (N + {{block_n}} - 1) / {{block_n}};
    #pragma omp parallel for schedule(static)
    for (int64_t task = 0; task < batches * row_groups * blocks; ++task) {
        alignas(64) float weights[{{chunk}} * {{block_n}}];
        alignas(64) float sums[GROUP * {{block_n}}];
        const int64_t batch = task / (row_groups * blocks), n = task % blocks * {{block_n}};
        const int64_t m = task / blocks % row_groups * GROUP;
        const int64_t rows = std::min<int64_t>(GROUP, M - m), columns = std::min<int64_t>({{block_n}}, N - n);
        for (int64_t k = 0; k < K; k += {{chunk}}) {
            const int64_t length = std::min<int64_t>({{chunk}}, K - k);
            {{kernel_name}}_block(B + batch * b_batch + k * b_k + n * b_n, b_k, b_n, weights, length, columns);
            for (int64_t row = 0; row < rows; row += {{block_m}}) {
                const auto* a = A + batch * a_batch + (m + row) * a_row + k;
                auto* c = sums + row * {{block_n}};
                switch (std::min<int64_t>(rows - row, {{block_m}})) {
{%- for count in range(block_m, 0, -1) %}
                    case {{count}}: {{kernel_name}}_rows<{{count}}>(a, a_row, weights, c, length, k > 0); break;
{%- endfor %}
                }
            }
        }
        for (int64_t row = 0; row < rows; ++row) {
            {{kernel_name}}_narrow(sums + row * {{block_n}}, C + (batch * M + m + row) * N + n, columns);
        }
    }
}
"""
)

_ENTRY = r"""
{{template.header().getvalue()}}
"""

_CALL = r"""
extern "C"
{{kernel.def_kernel(inputs={"A": A, "B": B}, outputs={"C": C})}}
{
    {{kernel.maybe_codegen_profile()}}
    {{kernel_name}}_products(
        &{{kernel.index(A, [0, 0, 0])}}, &{{kernel.index(B, [0, 0, 0])}}, &{{kernel.index(C, [0, 0, 0])}},
        {{kernel.size(C, 0)}}, {{kernel.size(C, 1)}}, {{kernel.size(C, 2)}}, {{kernel.size(A, 2)}},
        {{kernel.stride(A, 0)}}, {{kernel.stride(A, 1)}},
        {{kernel.stride(B, 0)}}, {{kernel.stride(B, 1)}}, {{kernel.stride(B, 2)}});
}
"""

CHUNK = 128
GROUP = 48  # rows that share a widened block of the second factor; a multiple of both `block_m`


def source(name: str, gather: bool, kernel_name: str) -> str:
    """C++ of the product, without its entry: a template `KERNEL_NAME_products`.

    Args:
        name: "avx512" or "avx2".
        gather: whether k is the dense dimension of the second factor, instead of n.
    """
    from torch._inductor.codegen.common import KernelTemplate

    block_m, block_n, width = BLOCKS[name]
    sizes = {"block_m": block_m, "block_n": block_n, "chunk": CHUNK, "group": GROUP, "restrict": "__restrict__"}
    rendered: str = KernelTemplate._template_from_string(_KERNEL).render(
        {"kernel_name": kernel_name, "gather": gather, **sizes, **width}
    )
    return rendered


def register(name: str) -> None:
    """Lower `aten.bmm` of bf16 to this kernel, for the instruction set `name` of `BLOCKS`."""
    import torch
    from torch._inductor import ir, lowering
    from torch._inductor.codegen import cpp, cpp_template
    from torch._inductor.kernel import mm_common

    template_base: Any = cpp_template.CppTemplate
    arguments: Any = mm_common.mm_args

    class ProductTemplate(template_base):  # type: ignore[misc]
        """One batched product as a kernel of its own; nothing is fused into it."""

        def __init__(self, inputs: list[Any], layout: Any, gather: bool) -> None:
            super().__init__("bf16_bmm", inputs, layout, num_threads=1)
            self.gather = gather

        def render(self, kernel: Any, template_buffer_node: Any = None, **rest: Any) -> str:
            assert not rest.get("epilogue_nodes")
            first, second = self.input_nodes if template_buffer_node is None else template_buffer_node.inputs
            options = {
                "template": self,
                "kernel": kernel,
                "kernel_name": kernel.kernel_name,
                "A": first,
                "B": second,
                "C": self.output_node if template_buffer_node is None else template_buffer_node,
            }
            parts = (_ENTRY, source(name, self.gather, kernel.kernel_name), _CALL)
            return "".join(str(self._template_from_string(part).render(options)) for part in parts)

    operator = torch.ops.aten.bmm.default
    library = lowering.lowerings[operator]

    def product(first: Any, second: Any, *rest: Any, **more: Any) -> Any:
        if first.get_dtype() != torch.bfloat16 or rest or more:
            return library(first, second, *rest, **more)
        *_, layout, first, second = arguments(first, second)
        first = ir.ExternKernel.require_contiguous(first)
        ir.as_storage_and_layout(second, freeze=True)
        depth, (dense_k, dense_n) = second.get_size()[1], second.get_stride()[1:]
        gather = dense_k == 1 and dense_n != 1 and depth % 2 == 0
        if not gather and dense_n != 1:
            second = ir.ExternKernel.require_contiguous(second)
        return ProductTemplate([first, second], layout, gather).generate().output_node()

    for key in (torch.ops.aten.bmm, operator):
        lowering.lowerings[key] = product
    scheduling: Any = cpp.CppScheduling
    scheduling.can_fuse_vertical = _unless_ours(scheduling.can_fuse_vertical, ProductTemplate)


def _unless_ours(can_fuse: Callable[..., bool], template: type) -> Callable[..., bool]:
    def asked(self: Any, first: Any, second: Any) -> bool:
        ours = first.is_template() and isinstance(first.get_template_node().template, template)
        return not ours and can_fuse(self, first, second)

    return asked
