"""Our bf16 kernels alone: every bit is that of adding product after product in float32, on sizes that fill no block."""

from __future__ import annotations

import ctypes
import platform
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

from aot.backends.aoti import bf16_bmm, bf16_gemm, widening_kernel
from aot.backends.aoti.packing import apply
from aot.backends.aoti.toolchain import find_compiler
from aot.backends.sources import code_of
from runtime.bundle.host import cpu_features

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the kernels are for x86-64")

DECLARATION = """
template <bool accum>
inline void product(const uint16_t* A, const uint16_t* B, float* C, int64_t M, int64_t N, int64_t K,
                    int64_t lda, int64_t ldb, int64_t ldc)
"""
# As Inductor's template calls it: block by block of columns, k in slices that add to what is there
LOOP = """
extern "C" void gemm(const uint16_t* A, const uint16_t* B, float* C, int64_t M, int64_t N, int64_t K, int64_t slice) {
    for (int64_t n = 0; n < N; n += %(width)d) {
        const auto* b = B + n * K;
        product<false>(A, b, C + n, M, %(width)d, slice, K, %(width)d, N);
        for (int64_t k = slice; k < K; k += slice) {
            product<true>(A + k, b + k * %(width)d, C + n, M, %(width)d, std::min(slice, K - k), K, %(width)d, N);
        }
    }
}
"""
BATCHED = """
extern "C" void bmm_%(name)s(const uint16_t* A, const uint16_t* B, uint16_t* C, int64_t batches, int64_t M, int64_t N,
                             int64_t K, int64_t a0, int64_t a1, int64_t b0, int64_t b1, int64_t b2) {
    %(name)s_products(A, B, C, batches, M, N, K, a0, a1, b0, b1, b2);
}
"""


def runs(flag: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(flag not in cpu_features(), reason=f"this CPU has no {flag}")


LEVELS = [
    pytest.param("avx512", "x86-64-v4", marks=runs("avx512vl")),
    pytest.param("avx2", "x86-64-v3", marks=runs("fma")),
]


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], ctypes.CDLL]:
    """`kernels(name, march)`: gemm, bmm_rows and bmm_gather of an instruction set, compiled without Inductor."""

    @cache
    def compiled(name: str, march: str) -> ctypes.CDLL:
        types = {"input_t": "uint16_t", "input2_t": "uint16_t", "output_t": "float", "restrict_keyword": "__restrict__"}
        options = {"declare_kernel": DECLARATION, "kernel_name": "product", **types}
        parts = ["#include <algorithm>\n#include <cstdint>\n#include <cstring>\n", bf16_gemm.source(name, options)]
        parts.append(LOOP % {"width": bf16_gemm.KERNELS[name].block_n})
        for gather, product in ((False, "rows"), (True, "gather")):
            parts += [bf16_bmm.source(name, gather, product), BATCHED % {"name": product}]
        folder: Path = tmp_path_factory.mktemp(name)
        (folder / "kernels.cpp").write_text("".join(parts))
        command = [find_compiler(), "-O2", "-shared", "-fPIC", "-fopenmp", f"-march={march}"]
        subprocess.run([*command, str(folder / "kernels.cpp"), "-o", str(folder / "kernels.so")], check=True)
        return ctypes.CDLL(str(folder / "kernels.so"))

    return compiled


def call(function: Callable[..., object], tensors: tuple[Tensor, ...], *sizes: int) -> None:
    function(*(ctypes.c_void_p(t.data_ptr()) for t in tensors), *map(ctypes.c_int64, sizes))


