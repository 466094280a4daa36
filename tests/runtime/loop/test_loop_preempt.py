"""A request that is stopped for want of blocks and run again writes what it would have written undisturbed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runtime.engine import Engine
from runtime.prefix import PrefixCaching
from runtime.request import Request, RequestOutput
from runtime.sampling.params import SamplingParams
from tests.runtime.loop.invariants import Stepper, check_blocks
from tests.runtime.loop.kv import TOLERANCE, kv_rows, same_bits, worst_draft_row
from tests.runtime.loop.rig import K, Rig, Shape, Watch, make_rig, oracle, prompt_of, text_of

SHAPE = Shape(prefill_tokens=(8,), seed=25, layers=4)


def outputs_of(engine: Engine) -> dict[str, RequestOutput]:
    """Run to the end, with all that must hold between two steps."""
    stepper = Stepper(engine)
    while engine.has_unfinished():
        stepper.step()
        assert stepper.steps < 500
    return {output.request_id: output for output in engine.take_finished()}


def stop(engine: Engine, name: str) -> None:
    """Take the blocks of a running request away, as the scheduler does when there are none left."""
    (sequence,) = (s for s in engine.running if s.request.request_id == name)
    engine.scheduler._preempt(sequence)
    check_blocks(engine)


def two(max_tokens: int = 20) -> list[Request]:
    return [Request(str(i), prompt_of(9 + i, i), max_tokens=max_tokens) for i in range(2)]


@pytest.mark.parametrize("fused", [False, True], ids=["separate", "fused"])
@pytest.mark.parametrize("pattern", [None, (0,), (3, 1, 0, 2)], ids=str)
@pytest.mark.parametrize("caching", ["exact", "off"])
def test_a_pool_for_less_than_two_keeps_both_texts(
    caching: PrefixCaching, pattern: tuple[int, ...] | None, fused: bool
) -> None:
    """The first request is never stopped; the second ends all the same, with the text that it has alone."""
    rig = make_rig(replace(SHAPE, draft_fused=fused))
    requests = two()
    texts = {request.request_id: text_of(rig, request) for request in requests}
    proposer = Watch().over(texts if pattern else None, pattern or (K,))
    engine = rig.engine(proposer, kv_blocks=1 + 9, prefix_caching=caching)
    for request in requests:
        engine.add_request(request)
    outputs = outputs_of(engine)
    for request in requests:
        assert list(outputs[request.request_id].token_ids) == rig.plain(request.prompt_token_ids, 20)
    assert outputs["0"].num_preemptions == 0
    assert outputs["1"].num_preemptions == engine.num_preemptions >= 1
    assert engine.blocks.num_free == 9


def test_the_last_to_arrive_is_stopped_and_resumed_in_order() -> None:
    """Four requests in a pool for two; `Stepper` holds that all that run arrived before all that wait."""
    rig = make_rig(SHAPE)
    requests = [Request(str(i), prompt_of(6 + i, i), max_tokens=24 - 2 * i) for i in range(4)]
    engine = rig.engine(kv_blocks=1 + 13)
    for request in requests:
        engine.add_request(request)
    outputs = outputs_of(engine)
    for request in requests:
        text = rig.plain(request.prompt_token_ids, request.max_tokens)
        assert list(outputs[request.request_id].token_ids) == text
    counts = [outputs[str(i)].num_preemptions for i in range(4)]
    assert counts[0] == 0
    assert sum(counts) == engine.num_preemptions > 0


def uninterrupted(rig: Rig, request: Request) -> RequestOutput:
    (output,) = rig.engine().generate([request])
    return output


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("fused", [False, True], ids=["separate", "fused"])
def test_stopped_after_any_step_and_once_more_while_it_catches_up(fused: bool, dtype: str) -> None:
    """In the prompt, behind it, in the answer, and two steps later again; in bfloat16 a rounded row would show."""
    rig = make_rig(replace(SHAPE, draft_fused=fused, dtype=dtype))
    request = Request("a", prompt_of(12, 3), max_tokens=11)
    expected = uninterrupted(rig, request)
    seen = set()
    for again in (None, 3):
        for moment in (1, 2, 3, 5, 7):
            engine = rig.engine(prefix_caching="off")
            stepper = Stepper(engine)
            engine.add_request(request)
            for step in range(1, 60):
                if not engine.has_unfinished():
                    break
                stepper.step()
                if engine.running and step in (moment, moment + again if again else 0):
                    (sequence,) = engine.running
                    state = "prompt" if sequence.prefilling else "decode" if sequence.caught_up else "replay"
                    seen.add(state)
                    stop(engine, "a")
            (output,) = engine.take_finished()
            assert output.token_ids == expected.token_ids, (moment, again)
            assert output.num_preemptions == engine.num_preemptions >= 1
    assert seen == {"prompt", "decode", "replay"}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_replayed_rows_have_the_bits_that_they_had(dtype: str) -> None:
    """What replay is for. The KV of a request that was stopped is that of one that was not, in the target's layers."""
    rig = make_rig(replace(SHAPE, dtype=dtype))
    request = Request("a", prompt_of(13, 3), max_tokens=24)
    left, right = rig.engine(prefix_caching="off"), rig.engine(prefix_caching="off")
    for engine in (left, right):
        engine.add_request(request)
        while not engine.running or len(engine.running[0].output_token_ids) < 11:
            engine.step()
    stop(left, "a")
    left.step()
    (resumed,), (other,) = left.running, right.running
    assert resumed.prefilling
    while not resumed.caught_up:
        left.step()
    assert resumed.token_ids == other.token_ids
    found, wanted = kv_rows(left, resumed), kv_rows(right, other)
    target = [name for name in found if f"kv.{rig.target.num_layers}." not in name]
    assert same_bits({name: found[name] for name in target}, {name: wanted[name] for name in target})
    assert resumed.drafts == other.drafts


