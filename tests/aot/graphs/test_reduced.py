"""A model made smaller for a check keeps what a check is for: taps, windows, heads, and what ranks cannot divide."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from aot.graphs.geometry import Geometry, over_ranks
from aot.graphs.reduced import MOST_DRAFT_VOCAB, MOST_VOCAB, reduced
from aot.graphs.table import graph_table
from tests.runtime.loop.rig import Shape, make_rig

TOY = make_rig(Shape()).geometry


def geometry(layers: int, taps: tuple[int, ...], vocab: int = 61, intermediate: int = 50, ranks: int = 1) -> Geometry:
    target = dataclasses.replace(
        TOY.target, num_layers=layers, vocab_size=vocab, intermediate_size=intermediate, windows=()
    )
    draft = dataclasses.replace(
        TOY.draft,
        aux_layers=taps,
        vocab_size=vocab,
        draft_vocab_size=vocab // 2,
        intermediate_size=intermediate,
    )
    return over_ranks(dataclasses.replace(TOY, target=target, draft=draft), ranks)


@given(st.data(), st.integers(1, 80))
def test_taps_stay_distinct_in_their_order_and_within_the_layers(data: st.DataObject, layers: int) -> None:
    taps = tuple(data.draw(st.lists(st.integers(0, layers), min_size=1, max_size=5)))
    small = reduced(geometry(layers, taps))
    places = small.draft.aux_layers
    assert small.target.num_layers <= layers
    assert all(0 <= place <= small.target.num_layers for place in places)
    for first in range(len(taps)):
        for second in range(len(taps)):
            assert (taps[first] < taps[second]) == (places[first] < places[second])
            assert (taps[first] == taps[second]) == (places[first] == places[second])
        assert (taps[first] == 0) == (places[first] == 0), (
            "the embedding stays the embedding and nothing else becomes it"
        )


@given(st.integers(14, 200_000), st.integers(1, 60_000), st.sampled_from([1, 2, 4, 8, 32]))
def test_sizes_are_cut_and_leave_the_rest_they_left(vocab: int, intermediate: int, ranks: int) -> None:
    whole = geometry(8, (2, 4, 6), vocab, intermediate, ranks)
    small = reduced(whole)
    for ours, theirs in (
        (small.target.vocab_size, whole.target.vocab_size),
        (small.target.intermediate_size, whole.target.intermediate_size),
        (small.draft.draft_vocab_size, whole.draft.draft_vocab_size),
        (small.draft.intermediate_size, whole.draft.intermediate_size),
    ):
        assert ours <= theirs
        assert ours % ranks == theirs % ranks
    assert small.target.vocab_size < MOST_VOCAB + ranks
    assert small.draft.draft_vocab_size < MOST_DRAFT_VOCAB + ranks
    assert small.draft.draft_vocab_size <= small.target.vocab_size
    assert small.target_vocab % ranks == small.draft_vocab % ranks == 0


def test_what_is_checked_stays() -> None:
    """Graphs by name, widths and heads."""
    whole = geometry(40, (2, 20, 37))
    small = reduced(whole)
    assert [g.name for g in graph_table(small).graphs] == [g.name for g in graph_table(whole).graphs]
    assert (small.target.num_layers, small.draft.aux_layers) == (3, (1, 2, 3))
    for field in ("hidden_size", "num_heads", "num_kv_heads", "head_dim"):
        assert getattr(small.target, field) == getattr(whole.target, field)
    assert small.buckets == whole.buckets


def test_a_pool_has_room_for_the_largest_graph() -> None:
    small = reduced(dataclasses.replace(geometry(8, (2, 4, 6)), num_blocks=10_000))
    assert small.num_blocks == 1 + 4 * 64 // 4


def test_every_kind_of_window_has_a_layer() -> None:
    whole = geometry(8, (1, 2, 3))
    windows = (0, 0, 0, 0, 16, 0, 16, 0)
    windowed = dataclasses.replace(whole, target=dataclasses.replace(whole.target, windows=windows))
    small = reduced(windowed)
    assert {small.target.window(layer) for layer in range(small.target.num_layers)} == {
        windowed.target.window(layer) for layer in range(8)
    }
