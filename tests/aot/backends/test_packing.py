"""Packed layouts: what apply makes recognise knows, by bits alone."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from aot.backends.aoti.packing import PLAIN, apply, layouts, recognise, same_bits

PACKED = [layout for layout in layouts() if layout != PLAIN]


def numbers(outputs: int, inputs: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(seed)).to(dtype)


def test_layouts_have_distinct_names() -> None:
    assert list(layouts())[:4] == ["plain", "block16", "block16_pair2", "block16_pair4"]
    assert len(set(layouts())) == len(list(layouts()))


@pytest.mark.parametrize("layout", PACKED)
@settings(max_examples=20)
@given(outputs=st.integers(1, 300), inputs=st.integers(1, 40))
def test_every_packed_element_is_where_the_kernel_reads_it(layout: str, outputs: int, inputs: int) -> None:
    weight = torch.arange(1, outputs * inputs + 1).view(outputs, inputs)
    width, _, pair = layout.removeprefix("block").partition("_pair")
    w, p = int(width), int(pair or 1)
    packed = apply(layout, weight)
    rows = -(-inputs // p) * p
    assert packed.shape == (-(-outputs // w), rows, w)
    assert packed.is_contiguous()
    # Element (n, k) of the weight: block n // w; within it pairs of rows k // p, then column n % w, then k % p
    flat = packed.flatten()
    n, k = torch.meshgrid(torch.arange(outputs), torch.arange(inputs), indexing="ij")
    assert torch.equal(flat[(n // w) * rows * w + (k // p) * p * w + (n % w) * p + k % p], weight)
    assert int((packed != 0).sum()) == outputs * inputs, "padding is zeros"


@given(
    layout=st.sampled_from(PACKED),
    outputs=st.integers(1, 200),
    inputs=st.integers(1, 24),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
)
def test_a_packed_weight_is_recognised_among_others(layout: str, outputs: int, inputs: int, dtype: torch.dtype) -> None:
    weights = {"other": numbers(outputs, inputs, dtype, 1), "right": numbers(outputs, inputs, dtype, 2)}
    constant = apply(layout, weights["right"])
    found = recognise(constant, weights)
    assert found is not None
    name, seen = found
    # A single row or column can be packed alike in two ways; whichever is named gives the same bits
    assert name == "right" or torch.equal(weights["other"], weights["right"])
    assert same_bits(apply(seen, weights[name]), constant)


def test_a_plain_weight_of_any_shape_is_recognised() -> None:
    weights = {"norm": torch.ones(7), "embed": numbers(5, 3)}
    assert recognise(torch.ones(7), weights) == ("norm", PLAIN)
    assert recognise(weights["embed"].clone(), weights) == ("embed", PLAIN)


@pytest.mark.parametrize("layout", ["block32", "block32_pair2"])
def test_one_changed_bit_is_not_recognised(layout: str) -> None:
    weight = numbers(64, 32, torch.bfloat16)
    packed = apply(layout, weight)
    packed.view(torch.int16)[1, 3, 5] ^= 1
    assert recognise(packed, {"weight": weight}) is None


def test_a_constant_of_another_dtype_or_unknown_width_is_not_recognised() -> None:
    weight = numbers(64, 32)
    assert recognise(apply("block32", weight).to(torch.bfloat16), {"weight": weight}) is None
    assert recognise(weight.t().reshape(32, 8, 8).transpose(0, 1).contiguous(), {"weight": weight}) is None
    assert recognise(torch.zeros(3), {"weight": weight}) is None


def test_bits_tell_signed_zeros_and_nans_apart() -> None:
    zero = torch.zeros(2)
    assert not same_bits(zero, -zero)
    nan = torch.full((2,), float("nan"))
    assert same_bits(nan, nan.clone())
    assert not same_bits(torch.zeros(2), torch.zeros(2, dtype=torch.int32))
    assert not same_bits(torch.zeros(2), torch.zeros(2, 1))
