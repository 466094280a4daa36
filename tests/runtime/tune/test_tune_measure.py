"""A batch is kept full, engines take turns, and goodput is what a scripted clock says it must be."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import pytest
from torch import Tensor

from runtime.bundle.manifest import Graph
from runtime.engine import WATCHED_DRAFTS, Engine
from runtime.request import Request
from runtime.schedule import KSchedule
from runtime.tune.measure import load_engines, measure, run_full
from tests.runtime.loop.rig import K, Rig, Shape, make_rig, observe, oracle, prompt_of, text_of

NEW = 13


def requests_of(count: int, max_tokens: int = NEW) -> list[Request]:
    return [Request(str(number), prompt_of(4 + number, number), max_tokens=max_tokens) for number in range(count)]


def accepting(rig: Rig, requests: list[Request], k: int) -> Engine:
    """An engine whose drafts are all accepted, fillers' too, at a constant K."""
    texts = {request.request_id: text_of(rig, request, spare=K) for request in requests}
    every = {
        f"{name}{suffix}": text
        for name, text in texts.items()
        for suffix in ("", *map(" again {}".format, range(1, 50)))
    }
    graphs = rig.graphs()
    return Engine(graphs, oracle(every, (K,)), schedule=KSchedule.constant(k), prefix_caching="off")


def test_goodput_of_one_request_is_that_of_its_passes(scripted_clock: Callable[..., None]) -> None:
    """Prefill takes 2 s and gives a token; each verify pass takes 1 s and gives 4, all drafts being right."""
    rig, (request,) = make_rig(), requests_of(1)
    scripted_clock(lambda graph: 2.0 if graph.kind == "target_prefill" else 1.0)
    trial = run_full(accepting(rig, [request], K), [request], 1, K)
    assert (trial.tokens, trial.seconds) == (1 + 12, 2.0 + 3.0)
    assert (trial.decode_tokens, trial.decode_seconds) == (12, 3.0)
    assert trial.goodput == pytest.approx(13 / 5)
    assert trial.decode_rate == pytest.approx(4.0)
    assert (trial.batch_size, trial.k, trial.rows) == (1, K, 1 + K)
    assert trial.stats.mean_acceptance_length == 4.0


def test_fewer_drafts_give_fewer_tokens_a_pass(scripted_clock: Callable[..., None]) -> None:
    rig, (request,) = make_rig(), requests_of(1)
    scripted_clock(lambda graph: 1.0)
    rates = {k: run_full(accepting(rig, [request], k), [request], 1, k).decode_rate for k in range(K + 1)}
    assert rates == pytest.approx({0: 1.0, 1: 2.0, 2: 3.0, 3: 4.0})


@pytest.mark.parametrize("batch_size", [1, 2, 3, 4])
def test_the_batch_is_full_until_every_prompt_has_its_answer(batch_size: int) -> None:
    rig, requests = make_rig(), requests_of(5)
    engine = rig.engine()
    held: list[int] = []

    def look(spec: Graph, inputs: Mapping[str, Tensor]) -> None:
        if spec.kind.startswith("target"):
            held.append(len(engine.running) + len(engine.waiting))

    observe(engine, look)
    trial = run_full(engine, requests, batch_size, K)
    assert set(held) == {batch_size}
    assert not engine.has_unfinished()
    assert [output.request_id for output in trial.outputs] == [request.request_id for request in requests]
    for request, output in zip(requests, trial.outputs, strict=True):
        assert list(output.token_ids) == rig.plain(request.prompt_token_ids, NEW)


def test_tokens_of_those_that_only_fill_the_batch_count_and_their_acceptance_does_not() -> None:
    """Four places and one prompt: its 13 tokens, and what the others had got by then."""
    rig, (request,) = make_rig(), requests_of(1)
    trial = run_full(accepting(rig, [request], K), [request], 4, K)
    assert NEW < trial.tokens <= 4 * NEW
    assert trial.stats.num_drafts == 3


