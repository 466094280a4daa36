"""The paged draft is the reference's: states, tokens and chain, from true features and from its own."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from aot.reference import draft_forward, target_forward, with_shared
from runtime.batch import pad_rows
from runtime.graphs import GraphSet
from runtime.request import Request
from runtime.sequence import Sequence as Running
from tests.runtime.loop.rig import Rig, Shape, make_rig, prompt_of

CLOSE = {"atol": 1e-4, "rtol": 0.0}
BLOCKS = [9, 3, 14, 5, 11, 2]
VARIANTS = {
    "plain": Shape(),
    "norm before residual": Shape(norm_before_residual=True),
    "wide heads": Shape(draft_head_dim=16),
    "other seed": Shape(seed=25),
}
every_variant = pytest.mark.parametrize("shape", VARIANTS.values(), ids=VARIANTS)


def member(*blocks: int) -> Running:
    return Running(Request("a", (0,)), 0, [], list(blocks))


def features_of(rig: Rig, tokens: Sequence[int]) -> Tensor:
    return target_forward(rig.target_weights, rig.target, tokens, rig.draft.aux_layers)[1]


def initial(rig: Rig, graphs: GraphSet, committed: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The draft's prefill over `committed`: draft token [1], state [1, H]."""
    rows = len(committed) - 1
    graph, bucket = graphs.prefill("draft_initial_prefill", rows, rows)
    inputs = pad_rows([member(*BLOCKS)], [committed[1:]], [0], bucket, 4)
    true = features_of(rig, committed[:-1])
    inputs["features"] = torch.cat([true, torch.full((bucket.rows_each - rows, true.shape[1]), 7.0)])
    inputs["last_index"] = torch.tensor([rows - 1], dtype=torch.int32)
    token, state = graph(inputs)
    return token, state


@every_variant
@pytest.mark.parametrize("length", [2, 5, 6, 13])
def test_the_first_pass_gives_the_references_state_and_token(shape: Shape, length: int) -> None:
    """C1: the state that is handed on is the stream before the final norm."""
    rig = make_rig(shape)
    committed = prompt_of(length, length)
    token, state = initial(rig, rig.graphs(), committed)
    weights = with_shared(rig.draft_weights, rig.target_weights)
    logits, states = draft_forward(weights, rig.draft, committed[1:], features_of(rig, committed[:-1]))
    torch.testing.assert_close(state, states[-1:], **CLOSE)
    draft_id = int(logits[-1].argmax())
    assert token.tolist() == [draft_id + int(rig.draft_weights["d2t"][draft_id])]


@every_variant
@pytest.mark.parametrize("seed", range(4))
def test_the_chain_is_the_references_token_by_token(shape: Shape, seed: int) -> None:
    """One pass over true features, then five rows that live on the draft's own states."""
    rig = make_rig(shape)
    graphs, committed = rig.graphs(), prompt_of(9, seed)
    token, state = initial(rig, graphs, committed)
    chain = token.tolist()
    for step in range(5):
        position = len(committed) - 1 + step
        graph, bucket = graphs.decode("draft_recurrent", 1, position + 1)
        inputs = pad_rows([member(*BLOCKS)], [chain[-1:]], [position], bucket, 4)
        inputs["state"] = state
        token, state = graph(inputs)
        chain += token.tolist()
    assert chain == rig.chain(committed, 6)


@every_variant
def test_the_first_pass_leaves_the_kv_of_its_rows(shape: Shape) -> None:
    rig = make_rig(shape)
    graphs, committed = rig.graphs(), prompt_of(11, 4)
    initial(rig, graphs, committed)
    slots = [BLOCKS[i // 4] * 4 + i % 4 for i in range(10)]
    for half, expected in zip("kv", rig.draft_kv(committed), strict=True):
        pool = graphs.pools[f"kv.{rig.target.num_layers}.{half}"]
        assert pool.shape[2:] == (2, shape.draft_head_dim)
        torch.testing.assert_close(pool.flatten(0, 1)[slots], expected, **CLOSE)


def test_two_requests_each_propose_from_their_own_last_row() -> None:
    """After a verify pass: request 0 committed three tokens, request 1 one, in a bucket of four."""
    rig = make_rig()
    graphs = rig.graphs()
    members = [member(9, 3, 14, 5), member(4, 13, 6, 10)]
    committed = [prompt_of(9, 1), prompt_of(7, 2)]
    counts = [3, 1]
    for one, text, count in zip(members, committed, counts, strict=True):
        # The rows before those that this pass runs
        rows = len(text) - 1 - count
        graph, bucket = graphs.prefill("draft_initial_prefill", rows, rows)
        inputs = pad_rows([one], [text[1 : 1 + rows]], [0], bucket, 4)
        inputs["features"] = torch.zeros(bucket.rows_each, 96)
        inputs["features"][:rows] = features_of(rig, text[:rows])
        inputs["last_index"] = torch.tensor([rows - 1], dtype=torch.int32)
        graph(inputs)
    graph, bucket = graphs.decode("draft_initial", 2, 8)
    starts = [len(text) - 1 - count for text, count in zip(committed, counts, strict=True)]
    runs = [list(text[len(text) - count :]) for text, count in zip(committed, counts, strict=True)]
    inputs = pad_rows(members, runs, starts, bucket, 4)
    inputs["features"] = torch.full((16, 96), 5.0)
    for r, (text, start, count) in enumerate(zip(committed, starts, counts, strict=True)):
        inputs["features"][4 * r : 4 * r + count] = features_of(rig, text[:-1])[start:]
    inputs["last_index"] = torch.tensor([2, 4, 8, 12], dtype=torch.int32)
    tokens, states = graph(inputs)
    assert states.shape == (4, 32)
    assert tokens[:2].tolist() == [rig.chain(text, 1)[0] for text in committed]


def test_proposals_are_ids_of_the_targets_vocabulary() -> None:
    """B1: draft ids 0..15 are read through d2t; as they are, some would be no token that the draft knows."""
    rig = make_rig()
    known = set((torch.arange(16) + rig.draft_weights["d2t"]).tolist())
    assert known != set(range(16))
    graphs = rig.graphs()
    proposed = {initial(rig, graphs, prompt_of(5, seed))[0].item() for seed in range(40)}
    assert proposed <= known
    assert len(proposed) > 4