@pytest.mark.parametrize("fused", [False, True], ids=["separate", "fused"])
@pytest.mark.parametrize("caching", ["exact", "full", "off"])
def test_the_draft_goes_on_as_before(caching: PrefixCaching, fused: bool) -> None:
    """D6 (sglang#26329, #28254): stopped after three tokens; the known next token may lie behind the prompt."""
    rig = make_rig(replace(SHAPE, draft_fused=fused))
    for length in (8, 13, 16):
        engine = rig.engine(prefix_caching=caching)
        engine.add_request(Request("a", prompt_of(length, 3), max_tokens=20))
        while not engine.running or len(engine.running[0].output_token_ids) < 3:
            engine.step()
        known = list(engine.running[0].token_ids)
        stop(engine, "a")
        while engine.has_unfinished():
            engine.step()
            assert worst_draft_row(rig, engine) < TOLERANCE
            for sequence in engine.running:
                assert sequence.token_ids[: len(known)] == known
                assert sequence.drafts == rig.chain(sequence.token_ids, len(sequence.drafts))
        (output,) = engine.take_finished()
        assert list(output.token_ids) == rig.plain(prompt_of(length, 3), 20)


def test_counts_times_and_logprobs_are_kept() -> None:
    """Each token is counted and timed when it was first there; nothing is counted twice."""
    rig = make_rig(replace(SHAPE, greedy_only=False))
    request = Request("a", prompt_of(9, 3), max_tokens=20, sampling=SamplingParams(temperature=0.0, logprobs=2))
    expected = uninterrupted(rig, request)
    assert len(expected.logprobs) == 20
    engine = rig.engine(prefix_caching="off")
    engine.add_request(request)
    while not engine.running or len(engine.running[0].output_token_ids) < 6:
        engine.step()
    (sequence,) = engine.running
    first = sequence.timing.first_token
    stop(engine, "a")
    streamed = list(sequence.output_token_ids)
    while engine.has_unfinished():
        for output in engine.step():
            streamed += output.token_ids
            assert len(output.logprobs) == len(output.token_ids)
    (output,) = engine.take_finished()
    assert tuple(streamed) == output.token_ids == expected.token_ids
    assert output.logprobs == expected.logprobs
    assert output.spec_decode == expected.spec_decode == engine.totals
    assert output.timing.first_token == first is not None
    assert engine.generation_tokens == 20


