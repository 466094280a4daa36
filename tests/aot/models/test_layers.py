"""Paged attention and its helpers against the plainest dense forms."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aot.checkpoint.rope import inverse_frequencies
from aot.models.layers import RMSNorm, paged_attention, rotary_table, rotate, write_kv
from aot.reference import rms_norm
from aot.reference import rotate as reference_rotate


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 11), min_size=1, max_size=3),
    rows=st.integers(1, 4),
    block_size=st.sampled_from([1, 2, 4]),
    group=st.sampled_from([1, 3]),
    seed=st.integers(0, 99),
)
def test_paged_attention_is_dense_attention(
    lengths: list[int], rows: int, block_size: int, group: int, seed: int
) -> None:
    """Requests that hold `lengths` tokens run `rows` more; blocks lie in any order, with foreign content between."""
    generator = torch.Generator().manual_seed(seed)
    kv_heads, dim, blocks = 2, 8, -(-16 // block_size)
    pool_blocks = 1 + len(lengths) * blocks
    order = 1 + torch.randperm(pool_blocks - 1, generator=generator)
    table = order.view(len(lengths), blocks)
    keys = torch.randn(pool_blocks, block_size, kv_heads, dim, generator=generator)
    values = torch.randn(pool_blocks, block_size, kv_heads, dim, generator=generator)
    query = torch.randn(len(lengths) * rows, kv_heads * group, dim, generator=generator)
    positions = torch.cat([torch.arange(length, length + rows) for length in lengths])
    found = paged_attention(query, keys, values, table.int(), positions.int())
    for row, position in enumerate(positions.tolist()):
        entries = [(table[row // rows, p // block_size], p % block_size) for p in range(position + 1)]
        for head in range(kv_heads * group):
            seen = torch.stack([keys[block, place, head // group] for block, place in entries])
            read = torch.stack([values[block, place, head // group] for block, place in entries])
            shares = (seen @ query[row, head] / math.sqrt(dim)).softmax(0)
            torch.testing.assert_close(found[row, head * dim : (head + 1) * dim], shares @ read, atol=1e-5, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_scores_are_float32_and_the_result_keeps_the_dtype(dtype: torch.dtype) -> None:
    """Scores of 300 and 301: in bf16 they would be one number, and both values would get half."""
    query = torch.full((1, 1, 4), 1.0, dtype=dtype)
    keys = torch.zeros(2, 1, 1, 4, dtype=dtype)
    keys[:, 0, 0, 0] = torch.tensor([8.0, 16.0])
    values = torch.zeros(2, 1, 1, 4, dtype=dtype)
    values[1] = 1
    table, positions = torch.tensor([[0, 1]], dtype=torch.int32), torch.tensor([1], dtype=torch.int32)
    found = paged_attention(query, keys, values, table, positions)
    assert found.dtype == dtype
    # Scores 4 and 8 after scaling by 1/2
    expected = 1 / (1 + math.exp(-4))
    assert found[0, 0].item() == pytest.approx(expected, rel=4e-3 if dtype == torch.bfloat16 else 1e-6)


def test_kv_is_written_to_its_slots_in_place_and_nowhere_else() -> None:
    pool = torch.zeros(3, 2, 1, 2)
    same_storage = pool.data_ptr()
    write_kv(pool, torch.tensor([5, 2], dtype=torch.int32), torch.tensor([[[1.0, 2.0]], [[3.0, 4.0]]]))
    expected = torch.zeros(6, 1, 2)
    expected[5], expected[2] = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]])
    assert torch.equal(pool.view(6, 1, 2), expected)
    assert pool.data_ptr() == same_storage


@pytest.mark.parametrize(("head_dim", "theta"), [(8, 10000.0), (16, 500000.0)])
def test_rotary_tables_turn_as_the_reference_does(head_dim: int, theta: float) -> None:
    heads = torch.randn(40, 3, head_dim, generator=torch.Generator().manual_seed(0))
    expected = reference_rotate(heads, inverse_frequencies(head_dim, theta, None))
    torch.testing.assert_close(rotate(heads, rotary_table(40, head_dim, theta)), expected, atol=1e-5, rtol=0)


def test_a_quarter_turn_by_hand() -> None:
    """Position pi/2 does not exist, so the table's row is made: cos 0 and sin 1 take (x, y) to (-y, x)."""
    heads = torch.tensor([[[1.0, 2.0, 3.0, 4.0]]])
    angles = torch.tensor([[0.0, 0.0, 1.0, 1.0]])
    assert rotate(heads, angles).tolist() == [[[-3.0, -4.0, 1.0, 2.0]]]
    assert rotary_table(1, 4, 1e4).tolist() == [[1.0, 1.0, 0.0, 0.0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_norm_is_the_references_bit_for_bit(dtype: torch.dtype) -> None:
    norm = RMSNorm(16, 1e-5, dtype)
    norm.weight.data = torch.linspace(0.5, 2, 16).to(dtype)
    x = torch.randn(5, 16, generator=torch.Generator().manual_seed(0)).to(dtype)
    assert torch.equal(norm(x), rms_norm(x, norm.weight, 1e-5))
