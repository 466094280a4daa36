"""How runs are taken: order, warm-up, groups, and what is recorded of each step."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from runtime.bench.measure import PLAIN, load_engines, measure
from runtime.engine import Engine
from runtime.request import Request
from tests.runtime.loop.rig import Rig, make_rig, oracle, prompt_of, text_of


def requests_of(count: int, max_tokens: int = 10) -> list[Request]:
    return [Request(str(number), prompt_of(4 + number, number), max_tokens) for number in range(count)]


def noting(engines: dict[int, Engine]) -> list[tuple[str, int]]:
    """(request, engine) for every request that an engine gets from now on."""
    log: list[tuple[str, int]] = []
    for count, engine in engines.items():

        def add(request: Request, count: int = count, inner: Callable[[Request], None] = engine.add_request) -> None:
            log.append((request.request_id, count))
            inner(request)

        engine.add_request = add  # type: ignore[method-assign]
    return log


def test_the_engines_of_a_bundle_share_no_kv(toy: Callable[..., Rig]) -> None:
    engines = load_engines(toy().bundle, (1, 3))
    assert list(engines) == [PLAIN, 1, 3]
    assert len({engine.graphs.pools["kv.0.k"].data_ptr() for engine in engines.values()}) == 3


def test_a_prompts_runs_are_back_to_back_and_take_turns_at_going_first(toy: Callable[..., Rig]) -> None:
    engines = load_engines(toy().bundle, (3,))
    log = noting(engines)
    measure(engines, requests_of(3), warmup=0)
    assert log == [("0", 0), ("0", 3), ("1", 3), ("1", 0), ("2", 0), ("2", 3)]


def test_of_several_engines_each_goes_first_in_its_turn(toy: Callable[..., Rig]) -> None:
    engines = load_engines(toy().bundle, (1, 2))
    log = noting(engines)
    measure(engines, requests_of(3, max_tokens=3), warmup=0)
    assert [count for _, count in log] == [0, 1, 2, 1, 2, 0, 2, 0, 1]


def test_warm_up_runs_go_through_every_engine_and_are_not_recorded(toy: Callable[..., Rig]) -> None:
    engines = load_engines(toy().bundle, (3,))
    log = noting(engines)
    runs = measure(engines, requests_of(2, max_tokens=3), warmup=1)
    assert log[:2] == [("0", 0), ("0", 3)]
    assert len(log) == 2 + 4
    assert [(run.prompt, run.num_speculative_tokens) for run in runs] == [(0, 0), (0, 3), (1, 0), (1, 3)]


def test_a_runs_steps_are_its_verify_steps() -> None:
    """One token comes from prefill, then 3, 0 and 2 drafts are accepted, and the last token needs no draft."""
    rig = make_rig()
    (request,) = requests_of(1)
    engines = {PLAIN: rig.plain_engine(), 3: rig.engine(oracle({"0": text_of(rig, request)}, (3, 0, 2)))}
    plain, speculative = measure(engines, [request], warmup=0)
    assert [(step.num_draft_tokens, step.num_accepted) for step in speculative.steps] == [
        (3, 3),
        (3, 0),
        (3, 2),
        (0, 0),
    ]
    assert [(step.num_draft_tokens, step.num_accepted) for step in plain.steps] == [(0, 0)] * 9
    assert list(plain.output.token_ids) == rig.plain(request.prompt_token_ids, 10)
    assert plain.decode_tokens == 9


def test_the_time_of_a_step_falls_into_verify_draft_and_host(toy: Callable[..., Rig]) -> None:
    engines = load_engines(toy().bundle, (3,))
    plain, speculative = measure(engines, requests_of(1), warmup=0)
    assert all(step.verify_ms > 0 and step.draft_ms == 0 and step.host_ms > 0 for step in plain.steps)
    assert all(step.verify_ms > 0 and step.host_ms > 0 for step in speculative.steps)
    assert all(step.draft_ms > 0 for step in speculative.steps if step.num_draft_tokens == 3)
    # What is missing of all steps is prefill
    inside = sum(step.verify_ms + step.draft_ms + step.host_ms for step in speculative.steps)
    assert 0 < inside < engines[3].step_seconds * 1e3
    assert 0 < speculative.decode_seconds < speculative.seconds


def test_requests_at_once_share_their_groups_time_and_keep_their_texts(toy: Callable[..., Rig]) -> None:
    rig = toy()
    seen: list[int] = []
    requests = requests_of(3)
    runs = measure(load_engines(rig.bundle, (3,)), requests, concurrency=2, warmup=0, on_group=seen.append)
    assert seen == [2, 1]
    first, second, third = (run for run in runs if run.num_speculative_tokens == 3)
    assert first.seconds == second.seconds != third.seconds
    for request, run in zip(requests, (first, second, third), strict=True):
        assert list(run.output.token_ids) == rig.plain(request.prompt_token_ids, 10)
        assert sum(step.num_accepted + 1 for step in run.steps) == pytest.approx(run.decode_tokens)
