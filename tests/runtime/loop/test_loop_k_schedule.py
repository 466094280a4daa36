"""K by batch size: each step drafts what the schedule says, in passes of as few rows as that, and no text changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from runtime.bundle.manifest import Axis, Graph
from runtime.engine import WATCHED_DRAFTS, Engine
from runtime.fused import draft_proposer
from runtime.proposer import NoProposer
from runtime.request import Request, RequestOutput
from runtime.schedule import KSchedule
from tests.runtime.loop.rig import K, Rig, Shape, make_rig, observe, oracle, prompt_of, text_of

N4 = KSchedule.of([[1, 2, 3], [3, 4, 1], [5, 5, 0]])
SIX = Shape(max_num_seqs=6, num_seqs=(1, 2, 4, 6), prefill_tokens=(24,), schedule=N4)
EXACT = replace(SIX, bitwise_across=("requests", "context", "drafts"))
# Drafts that are often right: see the rig's seeds
REQUESTS = [Request(str(i), prompt_of(4 + i, i), max_tokens=10 + 3 * i) for i in range(6)]


def scheduled(rig: Rig, schedule: KSchedule | None = None) -> Engine:
    graphs = rig.graphs()
    return Engine(graphs, draft_proposer(graphs), schedule=schedule or rig.manifest.speculation.schedule)


def test_k_of_each_step_is_that_of_its_batch() -> None:
    """N4 (vllm#26504): {1-2: 3, 3-4: 1, 5 and more: 0}, with every draft right, and requests that end one by one."""
    rig = make_rig(EXACT)
    texts = {request.request_id: text_of(rig, request) for request in REQUESTS}
    graphs = rig.graphs()
    engine = Engine(graphs, oracle(texts, (K,)), schedule=N4)
    passes: list[tuple[int, int, int]] = []

    def look(spec: Graph, inputs: Mapping[str, Tensor]) -> None:
        if spec.kind == "target_verify":
            batch = sum(not sequence.prefilling for sequence in engine.running)
            passes.append((batch, int(inputs["num_draft_tokens"].max()), spec.rows // spec.requests))

    observe(engine, look)
    outputs = engine.generate(REQUESTS)
    for request, output in zip(REQUESTS, outputs, strict=True):
        assert list(output.token_ids) == rig.plain(request.prompt_token_ids, request.max_tokens)
    assert {batch for batch, _, _ in passes} >= {5, 3, 2, 1}
    for batch, drafts, rows in passes:
        assert drafts <= N4.k_for(batch)
        # The bundle has graphs of exactly these rows where a batch of this size runs
        assert rows <= 1 + N4.k_for(batch)
    assert {(batch, drafts) for batch, drafts, _ in passes} >= {(5, 0), (3, 1), (2, 3)}


@pytest.mark.parametrize("axes", [("requests", "context"), ("requests", "context", "drafts"), ()])
def test_switching_k_changes_no_text_with_the_real_draft(axes: tuple[Axis, ...]) -> None:
    rig = make_rig(replace(SIX, bitwise_across=axes))
    engine = scheduled(rig)
    rows: set[int] = set()

    def look(spec: Graph, inputs: Mapping[str, Tensor]) -> None:
        if spec.kind in ("target_verify", "draft_initial"):
            rows.add(spec.rows // spec.requests)

    observe(engine, look)
    for request, output in zip(REQUESTS, engine.generate(REQUESTS), strict=True):
        assert list(output.token_ids) == rig.plain(request.prompt_token_ids, request.max_tokens)
    # Without the proof of their bits the shorter passes are not taken
    assert rows == ({1, 2, 4} if "drafts" in axes else {4})


def test_the_drafts_kv_is_whole_when_drafting_starts_again() -> None:
    """K = 0 while six run, then 3 for the last: its proposals are those of the reference chain."""
    rig = make_rig(EXACT)
    engine = scheduled(rig)
    for request in REQUESTS:
        engine.add_request(request)
    compared = 0
    while engine.has_unfinished():
        engine.step()
        for sequence in engine.running:
            if sequence.drafts:
                assert sequence.drafts == rig.chain(sequence.token_ids, len(sequence.drafts))
                compared += 1
    assert compared > 5


def test_the_drafts_initial_pass_runs_without_drafts_to_make() -> None:
    rig = make_rig(replace(EXACT, schedule=KSchedule.constant(0)))
    engine = scheduled(rig)
    engine.generate(REQUESTS)
    runs = {key[0]: 0 for key in engine.graphs.loaded}
    for key, graph in engine.graphs.loaded.items():
        runs[key[0]] += graph.runs
    assert runs["draft_initial"] > 0
    assert runs["draft_recurrent"] == 0
    assert engine.totals.num_drafts == 0


def test_a_bundle_s_own_schedule_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = make_rig(EXACT)
    monkeypatch.setattr("runtime.graphs.backend_for", lambda bundle, weights, device=None: rig.backend)

    def most_drafts(engine: Engine) -> int:
        most: list[int] = []

        def look(spec: Graph, inputs: Mapping[str, Tensor]) -> None:
            if spec.kind == "target_verify":
                most.append(int(inputs["num_draft_tokens"].max()))

        observe(engine, look)
        for output in engine.generate([replace(request, max_tokens=20) for request in REQUESTS[:2]]):
            assert list(output.token_ids) == rig.plain(output.prompt_token_ids, 20)
        return max(most)

    other = replace(rig.manifest.speculation, num_speculative_tokens_per_batch_size=((1, 6, 1),))
    bundle = replace(rig.bundle, manifest=replace(rig.manifest, speculation=other))
    assert most_drafts(Engine.load(bundle)) == 1
    assert most_drafts(Engine.load(bundle, num_speculative_tokens=2)) == 2
    assert most_drafts(Engine.load(bundle, schedule=KSchedule.constant(3))) == 3


def test_plain_decoding_may_take_the_shortest_passes() -> None:
    rig = make_rig(EXACT)
    graphs = rig.graphs()
    engine = Engine(graphs, NoProposer(), schedule=N4)
    for request, output in zip(REQUESTS, engine.generate(REQUESTS), strict=True):
        assert list(output.token_ids) == rig.plain(request.prompt_token_ids, request.max_tokens)


@pytest.mark.parametrize("schedule", [KSchedule.constant(0), KSchedule.of([[1, 1, 3], [2, 2, 0]])])
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("fused", [True, False])
def test_a_bundle_without_graphs_of_fewer_rows_takes_any_schedule(
    schedule: KSchedule, exact: bool, fused: bool
) -> None:
    rig = make_rig(replace(SIX, schedule=None, exact_greedy=exact, draft_fused=fused))
    for request, output in zip(REQUESTS, scheduled(rig, schedule).generate(REQUESTS), strict=True):
        assert list(output.token_ids) == rig.plain(request.prompt_token_ids, request.max_tokens)


def test_a_near_tie_bundle_takes_shorter_passes_without_a_proof() -> None:
    rig = make_rig(replace(SIX, exact_greedy=False, bitwise_across=()))
    engine = scheduled(rig)
    seen: set[tuple[str, int]] = set()
    observe(engine, lambda spec, inputs: seen.add((spec.kind, spec.rows // spec.requests)))
    for request, output in zip(REQUESTS, engine.generate(REQUESTS), strict=True):
        assert list(output.token_ids) == rig.plain(request.prompt_token_ids, request.max_tokens)
    assert ("target_verify", 2) in seen
    assert ("target_decode", 1) in seen or ("target_verify", 1) in seen


def test_a_draft_that_is_never_right_is_told_once_under_a_schedule_too(caplog: pytest.LogCaptureFixture) -> None:
    """A1 (vllm#50170). K goes from 1 to 0 to 3 and back; the likeliest cause is named."""
    rig = make_rig(EXACT)
    requests = [Request(str(i), prompt_of(4, i), max_tokens=50) for i in range(8)]
    texts = {request.request_id: text_of(rig, request) for request in requests}
    engine = Engine(rig.graphs(), oracle(texts, (0,)), schedule=KSchedule.of([[1, 1, 1], [2, 3, 0], [4, 6, 3]]))
    with caplog.at_level("WARNING", logger="eagle3"):
        for group in (requests[:6], requests[6:7], requests[7:], requests[:4]):
            engine.generate(group)
    assert engine.totals.num_drafts > 1.2 * WATCHED_DRAFTS
    (record,) = caplog.records
    assert "likeliest cause is a draft that reads other auxiliary layers" in record.getMessage()


@settings(max_examples=10, deadline=None)
@given(
    st.lists(st.integers(0, K), min_size=6, max_size=6),
    st.lists(st.tuples(st.integers(0, 12), st.integers(1, 12)), min_size=1, max_size=8),
    st.lists(st.integers(0, K), min_size=1, max_size=4),
)
def test_no_schedule_and_no_order_of_arrival_changes_a_text(
    ks: list[int], arrivals: list[tuple[int, int]], pattern: list[int]
) -> None:
    """Any K at any batch size, requests that come at any step, drafts that are right as often as the pattern says."""
    rig = make_rig(EXACT)
    schedule = KSchedule.of([[size, size, k] for size, k in enumerate(ks, start=1)])
    requests = [Request(str(i), prompt_of(3 + i, i), max_tokens=count) for i, (_, count) in enumerate(arrivals)]
    texts = {request.request_id: text_of(rig, request) for request in requests}
    engine = Engine(rig.graphs(), oracle(texts, pattern), schedule=schedule)
    outputs: dict[str, RequestOutput] = {}
    step = 0
    while len(outputs) < len(requests):
        for request, (at, _) in zip(requests, arrivals, strict=True):
            if at == step:
                engine.add_request(request)
        engine.step()
        step += 1
        outputs |= {output.request_id: output for output in engine.take_finished()}
    for request in requests:
        assert list(outputs[request.request_id].token_ids) == rig.plain(request.prompt_token_ids, request.max_tokens)