def test_an_engine_can_be_measured_again() -> None:
    rig, requests = make_rig(), requests_of(3)
    engine = rig.engine()
    first, second = (run_full(engine, requests, 2, K) for _ in range(2))
    assert [output.token_ids for output in first.outputs] == [output.token_ids for output in second.outputs]
    assert (first.tokens, first.rows) == (second.tokens, second.rows)


def test_engines_take_turns_at_going_first(toy: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch) -> None:
    toy()
    order: list[tuple[int, int | None]] = []
    inner = run_full

    def note(engine: Engine, requests: list[Request], batch_size: int, k: int | None) -> object:
        order.append((batch_size, k))
        return inner(engine, requests, batch_size, k)

    monkeypatch.setattr("runtime.tune.measure.run_full", note)
    engines = load_engines(make_rig().bundle, (0, 3))
    done: list[int] = []
    trials = measure(engines, requests_of(1, max_tokens=2), (1, 2), repeat=2, on_trial=lambda: done.append(1))
    # Six to warm up, two repeats of two sizes at plain, 0 and 3
    assert order[6:] == [
        *((1, None), (1, 0), (1, 3), (2, 0), (2, 3), (2, None)),
        *((1, 0), (1, 3), (1, None), (2, 3), (2, None), (2, 0)),
    ]
    assert [(trial.batch_size, trial.k) for trial in trials] == order[6:]
    assert len(done) == len(trials)


def test_a_draft_that_is_never_right_is_told_once_for_all_engines(caplog: pytest.LogCaptureFixture) -> None:
    rig, requests = make_rig(), requests_of(1)
    engines: dict[int | None, Engine] = {None: rig.plain_engine()}
    for k in (1, 3):
        engines[k] = rig.engine(oracle({"0": text_of(rig, requests[0])}, (0,)))
        engines[k].totals.observe(3, 0)
        engines[k].totals.num_drafts = WATCHED_DRAFTS
    with caplog.at_level("WARNING", logger="eagle3"):
        measure(engines, requests, (1,), repeat=1)
        assert len(caplog.records) == 1
        logging.getLogger("eagle3").warning("another one")
    assert len(caplog.records) == 2


def test_the_engines_share_no_kv_and_no_prefixes(toy: Callable[..., Rig]) -> None:
    toy()
    engines = load_engines(make_rig().bundle, (0, 1, 3))
    assert list(engines) == [None, 0, 1, 3]
    assert len({engine.graphs.pools["kv.0.k"].data_ptr() for engine in engines.values()}) == 4
    (request,) = requests_of(1)
    for engine in engines.values():
        run_full(engine, [request], 2, None)
        assert engine.blocks.prefix_hits == 0


def test_no_drafts_keep_the_drafts_kv_in_step_and_plain_decoding_has_no_draft(toy: Callable[..., Rig]) -> None:
    toy()
    engines = load_engines(make_rig().bundle, (0,))
    runs = {k: {key[0]: 0 for key in engine.graphs.loaded} for k, engine in engines.items()}
    for k, engine in engines.items():
        trial = run_full(engine, requests_of(1), 1, k)
        for key, graph in engine.graphs.loaded.items():
            runs[k][key[0]] += graph.runs
        assert trial.stats.num_drafts == 0
    assert "draft_initial" not in runs[None]
    # The last pass needs no draft row: the request has ended
    assert runs[0]["draft_initial"] >= NEW - 3
    assert runs[0]["draft_recurrent"] == 0


def test_the_rows_of_a_pass_are_those_of_its_graph(toy: Callable[..., Rig]) -> None:
    """A bundle with graphs of fewer rows uses them where they keep every bit; any other runs 1+K rows."""
    schedule = KSchedule.of([[1, 1, 3], [2, 4, 1]])
    kept = Shape(schedule=schedule, bitwise_across=("requests", "context", "drafts"))
    for shape, rows in ((kept, 2), (Shape(schedule=schedule), 1 + K), (Shape(), 1 + K)):
        rig = toy(shape)
        engine = load_engines(rig.bundle, (1,))[1]
        assert run_full(engine, requests_of(4), 4, 1).rows == rows
