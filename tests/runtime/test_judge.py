"""Fingerprints of KV rows: one for each position and pool, another one for any other bit."""

from __future__ import annotations

import pytest
import torch

from runtime.bundle.signs import Chosen
from runtime.fingerprints import fingerprints
from runtime.request import Request
from runtime.sequence import Sequence

BLOCK = 4
# Positions 0..5 of one request in blocks 3 and 1, positions 0..1 of another in block 2
MEMBERS = [
    Sequence(Request("a", (0,)), 9, [0] * 7, [3, 1], num_computed=6),
    Sequence(Request("b", (0,)), 9, [0] * 3, [2], num_computed=2),
]


def pools(dtype: torch.dtype) -> dict[str, torch.Tensor]:
    numbers = torch.Generator().manual_seed(0)
    return {f"kv.0.{half}": torch.randn(4, BLOCK, 2, 8, generator=numbers).to(dtype) for half in "kv"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_p1_one_bit_of_one_row_changes_its_fingerprint_alone(dtype: torch.dtype) -> None:
    right = pools(dtype)
    before = fingerprints(right, MEMBERS, BLOCK)
    assert [tuple(found.shape) for found in before] == [(6, 2), (2, 2)]
    for channel in (0, 7):
        wrong = {name: pool.clone() for name, pool in right.items()}
        # Position 5 is the second of the request's second block
        row = wrong["kv.0.v"][1, 1, 1]
        row[channel] = torch.nextafter(row[channel], row[channel] + 1)
        after = fingerprints(wrong, MEMBERS, BLOCK)
        assert (before[0] != after[0]).nonzero().tolist() == [[5, 1]]
        assert torch.equal(before[1], after[1])


def test_p1_a_row_in_another_place_has_the_same_fingerprint() -> None:
    held = pools(torch.float32)
    moved = {name: pool[[0, 3, 2, 1]] for name, pool in held.items()}
    elsewhere = [
        Sequence(one.request, 9, one.token_ids, blocks, num_computed=one.num_computed)
        for one, blocks in zip(MEMBERS, ([1, 3], [2]), strict=True)
    ]
    pairs = zip(fingerprints(held, MEMBERS, BLOCK), fingerprints(moved, elsewhere, BLOCK), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_p1_a_signed_zero_is_a_zero() -> None:
    zeros = {"kv.0.k": torch.zeros(4, BLOCK, 2, 8)}
    signed = {"kv.0.k": -torch.zeros(4, BLOCK, 2, 8)}
    pairs = zip(fingerprints(zeros, MEMBERS, BLOCK), fingerprints(signed, MEMBERS, BLOCK), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_p1_drafts_before_a_sign_were_all_accepted() -> None:
    rows = ([4, 5, -2, -1], [4, 5, -1, -1], [-2, -1, -1, -1], [4, 5, 6, 7])
    assert [Chosen.of(row, 64).num_accepted for row in rows] == [2, 1, 0, 3]
