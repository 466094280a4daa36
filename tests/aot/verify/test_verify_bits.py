"""`BitsCheck` says yes where bits stay and no where they do not: by row, by bucket, by place, by width."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from aot.verify.bits import BitsCheck, same
from runtime.schedule import KSchedule
from tests.aot.verify.whole_numbers import Change, WholeNumbers
from tests.runtime.loop.rig import Rig, Shape, make_rig

THREE_SIZES = Shape(num_seqs=(1, 2, 4))


def check(change: Change | None = None, shape: Shape = THREE_SIZES) -> BitsCheck:
    return BitsCheck(make_rig(shape).manifest, WholeNumbers(change))


def only(where: Callable[[Tensor], Tensor]) -> Change:
    """One more in the places that `where` picks out of [R, Q, H] zeros; still a whole number."""
    return lambda hidden, table: where(torch.zeros_like(hidden))


def set_at(zeros: Tensor, *index: int | slice) -> Tensor:
    if all(isinstance(i, slice) or i < n for i, n in zip(index, zeros.shape, strict=False)):
        zeros[index] = 1
    return zeros


def test_bits_that_stay_are_seen_to_stay() -> None:
    bits = check()
    assert bits.rows_keep_bits()
    assert bits.axes() == ("requests", "context")


def test_the_check_compares_values_that_depend_on_everything() -> None:
    """Token, position and KV content all reach the features and the KV rows; else a yes would mean nothing."""
    bits = check()
    place = (4, 64, 0)
    base = bits.speculative(place)
    assert not torch.equal(base[0], bits.speculative(place, start=bits.start - 1)[0])
    bits.content["kv.0.v"][bits.members[0].block_ids[0]] += 1
    assert not torch.equal(base[0], bits.speculative(place)[0])
    bits.tokens[0] = (bits.tokens[0] + 1) % 64
    assert not torch.equal(base[1], bits.speculative(place)[1])


@pytest.mark.parametrize("row", [1, 2, 3])
def test_a_row_with_other_bits_is_seen(row: int) -> None:
    """Row 1 of a pass differs from the same token as row 0: what greedy speculation may not rest on."""
    assert not check(only(lambda zeros: set_at(zeros, slice(None), row))).rows_keep_bits()


def test_a_kernel_that_differs_by_the_number_of_requests_keeps_rows_but_not_requests() -> None:
    bits = check(lambda hidden, table: torch.ones_like(hidden) * (hidden.shape[0] == 1))
    assert bits.rows_keep_bits()
    assert bits.axes() == ("context",)


@pytest.mark.parametrize("index", [1, 2, 3])
def test_a_kernel_that_differs_by_the_place_in_the_batch_is_seen(index: int) -> None:
    """A request's place changes when another ends, which speculation does sooner: no promise is possible."""
    bits = check(only(lambda zeros: set_at(zeros, index)))
    assert not bits.rows_keep_bits()


def test_a_kernel_that_differs_by_context_keeps_rows_but_not_context() -> None:
    bits = check(lambda hidden, table: torch.ones_like(hidden) * (table.shape[1] == 8))
    assert bits.rows_keep_bits()
    assert bits.axes() == ("requests",)


LONG = Shape(max_model_len=1024, context_tokens=(256, 1024), max_num_seqs=1, num_seqs=(1,), layers=4)


