"""`--check` judges passes, not texts alone: a graph that accepts nothing, or leaves other KV, does not pass it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from runtime.acceptance import Acceptance
from runtime.backends import Backend
from runtime.check import Comparison, compare
from runtime.engine import Engine
from runtime.fused import draft_proposer
from runtime.graphs import GraphSet
from runtime.prompts import Prompt
from runtime.proposer import NoProposer
from runtime.request import Request
from runtime.sampling.params import GREEDY, SamplingParams
from tests.aot.verify import doctors
from tests.aot.verify.doctors import Change, doctor
from tests.aot.verify.whole_numbers import WholeNumbers
from tests.runtime.loop.rig import Rig, Shape, make_rig, prompt_of

SHAPE = Shape(layers=4)
FUSED = replace(SHAPE, draft_fused=True)
SAMPLED = replace(SHAPE, sampled=True)
HEAD, LAYER = "target_verify_head", "target_layer.r4x4"


def checked(
    shape: Shape, change: Change | None = None, kind: str = "", **request: object
) -> tuple[list[Comparison], Acceptance]:
    """`--check` on six prompts over a toy's graphs, one unit of which may be wrong."""
    rig = make_rig(shape)
    backend: Backend = WholeNumbers(draft=rig.backend)
    if change is not None:
        backend = doctor(kind, change)(backend)
    requests = [Request(str(i), prompt_of(3 + i, i), 20, **request) for i in range(6)]  # type: ignore[arg-type]
    judges = Acceptance(rig.manifest, requests)
    prompts = [Prompt(f"prompt {i}", request.prompt_token_ids) for i, request in enumerate(requests)]
    results, _ = compare(loader(rig, backend), prompts, requests, judges)
    return results, judges


def loader(rig: Rig, backend: Backend) -> Callable[[bool], Engine]:
    def load(speculation: bool) -> Engine:
        kinds = dict.fromkeys(graph.kind for graph in rig.manifest.graphs)
        graphs = GraphSet(rig.bundle, [kind for kind in kinds if speculation or "draft" not in kind], None, backend)
        return Engine(graphs, draft_proposer(graphs) if speculation else NoProposer())

    return load


@pytest.mark.parametrize("shape", [SHAPE, FUSED, SAMPLED], ids=["separate", "fused", "drawing"])
def test_p1_right_graphs_pass_and_say_what_was_accepted(shape: Shape) -> None:
    sampling = SamplingParams(temperature=1.0, seed=3) if shape.sampled else GREEDY
    results, judges = checked(shape, sampling=sampling)
    assert [(result.same, result.misses) for result in results] == [(True, {})] * 6
    # Four of the six, alone and in a batch, through every count from 0 to K
    assert judges.scripted.num_drafts > 40
    assert 0 < judges.scripted.num_accepted_tokens < judges.scripted.num_draft_tokens
    assert all(judges.scripted.num_accepted_tokens_per_pos)


def test_p1_a_pool_in_which_requests_give_their_blocks_up_is_no_fault() -> None:
    results, judges = checked(replace(SHAPE, kv_blocks=24))
    assert [(result.same, result.misses) for result in results] == [(True, {})] * 6
    assert 0 < judges.scripted.num_accepted_tokens < judges.scripted.num_draft_tokens


@pytest.mark.parametrize("shape", [SHAPE, FUSED, SAMPLED], ids=["separate", "fused", "drawing"])
def test_p1_graphs_that_never_accept_fail_with_the_right_text(shape: Shape) -> None:
    results, judges = checked(shape, doctors.never_accepts, HEAD)
    # Texts are the same, all of them
    assert not any(result.differences for result in results)
    assert judges.scripted.num_accepted_tokens == 0
    scripted = results[:4]
    assert not any(result.same for result in scripted)
    assert all(
        "accepts another number of drafts" in (result.misses or {})["scripted drafts alone"] for result in scripted
    )
    assert "expected 1 of 3, found 0" in results[1].sentence()
    assert results[1].to_json()["same"] is False
    assert "scripted drafts in a batch" in str(results[1].to_json()["misses"])


WRONG = {
    "one too few": (HEAD, doctors.accepts_one_too_few),
    "one too many": (HEAD, doctors.accepts_one_too_many),
    "the draft's token": (HEAD, doctors.commits_the_draft),
    "a stale row": (LAYER, doctors.forgets_row(2)),
    "a stale bonus row": (LAYER, doctors.forgets_row(3)),
    "one request's stale row": (LAYER, doctors.forgets_row(1, 3)),
    "rejected rows stay": (LAYER, doctors.keeps_what_is_there),
    "another block": (LAYER, doctors.writes_into_another_block),
}


@pytest.mark.parametrize("name", WRONG)
def test_p1_wrong_graphs_fail(name: str) -> None:
    kind, change = WRONG[name]
    results, _ = checked(SHAPE, change, kind)
    assert not all(result.same for result in results)
    assert any(result.misses for result in results)


def test_p1_a_stale_row_that_changes_no_token_is_told_by_its_place() -> None:
    """The toy reads no keys."""
    results, _ = checked(SHAPE, doctors.forgets_row(2, pools=("key_pool",)), "target_layer.r1x4")
    assert not any(result.differences for result in results)
    sentence = (results[0].misses or {})["scripted drafts alone"]
    assert "leaves other KV than plain decoding (row 2, position " in sentence, sentence


def test_p1_where_near_ties_are_allowed_nothing_accepted_is_still_seen() -> None:
    near = replace(SHAPE, exact_greedy=False)
    results, _ = checked(near)
    assert all(result.same for result in results)
    results, _ = checked(near, doctors.never_accepts, f"{HEAD}.r1x4")
    assert not all(result.same for result in results)


def test_p1_what_ends_early_is_judged_up_to_there() -> None:
    """A stop token within an accepted run: what lies behind it was never plain decoding's to say."""
    ended, judges = checked(SHAPE, sampling=replace(GREEDY, stop_token_ids=tuple(range(0, 64, 5))))
    assert any(result.length < 20 for result in ended)
    assert [result.misses for result in ended] == [{}] * 6
    assert judges.scripted.num_accepted_tokens