@pytest.mark.parametrize("rejection_seed", [1, 2])
def test_a_sampled_text_goes_on_as_it_would_have(rejection_seed: int) -> None:
    """Random numbers belong to positions and not to passes, so that a stop draws none of them twice."""
    rig = make_rig(replace(SHAPE, greedy_only=False))
    sampling = SamplingParams(temperature=1.0, seed=rejection_seed)
    request = Request("a", prompt_of(9, 3), max_tokens=20, sampling=sampling)
    expected = uninterrupted(rig, request)
    for moment in (1, 2, 4, 6):
        engine = rig.engine(prefix_caching="off")
        engine.add_request(request)
        for _ in range(2 + moment):
            engine.step()
        stop(engine, "a")
        assert outputs_of(engine)["a"].token_ids == expected.token_ids


@pytest.mark.parametrize("name", ["0", "1"])
def test_aborting_one_that_waits_to_be_resumed_or_the_one_that_stopped_it(name: str) -> None:
    rig = make_rig(SHAPE)
    requests = two()
    engine = rig.engine(oracle({r.request_id: text_of(rig, r) for r in requests}, (3,)), kv_blocks=1 + 9)
    stepper = Stepper(engine)
    for request in requests:
        engine.add_request(request)
    while not engine.num_preemptions:
        stepper.step()
    assert [sequence.request.request_id for sequence in engine.waiting] == ["1"]
    free, own = engine.blocks.num_free, len(engine.running[0].block_ids)
    engine.abort(name)
    assert engine.blocks.num_free == free + (own if name == "0" else 0)
    other = requests[1 - int(name)]
    assert stepper.run() == {other.request_id: rig.plain(other.prompt_token_ids, 20)}
    assert engine.blocks.num_free == 9


def test_a_long_prompt_is_stopped_for_a_text_that_grows() -> None:
    """The second request's prompt of 24 is computed in chunks of four while the first takes its blocks."""
    rig = make_rig(replace(SHAPE, prefill_tokens=(4,)))
    requests = [Request("0", prompt_of(4, 1), max_tokens=24), Request("1", prompt_of(24, 2), max_tokens=8)]
    engine = rig.engine(oracle({r.request_id: text_of(rig, r) for r in requests}, (3,)), kv_blocks=1 + 12)
    for request in requests:
        engine.add_request(request)
    stepper, computed = Stepper(engine), 0
    while not engine.num_preemptions:
        computed = max((s.num_computed for s in engine.running if s.request.request_id == "1"), default=0)
        stepper.step()
    assert 0 < computed < 24
    assert stepper.run() == {r.request_id: rig.plain(r.prompt_token_ids, r.max_tokens) for r in requests}


def test_blocks_that_survived_are_found_again() -> None:
    """Exact mode finds even the answer's rows, for they were made by verify passes and would be again."""
    rig = make_rig(SHAPE)
    engine = rig.engine()
    engine.add_request(Request("a", prompt_of(8, 3), max_tokens=24))
    while not engine.running or len(engine.running[0].output_token_ids) < 13:
        engine.step()
    (sequence,) = engine.running
    rows, steps = sequence.num_computed, engine.steps
    stop(engine, "a")
    engine.step()
    assert sequence.num_cached_tokens == 0  # as when the request came
    assert engine.blocks.prefix_hits == rows // 4 * 4
    while not sequence.caught_up:
        engine.step()
    # Only the rows of the block that was not full are left
    assert engine.steps - steps <= 2
    assert worst_draft_row(rig, engine) < TOLERANCE
    assert Stepper(engine).run()["a"] == rig.plain(prompt_of(8, 3), 24)