@pytest.mark.parametrize("tokens", [64, 128, 192, 1024])
def test_a_width_between_the_buckets_counts_too(tokens: int) -> None:
    """The loop's block table grows in steps of 64 tokens, so bits must stay at those widths as well."""
    assert check(shape=LONG).axes() == ("requests", "context")
    bits = check(lambda hidden, table: torch.ones_like(hidden) * (table.shape[1] == tokens // 4), LONG)
    # Within one width all is well; every width is compared with the whole one
    assert bits.rows_keep_bits()
    assert bits.axes() == ("requests",)


def test_widths_that_change_bits_are_left_out_of_those_to_decode_at() -> None:
    bits = check(lambda hidden, table: torch.ones_like(hidden) * (table.shape[1] == 192 // 4), LONG)
    assert bits.context_widths() == (64, 128, 256, 320, 384, 448, 512, 640, 768, 896, 1024)


def test_the_widths_are_those_of_the_loop() -> None:
    """In steps of 64 tokens, and of a quarter of the width from 512 tokens on; block size 4."""
    places = check(shape=LONG).widths()
    tokens = [64, 128, 192, 256, 320, 384, 448, 512, 640, 768, 896, 1024]
    assert [columns * 4 for _, columns, _ in places] == tokens
    for context, columns, start in places:
        assert start == columns * 4 - 4
        assert context == (256 if columns <= 64 else 1024)


FEWER = Shape(num_seqs=(1, 2, 4), schedule=KSchedule.of([[1, 2, 2], [3, 4, 0]]))


def test_passes_with_fewer_rows_are_an_axis_of_their_own() -> None:
    bits = check(shape=FEWER)
    assert {(size, rows) for size, _, rows in bits.fewer} == {(1, 3), (2, 3), (4, 1)}
    assert bits.rows_keep_bits()
    assert bits.axes() == ("requests", "context", "drafts")


@pytest.mark.parametrize("rows", [1, 3])
def test_a_kernel_that_differs_by_rows_of_a_request_keeps_all_but_drafts(rows: int) -> None:
    bits = check(lambda hidden, table: torch.ones_like(hidden) * (hidden.shape[1] == rows), FEWER)
    assert bits.rows_keep_bits()
    assert bits.axes() == ("requests", "context")


@pytest.mark.parametrize("place", [(0, 1), (0, 2), (1, 0)])
def test_a_row_of_a_shorter_pass_with_other_bits_is_seen(place: tuple[int, int]) -> None:
    """One row of one request, in passes of three rows alone: (request, row)."""

    def change(hidden: Tensor, table: Tensor) -> Tensor:
        zeros = torch.zeros_like(hidden)
        return set_at(zeros, *place) if hidden.shape[1] == 3 else zeros

    assert check(change, FEWER).axes() == ("requests", "context")


def test_a_shorter_pass_is_judged_at_every_width_that_decoding_takes() -> None:
    shape = replace(LONG, schedule=KSchedule.constant(1))

    def change(hidden: Tensor, table: Tensor) -> Tensor:
        return torch.ones_like(hidden) * (table.shape[1] == 192 // 4 and hidden.shape[1] == 2)

    assert check(shape=shape).axes() == ("requests", "context", "drafts")
    assert check(change, shape).axes() == ("requests", "context")
    # At a width that decoding leaves out anyway nothing is asked of it
    both = check(lambda hidden, table: torch.ones_like(hidden) * (table.shape[1] == 192 // 4) * hidden.shape[1], shape)
    assert 192 not in both.context_widths()
    assert both.axes() == ("requests", "drafts")


def test_static_tables_are_checked_at_their_own_width_only() -> None:
    rig = make_rig(Shape())
    bits = BitsCheck(_with_static_tables(rig).manifest, WholeNumbers())
    assert bits.widths() == [(32, 8, 28), (64, 16, 60)]
    assert bits.axes() == ("requests", "context")


def _with_static_tables(rig: Rig) -> Rig:
    """The same graphs as a backend without dynamic dimensions has them."""
    graphs = []
    for graph in rig.manifest.graphs:
        inputs = tuple(
            replace(value, shape=(value.shape[0], graph.context // 4)) if value.name == "block_table" else value
            for value in graph.inputs
        )
        graphs.append(replace(graph, inputs=inputs))
    return replace(rig, manifest=replace(rig.manifest, graphs=tuple(graphs)))


def test_one_last_bit_is_a_difference() -> None:
    value = torch.tensor([1.0, 2.0, 3.0])
    assert same([value, value], [value.clone(), value.clone()])
    assert not same([value, value], [value, torch.nextafter(value, value + 1)])
