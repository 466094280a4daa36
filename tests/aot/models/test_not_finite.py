"""N1 in the models: what a row that is not finite leaves in a pool, what a head says of it, on one rank and several."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from aot.models.fused import DraftFused, DraftFusedPrefill
from aot.models.layers import all_finite, contain, paged_attention
from aot.models.llama import TargetPrefillHead, TargetVerifyHead
from aot.models.parallel import Ranks
from aot.models.vocabulary import argmax_over_ranks
from runtime.bundle.signs import NOT_FINITE, NOTHING
from runtime.proposer import NoProposer
from runtime.request import Request, RequestOutput
from tests.aot.models.family_models import rig_of_model, save_model
from tests.aot.ranked import odd_rig, on_every_rank, shared
from tests.aot.toy_drafts import rig_of_variant
from tests.runtime.loop.poison import BAD, NAN, damaged, without
from tests.runtime.loop.rig import Rig, Shape, prompt_of

INFINITE = (NAN, float("inf"), -float("inf"))
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_n1_the_largest_numbers_are_finite_and_what_is_beyond_is_not(dtype: torch.dtype) -> None:
    largest = torch.finfo(dtype).max
    rows = torch.tensor([[0.0, largest, -largest], *([1.0, bad, 2.0] for bad in INFINITE)]).to(dtype)
    assert all_finite(rows).flatten().tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("bad", INFINITE)
@pytest.mark.parametrize("half", ["key", "value"])
def test_n1_a_row_is_contained_and_no_other_bit_changes(half: str, bad: float, dtype: torch.dtype) -> None:
    key = torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(0)).to(dtype)
    value = torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(1)).to(dtype)
    key[0, 0, 0] = -0.0
    sound = contain(key, value)
    for made, given in zip(sound, (key, value), strict=True):
        assert torch.equal(made.view(torch.uint8), given.view(torch.uint8))
    broken = {"key": key.clone(), "value": value.clone()}
    broken[half][1, 1, 2] = bad
    made_key, made_value = contain(broken["key"], broken["value"])
    assert made_key[1].isnan().all()
    assert (made_value[1] == 0).all()
    for made, given in ((made_key, key), (made_value, value)):
        assert torch.equal(made[::2], given[::2])


@pytest.mark.parametrize("bad", INFINITE)
@pytest.mark.parametrize("window", [0, 2])
def test_n1_attention_tells_those_who_see_the_entry_and_nobody_else(window: int, bad: float) -> None:
    """Two requests of three rows over one block each; the entry at position 1 of the first is damaged."""
    keys, values = (torch.randn(3, 4, 2, 4, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    query = torch.randn(6, 4, 4, generator=torch.Generator().manual_seed(2))
    table = torch.tensor([[1, 0], [2, 1]], dtype=torch.int32)
    positions = torch.tensor([0, 1, 3, 0, 2, 3], dtype=torch.int32)
    sound = paged_attention(query, keys, values, table, positions, window)
    keys[1, 1], values[1, 1] = contain(keys[1, 1, None] * bad, values[1, 1, None])
    made = paged_attention(query, keys, values, table, positions, window)
    # Position 3 is past a window of 2; behind the second request's context the block is only hidden
    seeing = [1] if window else [1, 2]
    for row in range(6):
        if row in seeing:
            assert made[row].isnan().all()
        else:
            assert torch.equal(made[row], sound[row])


def head_of(kind: Any, **options: Any) -> Any:
    head = kind(7, 4, 1e-5, torch.float32, with_logits=False, **options)
    for parameter in head.parameters():
        parameter.data = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3))
    return head


@pytest.mark.parametrize("real", [0, 5])
def test_n1_a_verify_head_gives_the_sign_at_the_first_reached_row(real: int) -> None:
    head = head_of(TargetVerifyHead, requests=4, real_vocab=real)
    hidden = torch.randn(12, 4, generator=torch.Generator().manual_seed(4))
    target = head.choose(head.logits(hidden), None)
    tokens = torch.zeros(12, dtype=torch.int32)
    # Each request's drafts are right; the rows 1, 2, none, and one behind a wrong draft are damaged
    for request in range(4):
        tokens[3 * request + 1 : 3 * request + 3] = target[3 * request : 3 * request + 2]
    tokens[10] = (target[9] + 1) % 5
    hidden[1, 0] = hidden[5, 0] = hidden[11, 0] = NAN
    (accepted, *_) = head(hidden, tokens, torch.full((4,), 2, dtype=torch.int32), hidden)
    first, second, third, fourth = target.view(4, 3).tolist()
    assert accepted.tolist() == [
        [first[0], NOT_FINITE, NOTHING],
        [*second[:2], NOT_FINITE],
        third,
        [fourth[0], NOTHING, NOTHING],
    ]


@pytest.mark.parametrize("fill", INFINITE)
def test_n1_a_head_s_padding_is_no_logit(fill: float) -> None:
    head = head_of(TargetPrefillHead, real_vocab=5)
    head.lm_head.weight.data[5:] = fill
    hidden = torch.randn(2, 4, generator=torch.Generator().manual_seed(4))
    (token, *_) = head(hidden, torch.tensor([1], dtype=torch.int32), hidden)
    assert 0 <= int(token) < 5
    head.lm_head.weight.data[4, 0] = fill
    (token, *_) = head(hidden, torch.tensor([1], dtype=torch.int32), hidden)
    assert int(token) == NOT_FINITE


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("bad", INFINITE)
def test_n1_ranks_agree_on_the_sign(bad: float, ranks: int) -> None:
    logits = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    logits[1, 6] = bad
    parts = logits.chunk(ranks, dim=1)

    def choose(rank: int) -> list[int]:
        number = torch.tensor([rank], dtype=torch.int32)
        made: list[int] = argmax_over_ranks(parts[rank], number, ranks, 0, all_finite(parts[rank])).tolist()
        return made

    best = logits.argmax(dim=-1).tolist()
    assert Ranks(ranks).run(choose) == [[best[0], NOT_FINITE, best[2]]] * ranks


def generate(rig: Rig, requests: list[Request], plain: bool = False) -> list[RequestOutput]:
    engine = rig.engine(NoProposer()) if plain else rig.engine()
    return engine.generate(requests)


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("model.embed_tokens.weight", (BAD, 3)),
        ("model.layers.2.self_attn.k_proj.weight", None),
        ("lm_head.weight", (60, 1)),
    ],
)
def test_n1_one_rank_s_damage_is_told_on_all(name: str, index: Any, ranks: int, sampled: bool) -> None:
    """Rows that stand for no token are damaged everywhere, and are no reason."""
    whole = odd_rig(sampled=sampled)
    good = Request("good", tuple(token % 61 for token in without(BAD, 7, 1)), max_tokens=6)
    bad = Request("bad", (3, BAD, 9), max_tokens=6)
    (expected,) = generate(whole, [good])
    assert BAD not in expected.token_ids
    rig = damaged(whole, name, 0 if index is None else index)
    outputs = on_every_rank(shared(rig, ranks, fill=NAN), lambda one: generate(one, [good, bad]))
    for one in outputs:
        assert (one[1].token_ids, one[1].finish_reason) == ((), "error")
        if name.startswith("model.embed"):
            assert (one[0].token_ids, one[0].finish_reason) == (expected.token_ids, "length")
        else:
            assert one[0].finish_reason == "error"


@pytest.mark.parametrize("name", ["mistral", "qwen2, windows", "qwen3", "qwen3, windows", "llama with biases"])
def test_n1_every_family_s_attention(name: str, tmp_path: Path) -> None:
    """Norms of queries and keys, windows and biases: the request alone, and its blocks used again."""
    save_model(name, tmp_path)
    sound = rig_of_model(tmp_path, Shape())
    rig = damaged(sound, "model.embed_tokens.weight", (BAD, 3))
    good = [Request(f"good {i}", without(BAD, 6 + 7 * i, i), max_tokens=8) for i in range(3)]
    expected = [(output.token_ids, "length") for output in generate(sound, good)]
    # Nothing is asked of the row behind a last token
    wanted = [pair for pair in expected if BAD not in pair[0][:-1]]
    engine = rig.engine()
    bad, *others = engine.generate([Request("bad", (3, BAD, *prompt_of(9, 3)), max_tokens=8), *good])
    assert bad.finish_reason == "error"
    again = engine.generate([Request(f"{one.request_id}'", one.prompt_token_ids, 8) for one in good])
    for made in (others, again):
        assert [pair for pair in ((o.token_ids, o.finish_reason) for o in made) if pair[1] == "length"] == wanted
    assert wanted


@pytest.mark.parametrize(
    "variant", ["two layers", "sliding window in the second layer", "query and key norms", "final state", "biases"]
)
def test_n1_drafts_of_every_kind_leave_the_text(variant: str) -> None:
    """A damaged target row reaches the draft through its features; only its own request ends."""
    sound = rig_of_variant(variant)
    rig = damaged(sound, "model.embed_tokens.weight", (BAD, 3))
    good = [Request(f"good {i}", without(BAD, 6 + 5 * i, i), max_tokens=8) for i in range(3)]
    wanted = [output for output in generate(sound, good) if BAD not in output.token_ids]
    assert wanted
    bad, *others = generate(rig, [Request("bad", (3, BAD, 5), max_tokens=8), *good])
    assert bad.finish_reason == "error"
    made = {output.request_id: output for output in others}
    for output in wanted:
        assert made[output.request_id].token_ids == output.token_ids
    assert [o.token_ids for o in generate(rig, good, plain=True)] == [o.token_ids for o in others]


def pools_of(draft: Any) -> list[Tensor]:
    return [torch.zeros(6, 4, draft.self_attn.kv_heads, draft.self_attn.head_dim) for _ in "kv"]


def draft_of(kind: Any) -> Any:
    sizes = {"vocab": 16, "draft_vocab": 8, "hidden": 8, "intermediate": 8, "heads": 2, "kv_heads": 1, "head_dim": 4}
    draft = kind(
        drafts=3,
        feature_size=8,
        eps=1e-5,
        max_positions=24,
        norm_before_residual=False,
        dtype=torch.float32,
        mapped=False,
        **sizes,
    )
    for parameter in draft.parameters():
        parameter.data = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    return draft


def test_n1_a_fused_chain_behind_a_sign_reads_no_token_and_writes_no_block() -> None:
    """After a prefill and after a verify pass: -2 is no row of a table, and position 0 is the prompt's."""
    table = torch.tensor([[1, 2, 3]], dtype=torch.int32)
    prefill = draft_of(DraftFusedPrefill)
    pools, features = pools_of(prefill), torch.randn(4, 8)
    tokens, positions = torch.tensor([1, 2, 3, 4], dtype=torch.int32), torch.arange(4, dtype=torch.int32)
    limit, last = torch.tensor([12], dtype=torch.int32), torch.tensor([3], dtype=torch.int32)
    sign = torch.tensor([NOT_FINITE], dtype=torch.int32)
    made = prefill(tokens, sign, last, positions, positions + 4, table, features, limit, *pools)
    assert made[0, 0] == NOT_FINITE
    assert ((made[0, 1:] >= 0) & (made[0, 1:] < 16)).all()
    assert all((pool[2:] == 0).all() for pool in pools)
    verify = draft_of(DraftFused)
    pools = pools_of(verify)
    accepted = torch.tensor([[NOT_FINITE, NOTHING, NOTHING, NOTHING]], dtype=torch.int32)
    made = verify(accepted, positions + 7, positions + 11, table, features, limit, *pools)
    assert made[0, :4].tolist() == accepted[0].tolist()
    assert all((pool[1:] == 0).all() for pool in pools)
