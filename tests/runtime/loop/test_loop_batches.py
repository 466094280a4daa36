"""A request's text is its own: alone, in a batch, in any order of arrival, whoever comes and goes beside it."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from runtime.graphs import GraphSet
from runtime.proposer import EagleProposer, NoProposer, Proposer
from runtime.request import Request, StepOutput
from tests.runtime.loop.rig import Rig, Shape, Watch, make_rig, observe, oracle, prompt_of, text_of

LENGTHS = (3, 8, 16, 5)


def four(max_tokens: int = 18) -> list[Request]:
    return [Request(str(i), prompt_of(n, i), max_tokens=max_tokens - i) for i, n in enumerate(LENGTHS)]


def expected(rig: Rig, requests: list[Request]) -> list[list[int]]:
    return [rig.plain(request.prompt_token_ids, request.max_tokens) for request in requests]


@pytest.mark.parametrize("order", list(itertools.permutations(range(4)))[::5], ids=str)
def test_every_request_equals_itself_alone(order: tuple[int, ...]) -> None:
    """L9 (TensorRT-LLM#9208), G8 (vllm#53436): text, and acceptance as well, in every order of arrival."""
    rig = make_rig(Shape(seed=25))
    requests = four()
    batch = [requests[i] for i in order]
    outputs = rig.generate(*batch)
    assert [list(output.token_ids) for output in outputs] == expected(rig, batch)
    for request, together in zip(batch, outputs, strict=True):
        (alone,) = rig.generate(request)
        assert alone.spec_decode == together.spec_decode


@pytest.mark.parametrize("sizes", [(1, 4), (4,), (2, 4), (1, 2, 3, 4)], ids=str)
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_every_count_of_requests_fits_every_set_of_buckets(sizes: tuple[int, ...], count: int) -> None:
    """Buckets [2, 4] with one request, [4] with three: the places left over hold nothing that anybody sees."""
    rig = make_rig(Shape(num_seqs=sizes))
    requests = four()[:count]
    texts = {request.request_id: text_of(rig, request) for request in requests}
    for proposer in (EagleProposer, Watch().over(texts, (2, 0, 3))):
        outputs = rig.generate(*requests, proposer=proposer)
        assert [list(output.token_ids) for output in outputs] == expected(rig, requests)


@pytest.mark.parametrize("draft", ["oracle", "eagle", "none"])
def test_more_requests_than_max_num_seqs_take_turns(draft: str) -> None:
    """Seven requests, two at a time: a place is taken again as soon as it is free."""
    rig = make_rig(Shape(max_num_seqs=2, num_seqs=(1, 2)))
    requests = [Request(str(i), prompt_of(4 + i, i), max_tokens=5 + 3 * (i % 3)) for i in range(7)]
    texts = {request.request_id: text_of(rig, request) for request in requests}
    proposers: dict[str, Proposer | type[EagleProposer]] = {
        "oracle": oracle(texts, (3, 0, 1)),
        "eagle": EagleProposer,
        "none": NoProposer(),
    }
    engine = rig.engine(proposers[draft])
    for request in requests:
        engine.add_request(request)
    started: list[str] = []
    while engine.has_unfinished():
        engine.step()
        assert len(engine.running) <= 2
        started += [s.request.request_id for s in engine.running if s.request.request_id not in started]
    outputs = {output.request_id: output for output in engine.take_finished()}
    assert [list(outputs[r.request_id].token_ids) for r in requests] == expected(rig, requests)
    # First come, first served
    assert started == [request.request_id for request in requests]


def test_a_request_waits_until_the_pool_has_room_for_the_tokens_that_it_has() -> None:
    """Nine blocks for two prompts of five: the second starts when the first has given its own back."""
    rig = make_rig()
    requests = [Request(str(i), prompt_of(20, i), max_tokens=16) for i in range(2)]
    engine = rig.engine(kv_blocks=1 + 9)
    for request in requests:
        engine.add_request(request)
    together = 0
    while engine.has_unfinished():
        engine.step()
        together = max(together, len(engine.running))
    assert together == 1
    outputs = {output.request_id: list(output.token_ids) for output in engine.take_finished()}
    assert [outputs["0"], outputs["1"]] == expected(rig, requests)


def test_blocks_used_before_and_full_of_old_values_change_nothing() -> None:
    """A pool of one request's size is reused at once, and what lies in it is the request before."""
    rig = make_rig()
    engine = rig.engine(kv_blocks=1 + 6)
    for request in [Request(str(i), prompt_of(8 - i, i), max_tokens=12) for i in range(4)]:
        (output,) = engine.generate([request])
        assert list(output.token_ids) == rig.plain(request.prompt_token_ids, 12)


def test_a_request_that_arrives_in_the_middle_joins_the_next_pass() -> None:
    rig = make_rig(Shape(seed=25))
    requests = four()
    engine = rig.engine()
    for request in requests:
        engine.add_request(request)
        for _ in range(3):
            engine.step()
    while engine.has_unfinished():
        engine.step()
    outputs = {output.request_id: list(output.token_ids) for output in engine.take_finished()}
    assert [outputs[request.request_id] for request in requests] == expected(rig, requests)


def test_step_outputs_add_up_to_the_text_and_only_the_last_has_a_reason() -> None:
    rig = make_rig()
    requests = four()
    texts = {request.request_id: text_of(rig, request) for request in requests}
    engine = rig.engine(oracle(texts, (2, 3)))
    for request in requests:
        engine.add_request(request)
    steps: dict[str, list[StepOutput]] = {request.request_id: [] for request in requests}
    while engine.has_unfinished():
        for output in engine.step():
            # H3: a pass always commits something
            assert output.token_ids
            steps[output.request_id].append(output)
    for output in engine.take_finished():
        parts = steps[output.request_id]
        assert [token for part in parts for token in part.token_ids] == list(output.token_ids)
        assert [part.finish_reason for part in parts] == [None] * (len(parts) - 1) + ["length"]
    assert engine.take_finished() == []
    assert engine.step() == []


@pytest.mark.parametrize("bitwise", [("requests", "context"), ("requests",), ("context",), ()], ids=str)
def test_pinned_buckets_keep_the_text(bitwise: tuple[str, ...]) -> None:
    rig = make_rig(replace(Shape(seed=25), bitwise_across=bitwise))  # type: ignore[arg-type]
    requests = four()
    outputs = rig.generate(*requests[:3])
    assert [list(output.token_ids) for output in outputs] == expected(rig, requests[:3])


def test_the_same_engine_gives_the_same_text_three_times() -> None:
    """G8 (vllm#53436)."""
    rig = make_rig(Shape(seed=25))
    engine = rig.engine()
    runs = [[output.token_ids for output in engine.generate(four())] for _ in range(3)]
    assert runs[0] == runs[1] == runs[2]
    assert engine.blocks.num_free == engine.blocks.num_blocks - 1


def test_the_largest_prefill_runs_after_steps_of_decoding() -> None:
    """L11 (TensorRT-LLM#15708): no buffer has the size of the passes that came first."""
    rig = make_rig(Shape(prefill_tokens=(4, 32), seed=25))
    engine = rig.engine()
    engine.add_request(Request("first", prompt_of(3, 1), max_tokens=30))
    for _ in range(5):
        engine.step()
    engine.add_request(Request("second", prompt_of(32, 2), max_tokens=12))
    while engine.has_unfinished():
        engine.step()
    texts = {output.request_id: list(output.token_ids) for output in engine.take_finished()}
    assert texts == {"first": rig.plain(prompt_of(3, 1), 30), "second": rig.plain(prompt_of(32, 2), 12)}


def test_plain_and_speculative_requests_run_the_same_target_graphs() -> None:
    """What makes greedy speculation exact: plain decoding goes through target_verify too."""
    rig = make_rig()
    request = Request("a", prompt_of(7), max_tokens=12)

    def kinds(proposer: Proposer | type[EagleProposer]) -> set[str]:
        engine, ran = rig.engine(proposer), set()
        observe(engine, lambda spec, inputs: ran.add(spec.name))
        engine.generate([request])
        return {name for name in ran if name.startswith("target")}

    assert kinds(NoProposer()) == kinds(EagleProposer) == {"target_prefill.t16.c32", "target_verify.r1.c32"}


def test_graph_sets_of_the_same_rig_share_no_kv() -> None:
    rig = make_rig()
    first, second = rig.graphs(), rig.graphs()
    assert isinstance(first, GraphSet)
    assert all(first.pools[name].data_ptr() != second.pools[name].data_ptr() for name in first.pools)
