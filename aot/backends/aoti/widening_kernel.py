"""C++ of the bf16 micro-kernel for CPUs that have no bf16 instructions: AVX-512, or AVX2 with FMA.

A bf16 is the upper half of a float32. Of a pair of weights in one 32-bit lane the first becomes a float32 by a shift
and the second by a mask: one instruction for each register of weights, where weights that lie one by one need two. The
inputs are widened once for each chunk of k and then broadcast from memory.

Numerics: a product of two bf16 is exact in float32, and products are added in float32, one after the other in order of
k, whatever the number of rows and the width of the registers. So a row's bits depend neither on its place, nor on the
other rows, nor on which of the two instruction sets computed it.
"""

from __future__ import annotations

# From bf16 to float32, `length` numbers that lie one by one.
WIDEN = r"""
#include <immintrin.h>
template <typename Half>
inline void {{kernel_name}}_widen(const Half* narrow, float* wide, int64_t length) {
    constexpr int64_t LANES = {{bits}} / 32;
    int64_t k = 0;
    for (; k + LANES <= length; k += LANES) {
        const auto lanes = _mm{{bits}}_cvtepu16_epi32({{load_half}}((const {{half_t}}*)(narrow + k)));
        _mm{{bits}}_storeu_ps(wide + k, _mm{{bits}}_castsi{{bits}}_ps(_mm{{bits}}_slli_epi32(lanes, 16)));
    }
    for (; k < length; ++k) {
        uint32_t bits = 0;
        std::memcpy((char*)&bits + 2, narrow + k, 2);
        std::memcpy(wide + k, &bits, 4);
    }
}
"""

# What either register width wants beside `block_m` and `block_n`.
ZMM = {"bits": 512, "load_half": "_mm256_loadu_si256", "half_t": "__m256i"}
YMM = {"bits": 256, "load_half": "_mm_loadu_si128", "half_t": "__m128i"}

# Rows of a block of `block_n` columns, all of K; `bits` is the width of a register. Rendered as in `bf16_gemm`.
ROWS = (
    WIDEN
    + r"""
template <int64_t ROWS, bool accum>
inline void {{kernel_name}}_rows(
    const {{input_t}}* {{restrict_keyword}} A,
    const {{input2_t}}* {{restrict_keyword}} B,
    {{output_t}}* {{restrict_keyword}} C,
    int64_t K, int64_t lda, int64_t ldb, int64_t ldc) {
    constexpr int64_t LANES = {{bits}} / 32;
    constexpr int64_t COLUMNS = {{block_n}} / LANES;
    constexpr int64_t CHUNK = 256;
    const auto upper_half = _mm{{bits}}_set1_epi32(0xffff0000);
    alignas(64) float inputs[ROWS][CHUNK];
    __m{{bits}} sums[ROWS][COLUMNS];
    #pragma GCC unroll 16
    for (int64_t row = 0; row < ROWS; ++row) {
        #pragma GCC unroll 4
        for (int64_t column = 0; column < COLUMNS; ++column) {
            sums[row][column] =
                accum ? _mm{{bits}}_loadu_ps(C + row * ldc + LANES * column) : _mm{{bits}}_setzero_ps();
        }
    }
    for (int64_t start = 0; start < K; start += CHUNK) {
        const int64_t length = std::min<int64_t>(K - start, CHUNK);
        for (int64_t row = 0; row < ROWS; ++row) {
            {{kernel_name}}_widen(A + row * lda + start, inputs[row], length);
        }
        for (int64_t k = 0; k < length; k += 2) {
            __m{{bits}}i pairs[COLUMNS];
            __m{{bits}} weights[COLUMNS];
            #pragma GCC unroll 4
            for (int64_t column = 0; column < COLUMNS; ++column) {
                const auto* pair = B + (start + k) * ldb + 2 * LANES * column;
                // One cache line is 32 weights
                if (2 * LANES * column % 32 == 0) _mm_prefetch((const char*)pair + {{prefetch_bytes}}, _MM_HINT_T0);
                pairs[column] = _mm{{bits}}_loadu_si{{bits}}((const __m{{bits}}i*)pair);
                weights[column] = _mm{{bits}}_castsi{{bits}}_ps(_mm{{bits}}_slli_epi32(pairs[column], 16));
            }
            #pragma GCC unroll 16
            for (int64_t row = 0; row < ROWS; ++row) {
                const auto input = _mm{{bits}}_set1_ps(inputs[row][k]);
                #pragma GCC unroll 4
                for (int64_t column = 0; column < COLUMNS; ++column) {
                    sums[row][column] = _mm{{bits}}_fmadd_ps(input, weights[column], sums[row][column]);
                }
            }
            #pragma GCC unroll 4
            for (int64_t column = 0; column < COLUMNS; ++column) {
                weights[column] = _mm{{bits}}_castsi{{bits}}_ps(_mm{{bits}}_and_si{{bits}}(pairs[column], upper_half));
            }
            #pragma GCC unroll 16
            for (int64_t row = 0; row < ROWS; ++row) {
                const auto input = _mm{{bits}}_set1_ps(inputs[row][k + 1]);
                #pragma GCC unroll 4
                for (int64_t column = 0; column < COLUMNS; ++column) {
                    sums[row][column] = _mm{{bits}}_fmadd_ps(input, weights[column], sums[row][column]);
                }
            }
        }
    }
    #pragma GCC unroll 16
    for (int64_t row = 0; row < ROWS; ++row) {
        #pragma GCC unroll 4
        for (int64_t column = 0; column < COLUMNS; ++column) {
            _mm{{bits}}_storeu_ps(C + row * ldc + LANES * column, sums[row][column]);
        }
    }
}
"""
)
