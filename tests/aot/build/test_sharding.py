"""Each rank's part of a weight: which entries it holds, and that together they are the whole."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from aot.build.scopes import scopes
from aot.build.sharding import is_sharded, shard
from aot.graphs.geometry import Geometry, Padding, over_ranks
from aot.graphs.modules import module
from aot.graphs.table import graph_table
from tests.aot.ranked import odd_rig, shared
from tests.aot.toy_drafts import rig_of_variant
from tests.runtime.loop.rig import make_rig


def sizes(ranks: int) -> Geometry:
    """Of a target with 8 query heads and 4 KV heads of 4 channels, and a draft with 8 and 2 of 6."""
    return over_ranks(odd_rig().geometry, ranks)


def numbered(*shape: int) -> Tensor:
    """Entries that tell their row: 0, 1, 2, ... in each column, so a part shows where it was cut."""
    rows = torch.arange(float(shape[0]))
    return rows if len(shape) == 1 else rows[:, None].expand(shape).clone()


def rows_of(*ranges: tuple[int, int]) -> list[float]:
    return [float(row) for first, last in ranges for row in range(first, last)]


# Rows of the fused weight: queries 0-31, keys 32-47, values 48-63
QKV = {
    (2, 0): rows_of((0, 16), (32, 40), (48, 56)),
    (2, 1): rows_of((16, 32), (40, 48), (56, 64)),
    (4, 1): rows_of((8, 16), (36, 40), (52, 56)),
    (8, 0): rows_of((0, 4), (32, 36), (48, 52)),
    # Two ranks read one KV head
    (8, 1): rows_of((4, 8), (32, 36), (48, 52)),
    (8, 7): rows_of((28, 32), (44, 48), (60, 64)),
}


@pytest.mark.parametrize(("ranks", "rank"), QKV)
@pytest.mark.parametrize("kind", ["weight", "bias"])
def test_a_rank_has_its_queries_and_the_keys_and_values_they_read(ranks: int, rank: int, kind: str) -> None:
    fused = numbered(64, 3) if kind == "weight" else numbered(64)
    part = shard("target.layers.0", f"self_attn.qkv_proj.{kind}", fused, rank, sizes(ranks))
    assert (part[:, 0] if kind == "weight" else part).tolist() == QKV[ranks, rank]


def test_the_draft_s_heads_are_the_draft_s_in_every_layer() -> None:
    """Queries 0-47, keys 48-59, values 60-71: two KV heads of six, each for four of eight ranks."""
    for name in ("self_attn.qkv_proj.weight", "layers.1.self_attn.qkv_proj.weight"):
        part = shard("draft", name, numbered(72, 2), 5, sizes(8))
        assert part[:, 0].tolist() == rows_of((30, 36), (54, 60), (66, 72))


def test_gate_and_up_are_cut_apart_and_filled_with_zero_rows() -> None:
    """Fifty channels on four ranks: thirteen each, and eleven and two zeros on the last."""
    fused = numbered(100, 2) + 1
    first = shard("target.layers.3", "mlp.gate_up_proj.weight", fused, 0, sizes(4))[:, 0].tolist()
    assert first == rows_of((1, 14), (51, 64))
    last = shard("target.layers.3", "mlp.gate_up_proj.weight", fused, 3, sizes(4))[:, 0].tolist()
    assert last == [*rows_of((40, 51)), 0, 0, *rows_of((90, 101)), 0, 0]


def test_what_reads_shared_channels_has_their_columns() -> None:
    down = numbered(50, 32).T + 1
    part = shard("target.layers.0", "mlp.down_proj.weight", down, 3, sizes(4))
    assert part.shape == (32, 13)
    assert part[0].tolist() == [*rows_of((40, 51)), 0, 0]
    output = shard("draft", "layers.2.self_attn.o_proj.weight", numbered(48, 36).T, 1, sizes(2))
    assert output[0].tolist() == rows_of((24, 48))


def test_the_vocabulary_is_cut_in_equal_rows_with_padding_behind_the_last() -> None:
    """61 tokens on eight ranks: eight rows each, the last three of them padding."""
    table, geometry = numbered(61, 2) + 1, sizes(8)
    assert shard("draft", "embed_tokens.weight", table, 7, geometry)[:, 0].tolist() == [*rows_of((57, 62)), 0, 0, 0]
    # The draft's 13, which pad_draft_scope has made 16
    head = torch.cat([numbered(13, 2) + 1, torch.zeros(3, 2)])
    parts = [shard("draft", "lm_head.weight", head, rank, geometry)[:, 0].tolist() for rank in (0, 6, 7)]
    assert parts == [[1, 2], [13, 0], [0, 0]]
    # Three rows on eight ranks leave most of them with padding alone
    assert shard("draft", "lm_head.weight", numbered(3, 1) + 1, 6, geometry).tolist() == [[0.0]]


WHOLE = [
    ("target.embed", "rotary.weight"),
    ("target.layers.0", "input_layernorm.weight"),
    ("target.layers.0", "self_attn.q_norm.weight"),
    ("target.layers.0", "self_attn.o_proj.bias"),
    ("target.layers.0", "mlp.down_proj.bias"),
    ("target.head", "norm.weight"),
    ("draft", "target_ids.weight"),
    ("draft", "fc_norm.0.weight"),
    ("draft", "input_norm.weight"),
    ("draft", "layers.1.mlp.down_proj.bias"),
]


@pytest.mark.parametrize(("scope", "name"), WHOLE)
def test_everything_else_is_whole_on_every_rank(scope: str, name: str) -> None:
    weight = torch.ones(7)
    assert not is_sharded(scope, name)
    assert shard(scope, name, weight, 1, sizes(2)) is weight


def test_one_rank_holds_every_weight_as_it_is() -> None:
    rig = odd_rig()
    for scope, weights in scopes(rig.geometry, rig.target_weights, rig.draft_weights):
        for name, weight in weights.items():
            assert shard(scope, name, weight, 0, rig.geometry) is weight


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("name", ["biases", "two layers", "full vocabulary", "query and key norms", "other width"])
def test_every_part_has_the_shape_that_its_unit_declares(name: str, ranks: int) -> None:
    for rig in shared(rig_of_variant(name), ranks):
        for graph in rig.table.graphs:
            for call in graph.calls:
                with torch.device("meta"):
                    declared = module(rig.backend._specs[call.unit])
                held = rig.backend._weights[call.scope]
                for weight, parameter in declared.named_parameters():
                    assert held[weight].shape == parameter.shape, (call.scope, weight)


# Geometry


def test_head_vocabularies_are_padded_to_a_multiple_of_the_ranks() -> None:
    """M7: the graphs know how many tokens there are."""
    geometry = sizes(4)
    assert (geometry.target_padding, geometry.draft_padding) == (Padding(vocab=64), Padding(vocab=16))
    even = over_ranks(make_rig().geometry, 4)
    assert (even.target_padding, even.draft_padding) == (Padding(), Padding())
    # On top of what a backend wants for other reasons
    wanted = replace(odd_rig().geometry, target_padding=Padding(hidden=40, vocab=62))
    assert over_ranks(wanted, 4).target_padding == Padding(hidden=40, vocab=64)
    assert over_ranks(wanted, 2).target_padding == Padding(hidden=40, vocab=62)


def test_kv_heads_of_the_pools_are_those_of_one_rank() -> None:
    heads = {ranks: [group.kv_heads for group in sizes(ranks).kv_groups()] for ranks in (1, 2, 4, 8)}
    assert heads == {1: [4, 2], 2: [2, 1], 4: [1, 1], 8: [1, 1]}


def test_the_rank_is_no_input_of_a_graph_and_the_first_of_the_calls_that_need_it() -> None:
    """As the KV pools are: the loop hands in neither."""
    table = graph_table(sizes(4))
    for graph in table.graphs:
        assert "rank" not in {value.name for value in graph.inputs}
        for call in graph.calls:
            assert ("rank" in call.inputs[1:], call.inputs[0] == "rank") == (False, ".layers." not in call.scope)


def test_one_rank_changes_no_unit_and_no_graph() -> None:
    """So every build so far keeps its cache keys and its bits."""
    whole = odd_rig().geometry
    assert over_ranks(whole, 1) == whole
    table = graph_table(whole)
    for unit in table.units:
        assert "ranks" not in unit.arguments
        assert "rank" not in {value.name for value in unit.inputs}
    assert not any("rank" in call.inputs for graph in table.graphs for call in graph.calls)
