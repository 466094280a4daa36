"""Ranks as threads: what collectives give, and what they refuse."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from aot.models.parallel import Ranks, all_gather, all_reduce
from aot.models.vocabulary import ShardedTable, argmax_over_ranks, whole_logits
from runtime.bundle.errors import HostError


def test_all_reduce_is_the_sum_on_every_rank() -> None:
    made = Ranks(4).run(lambda rank: all_reduce(torch.tensor([1.0, 10.0]) * (rank + 1), 4))
    assert [part.tolist() for part in made] == [[10.0, 100.0]] * 4


def test_all_gather_is_in_rank_order_along_its_dimension() -> None:
    parts = [torch.tensor([[rank, rank + 10]], dtype=torch.int32) for rank in range(3)]
    side = Ranks(3).run(lambda rank: all_gather(parts[rank], 1, 3))
    assert [part.tolist() for part in side] == [[[0, 10, 1, 11, 2, 12]]] * 3
    below = Ranks(3).run(lambda rank: all_gather(parts[rank], 0, 3))
    assert [part.tolist() for part in below] == [[[0, 10], [1, 11], [2, 12]]] * 3


def test_sums_have_the_same_bits_on_every_rank() -> None:
    """The residual stream is whole on each rank, so ranks that rounded differently would drift apart."""
    parts = torch.randn(8, 64, generator=torch.Generator().manual_seed(0)).bfloat16()
    made = Ranks(8).run(lambda rank: all_reduce(parts[rank], 8))
    assert made[0].dtype == torch.bfloat16
    assert all(torch.equal(part, made[0]) for part in made)


def test_many_collectives_in_a_row_do_not_mix() -> None:
    def chain(rank: int) -> list[float]:
        return [float(all_reduce(torch.tensor([float(rank * step)]), 4)) for step in range(200)]

    assert Ranks(4).run(chain) == [[6.0 * step for step in range(200)]] * 4


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.bool])
def test_integers_are_never_added_over_ranks(dtype: torch.dtype) -> None:
    """An accelerator adds them in float32, which loses ids above 2**24."""
    with pytest.raises(TypeError, match="floating-point tensors only"):
        Ranks(2).run(lambda rank: all_reduce(torch.ones(2).to(dtype), 2))
    with FakeTensorMode(), pytest.raises(TypeError, match="floating-point tensors only"):
        all_reduce(torch.ones(2).to(dtype), 2)


def test_a_collective_of_one_program_alone_is_refused_in_one_sentence() -> None:
    with pytest.raises(HostError) as error:
        all_reduce(torch.ones(2), 4)
    assert str(error.value) == (
        "A graph of 4 ranks was run outside of them: expected a call inside Ranks(4).run, "
        "found a call of one program alone."
    )
    with pytest.raises(HostError, match="found 2 ranks"):
        Ranks(2).run(lambda rank: all_gather(torch.ones(2), 0, 4))


def test_a_rank_that_fails_stops_the_others() -> None:
    def work(rank: int) -> Tensor:
        if rank == 1:
            raise ValueError("rank 1 has no weights")
        return all_reduce(torch.ones(1), 3)

    with pytest.raises(ValueError, match="rank 1 has no weights"):
        Ranks(3).run(work)


def test_ranks_in_different_collectives_have_diverged() -> None:
    with pytest.raises(RuntimeError, match="ranks have diverged"):
        Ranks(2).run(lambda rank: all_reduce(torch.ones(1 + rank), 2))


def test_ranks_can_run_again() -> None:
    ranks = Ranks(2)
    with pytest.raises(RuntimeError, match="ranks have diverged"):
        ranks.run(lambda rank: all_reduce(torch.ones(1 + rank), 2))
    assert [float(made) for made in ranks.run(lambda rank: all_reduce(torch.ones(1), 2))] == [2.0, 2.0]


def test_an_exported_program_has_each_collective_as_one_node_and_the_rank_as_an_input() -> None:
    class Both(nn.Module):
        def forward(self, rank: Tensor, rows: Tensor) -> Tensor:
            return all_gather(all_reduce(rows * rank, 4), 1, 4)

    rank = torch.zeros(1, dtype=torch.int32)
    program = torch.export.export(Both(), (rank, torch.ones(2, 3)), strict=False)
    names = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert names == ["aten.mul.Tensor", "eagle3.all_reduce.default", "eagle3.all_gather.default"]
    assert program.graph_signature.user_inputs == ("rank", "rows")
    (output,) = program.graph.find_nodes(op="output")[0].args[0]
    assert tuple(output.meta["val"].shape) == (2, 12)


def ranked(rank: int) -> Tensor:
    return torch.tensor([rank], dtype=torch.int32)


def test_a_lookup_in_a_shared_table_is_the_whole_table_s() -> None:
    """Seven tokens on four ranks, two rows each; the last row is padding, and no number in it is ever read."""
    whole = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
    rows = torch.cat([whole, torch.full((1, 3), torch.nan)])

    def look_up(rank: int) -> Tensor:
        table = ShardedTable(2, 3, dtype=torch.float32, ranks=4)
        table.weight.data = rows[2 * rank : 2 * rank + 2]
        return table.lookup(torch.tensor([6, 0, 3, 3, 5], dtype=torch.int32), ranked(rank))

    for made in Ranks(4).run(look_up):
        assert torch.equal(made, whole[[6, 0, 3, 3, 5]])


def greedy(logits: Tensor, ranks: int, real: int = 0) -> list[list[int]]:
    parts = logits.chunk(ranks, dim=1)
    return [made.tolist() for made in Ranks(ranks).run(lambda r: argmax_over_ranks(parts[r], ranked(r), ranks, real))]


def test_the_lowest_id_wins_a_tie_within_a_rank_and_between_ranks() -> None:
    """G4: as one argmax over the whole vocabulary has it."""
    logits = torch.tensor(
        [
            [0.0, 5.0, 5.0, 1.0, 5.0, 0.0, 0.0, 5.0],
            [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
            [-3.0, -9.0, -4.0, -2.0, -9.0, -2.0, -2.0, -7.0],
            [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
        ]
    ).bfloat16()
    for ranks in (2, 4, 8):
        assert greedy(logits, ranks) == [[1, 0, 3, 7]] * ranks


def test_a_large_id_survives() -> None:
    """Above 2**24 an integer that went through float32 would be another one."""
    entries = (1 << 24) + 3
    logits = torch.zeros(1, 2)
    logits[0, 1] = 1.0

    def choose(rank: int) -> Tensor:
        # The rank counts in steps of its columns, so a far rank of a narrow head stands for a wide vocabulary
        return argmax_over_ranks(logits - rank, torch.tensor([entries + rank], dtype=torch.int32), 2, 1 << 30)

    assert [made.tolist() for made in Ranks(2).run(choose)] == [[2 * entries + 1]] * 2


def test_rows_without_a_number_give_an_id_of_the_vocabulary() -> None:
    """What NaN chooses means nothing, but it must not lead outside of a table."""
    ids = greedy(torch.full((1, 8), torch.nan), 4, real=7)
    assert ids == [[6]] * 4


def test_logits_of_all_ranks_stand_side_by_side() -> None:
    logits = torch.arange(12.0).view(2, 6)
    parts = logits.chunk(3, dim=1)
    for made in Ranks(3).run(lambda rank: whole_logits(parts[rank], 3)):
        assert torch.equal(made, logits)