def numbers(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def in_order(first: Tensor, second: Tensor) -> Tensor:
    """[..., M, K] times [..., K, N] in float32, product after product in order of k; each product is exact."""
    total = torch.zeros(*first.shape[:-1], second.shape[-1])
    for k in range(first.shape[-1]):
        total += first[..., :, k, None].float() * second[..., None, k, :].float()
    return total


@pytest.mark.parametrize(("name", "march"), LEVELS)
@pytest.mark.parametrize(("outputs", "inputs", "piece"), [(1, 2, 2), (33, 70, 70), (50, 514, 514), (17, 600, 254)])
def test_a_gemm_adds_in_order_of_k_whatever_the_rows(
    kernels: Callable[[str, str], ctypes.CDLL], name: str, march: str, outputs: int, inputs: int, piece: int
) -> None:
    width = bf16_gemm.KERNELS[name].block_n
    weight = numbers(outputs, inputs, seed=1)
    packed = apply(f"block{width}_pair2", weight)
    columns = packed.shape[0] * width
    everything = numbers(17, inputs, seed=2)
    right, exact = in_order(everything, weight.t()), everything.double() @ weight.t().double()
    for rows in range(1, 18):
        given, made = everything[17 - rows :].contiguous(), torch.full((rows, columns), torch.nan)
        call(kernels(name, march).gemm, (given, packed, made), rows, columns, inputs, piece)
        assert torch.equal(made[:, :outputs], right[17 - rows :]), "a row's bits depend on how many rows there are"
        assert not made[:, outputs:].any(), "padded columns are products with zeros"
    assert (right - exact).abs().max() <= 1e-5 * inputs**0.5 * float(exact.abs().max())


@pytest.mark.parametrize(("name", "march"), LEVELS)
@pytest.mark.parametrize(
    ("batches", "rows", "columns", "depth", "dense"),
    # An odd depth never takes the gathering kernel
    [(2, 3, 40, 7, "n")]
    + [
        (*sizes, dense)
        for sizes in [(1, 1, 1, 2), (2, 5, 17, 64), (3, 12, 64, 192), (3, 17, 48, 64), (2, 49, 33, 130)]
        for dense in ("n", "k")
    ],
)
def test_a_batched_product_adds_in_order_of_k_and_rounds_once(
    kernels: Callable[[str, str], ctypes.CDLL],
    name: str,
    march: str,
    batches: int,
    rows: int,
    columns: int,
    depth: int,
    dense: str,
) -> None:
    first, second = numbers(batches, rows, depth, seed=3), numbers(batches, depth, columns, seed=4)
    if dense == "k":
        second = second.transpose(1, 2).contiguous().transpose(1, 2)
    made = torch.zeros(batches, rows, columns, dtype=torch.bfloat16)
    library = kernels(name, march)
    product = library.bmm_gather if dense == "k" else library.bmm_rows
    call(product, (first, second, made), batches, rows, columns, depth, *first.stride()[:2], *second.stride())
    assert torch.equal(made, in_order(first, second).bfloat16())
    exact = first.double() @ second.double()
    assert (made - exact).abs().max() <= 2**-8 * float(exact.abs().max())


@pytest.mark.parametrize(("name", "march"), LEVELS)
def test_a_row_with_a_nan_spoils_no_other(kernels: Callable[[str, str], ctypes.CDLL], name: str, march: str) -> None:
    first, second = numbers(1, 9, 64, seed=5), numbers(1, 64, 40, seed=6)
    first[0, 4, 1], first[0, 6, 2] = torch.nan, torch.inf
    made = torch.zeros(1, 9, 40, dtype=torch.bfloat16)
    strides = (*first.stride()[:2], *second.stride())
    call(kernels(name, march).bmm_rows, (first, second, made), 1, 9, 40, 64, *strides)
    assert made[0, 4].isnan().all()
    assert made[0, 6].isinf().all()
    others = [0, 1, 2, 3, 5, 7, 8]
    assert torch.equal(made[0, others], in_order(first, second).bfloat16()[0, others])


@pytest.mark.parametrize(("name", "march"), LEVELS)
def test_entries_of_weight_zero_behind_the_context_change_no_bit(
    kernels: Callable[[str, str], ctypes.CDLL], name: str, march: str
) -> None:
    weights, values = torch.softmax(numbers(3, 12, 320, seed=7).float(), -1).bfloat16(), numbers(3, 320, 64, seed=8)
    weights[..., 70:] = 0
    made = []
    for width in (80, 128, 320):
        first, second = weights[..., :width].contiguous(), values[:, :width]
        result = torch.zeros(3, 12, 64, dtype=torch.bfloat16)
        strides = (*first.stride()[:2], *second.stride())
        call(kernels(name, march).bmm_rows, (first, second, result), 3, 12, 64, width, *strides)
        made.append(result)
    assert torch.equal(made[0], made[1])
    assert torch.equal(made[0], made[2])
    assert made[0].any()


def test_a_kernels_text_is_part_of_the_program_that_keys_the_cache() -> None:
    text = Path(widening_kernel.__file__).read_text(encoding="utf-8")
    assert code_of(text) != code_of(text.replace("_fmadd_ps", "_fmsub_ps"))
