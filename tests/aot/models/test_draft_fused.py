"""The fused draft is the initial pass and the recurrent ones behind it: the same drafts, the same KV."""

from __future__ import annotations

from functools import lru_cache

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from aot.graphs.modules import export, fill_random, module
from aot.models.fused import slots_of
from runtime.blocks import slot_of
from runtime.graphs import GraphSet
from tests.aot.toy_drafts import VARIANTS, rig_of_variant
from tests.runtime.loop.rig import K, Rig, Shape, make_rig, rig_of_pair

BLOCK, BLOCKS, ROWS = 4, 8, 1 + K
every_variant = pytest.mark.parametrize("name", VARIANTS)


@lru_cache(maxsize=len(VARIANTS))
def fused_rig(name: str) -> Rig:
    plain = rig_of_variant(name)
    return rig_of_pair(plain.target, plain.target_weights, plain.draft, plain.draft_weights, Shape(draft_fused=True))


def ints(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def both(name: str) -> tuple[GraphSet, GraphSet]:
    """The graphs of the separate and of the fused draft over equal pools full of noise."""
    separate, fused = rig_of_variant(name).graphs(), fused_rig(name).graphs()
    for index, (pool, same) in enumerate(zip(separate.pools.values(), fused.pools.values(), strict=True)):
        pool.copy_(random(*pool.shape, seed=index))
        same.copy_(pool)
    return separate, fused


# Four requests of eight blocks each; what was accepted, where their rows begin, how long each may become
TABLE = 1 + torch.arange(4 * BLOCKS, dtype=torch.int32).view(4, BLOCKS)
ACCEPTED = torch.tensor([[7, -1, -1, -1], [3, 9, 60, -1], [1, 2, 3, 4], [11, 12, -1, -1]], dtype=torch.int32)
STARTS, LIMITS = (5, 0, 13, 20), (32, 32, 32, 23)
# Rows that the recurrent steps write: of the last request only position 22, and then its limit of 23 is reached
WRITTEN = (K - 1, K - 1, K - 1, 1)


def verify_rows() -> tuple[Tensor, Tensor]:
    """Positions and slots of all rows of the verify pass, whatever was accepted."""
    positions = torch.tensor([[start + i for i in range(ROWS)] for start in STARTS], dtype=torch.int32)
    slots = [[slot_of(TABLE[r].tolist(), int(p), BLOCK) for p in row] for r, row in enumerate(positions)]
    return positions.flatten(), torch.tensor(slots, dtype=torch.int32).flatten()


@every_variant
def test_after_a_verify_pass_drafts_and_kv_are_those_of_the_separate_passes(name: str) -> None:
    separate, fused = both(name)
    rig = rig_of_variant(name)
    width = rig.draft.num_aux * rig.target.hidden_size
    features = random(4 * ROWS, width, seed=99)
    positions, slots = verify_rows()
    (step_tokens,) = fused.decode("draft_fused", 4, 32)[0](
        {
            "accepted": ACCEPTED,
            "positions": positions,
            "slot_mapping": slots,
            "block_table": TABLE,
            "features": features,
            "length_limits": ints(*LIMITS),
        }
    )
    kept = ACCEPTED.flatten() >= 0
    last = [int((row >= 0).sum()) - 1 for row in ACCEPTED]
    token, state = separate.decode("draft_initial", 4, 32)[0](
        {
            "tokens": torch.where(kept, ACCEPTED.flatten(), 0),
            "positions": torch.where(kept, positions, 0),
            "slot_mapping": torch.where(kept, slots, 0),
            "block_table": TABLE,
            "features": features,
            "last_index": ints(*(r * ROWS + index for r, index in enumerate(last))),
        }
    )
    chain = [token]
    for step in range(1, K):
        places = [start + index + step for start, index in zip(STARTS, last, strict=True)]
        on = [step <= written for written in WRITTEN]
        token, state = separate.decode("draft_recurrent", 4, 32)[0](
            {
                "tokens": torch.where(torch.tensor(on), token, 0),
                "state": state,
                "positions": ints(*(place if go else 0 for place, go in zip(places, on, strict=True))),
                "slot_mapping": ints(
                    *(slot_of(TABLE[r].tolist(), places[r], BLOCK) if go else 0 for r, go in enumerate(on))
                ),
                "block_table": TABLE,
            }
        )
        chain.append(token)
    assert torch.equal(step_tokens[:, :ROWS], ACCEPTED)
    drafts = torch.stack(chain, dim=1)
    assert torch.equal(step_tokens[:3, ROWS:], drafts[:3])
    # The last request's third draft would come from a row past its limit
    assert torch.equal(step_tokens[3, ROWS : ROWS + 2], drafts[3, :2])
    for pool, same in zip(separate.pools.values(), fused.pools.values(), strict=True):
        # All but the null block, where padding rows write whatever they have
        torch.testing.assert_close(pool[1:], same[1:], atol=1e-6, rtol=1e-6)


@every_variant
@pytest.mark.parametrize("final", [True, False])
def test_after_a_prompt_chunk_the_shift_is_made_inside(name: str, final: bool) -> None:
    """Row i takes token i+1, the last row the token that is given; where the prompt goes on, no more is written."""
    separate, fused = both(name)
    rig = rig_of_variant(name)
    tokens, following, rows = [5, 6, 7, 8, 9], 42, 5
    features = random(16, rig.draft.num_aux * rig.target.hidden_size, seed=98)
    table = TABLE[:1]
    padding = [0] * (16 - rows)
    paging = {
        "positions": ints(*range(2, 2 + rows), *padding),
        "slot_mapping": ints(*(slot_of(table[0].tolist(), 2 + i, BLOCK) for i in range(rows)), *padding),
        "block_table": table,
        "features": features,
        "last_index": ints(rows - 1),
    }
    (step_tokens,) = fused.prefill("draft_fused_prefill", rows, 32)[0](
        {
            **paging,
            "tokens": ints(*tokens, *padding),
            "next_token": ints(following),
            "length_limits": ints(32 if final else 0),
        }
    )
    token, state = separate.prefill("draft_initial_prefill", rows, 32)[0](
        {**paging, "tokens": ints(*tokens[1:], following, *padding)}
    )
    chain = token.tolist()
    for position in range(2 + rows, 2 + rows + K - 1) if final else ():
        token, state = separate.decode("draft_recurrent", 1, 32)[0](
            {
                "tokens": token,
                "state": state,
                "positions": ints(position),
                "slot_mapping": ints(slot_of(table[0].tolist(), position, BLOCK)),
                "block_table": table,
            }
        )
        chain += token.tolist()
    assert step_tokens[0, : 1 + len(chain)].tolist() == [following, *chain]
    for pool, same in zip(separate.pools.values(), fused.pools.values(), strict=True):
        torch.testing.assert_close(pool[1:], same[1:], atol=1e-6, rtol=1e-6)


def test_a_step_past_the_block_table_s_width_writes_to_the_null_block_alone() -> None:
    graphs = make_rig(Shape(draft_fused=True)).graphs()
    narrow = TABLE[:1, :4]  # sixteen positions
    before = {name: pool.clone() for name, pool in graphs.pools.items()}
    graphs.decode("draft_fused", 1, 32)[0](
        {
            "accepted": ints(1, 2, 3, 4)[None],
            "positions": ints(12, 13, 14, 15),
            "slot_mapping": ints(*(slot_of(narrow[0].tolist(), p, BLOCK) for p in (12, 13, 14, 15))),
            "block_table": narrow,
            "features": random(ROWS, 96),
            "length_limits": ints(64),
        }
    )
    for name in ("kv.8.k", "kv.8.v"):
        changed = (graphs.pools[name] != before[name]).flatten(2).any(dim=2)
        assert changed.nonzero().tolist() == [[0, 0], *([4, offset] for offset in range(4))]


@given(st.data())
def test_a_slot_is_found_by_comparing(data: st.DataObject) -> None:
    block_size, width = data.draw(st.integers(1, 33)), data.draw(st.integers(1, 9))
    ids = st.lists(st.integers(0, 1000), min_size=width, max_size=width)
    table = data.draw(st.lists(ids, min_size=1, max_size=4))
    positions = [data.draw(st.integers(0, width * block_size - 1)) for _ in table]
    found = slots_of(ints(*positions), torch.tensor(table, dtype=torch.int32), block_size)
    assert found.dtype == torch.int32
    assert found.tolist() == [slot_of(row, place, block_size) for row, place in zip(table, positions, strict=True)]


@pytest.mark.parametrize("name", ["specforge", "two layers", "norm output", "final state", "full vocabulary"])
def test_the_fused_units_can_be_exported(name: str) -> None:
    """With context and pools of any size, further layers' pools among them."""
    for unit in fused_rig(name).table.units:
        if unit.kind.startswith("draft_fused"):
            made = module(unit)
            fill_random(made)
            with torch.no_grad():
                program = export(unit, made)
            assert len(program.graph_signature.user_inputs) == len(unit.inputs)
