"""Who waits for whom: one chunk between two verify passes, first come first served, nobody for ever."""

from __future__ import annotations

from collections.abc import Callable

from runtime.engine import Engine
from runtime.request import Request
from tests.runtime.loop.invariants import Stepper
from tests.runtime.loop.rig import Shape, make_rig, observe, prompt_of

SHAPE = Shape(prefill_tokens=(4,), seed=25, layers=4)


def passes(engine: Engine) -> Callable[[], str]:
    """A function that steps the engine and says which pass it ran: p for a prefill, v for a verify pass."""
    kinds: list[str] = []
    observe(engine, lambda spec, inputs: kinds.append(spec.kind))
    stepper = Stepper(engine)

    def step() -> str:
        kinds.clear()
        stepper.step()
        (kind,) = (kind for kind in kinds if kind.startswith("target"))
        return "p" if kind == "target_prefill" else "v"

    return step


def test_a_long_prompt_holds_running_requests_up_by_one_chunk_a_token() -> None:
    """Two requests run when a prompt of ten chunks arrives: each chunk is followed by a verify pass of both."""
    rig = make_rig(SHAPE)
    engine = rig.plain_engine()
    step = passes(engine)
    for name in "ab":
        engine.add_request(Request(name, prompt_of(4, ord(name)), max_tokens=30))
    for _ in range(4):
        step()
    engine.add_request(Request("long", prompt_of(40, 1), max_tokens=4))
    lengths = [len(sequence.token_ids) for sequence in engine.running]
    assert "".join(step() for _ in range(20)) == "pv" * 10
    assert [len(sequence.token_ids) for sequence in engine.running[:2]] == [length + 10 for length in lengths]
    # The last chunk gave its first token, the verify pass behind it the second
    assert len(engine.running[2].output_token_ids) == 2


def test_prompts_alone_and_texts_alone_take_no_turns() -> None:
    rig = make_rig(SHAPE)
    engine = rig.plain_engine()
    step = passes(engine)
    engine.add_request(Request("a", prompt_of(12, 1), max_tokens=4))
    assert "".join(step() for _ in range(6)) == "pppvvv"


def test_several_prompts_are_computed_in_order_of_arrival() -> None:
    rig = make_rig(SHAPE)
    engine = rig.plain_engine()
    step = passes(engine)
    for i in range(3):
        engine.add_request(Request(str(i), prompt_of(8, i), max_tokens=9))
    first: list[str] = []
    while engine.has_unfinished():
        step()
        first += [
            s.request.request_id for s in engine.running if s.output_token_ids and s.request.request_id not in first
        ]
    assert first == ["0", "1", "2"]


def test_a_request_that_does_not_fit_is_not_overtaken() -> None:
    """The second needs more blocks than are free; the third would fit, and waits behind it."""
    rig = make_rig(SHAPE)
    engine = rig.engine(kv_blocks=1 + 14)
    for name, length in (("0", 24), ("big", 30), ("small", 2)):
        engine.add_request(Request(name, prompt_of(length, length), max_tokens=6))
    stepper, started = Stepper(engine), list[str]()
    while engine.has_unfinished():
        stepper.step()
        started += [s.request.request_id for s in engine.running if s.request.request_id not in started]
    assert started == ["0", "big", "small"]


def test_nobody_starves_under_a_stream_of_short_ones() -> None:
    """A new short request before every step, two places: the long one ends within two steps for each of its passes."""
    rig = make_rig(Shape(prefill_tokens=(4,), max_num_seqs=2, num_seqs=(1, 2), layers=4))
    engine = rig.plain_engine()
    stepper, ended = Stepper(engine), list[str]()
    for i in range(3):
        engine.add_request(Request(f"before {i}", prompt_of(3, i), max_tokens=3))
    engine.add_request(Request("long", prompt_of(30, 1), max_tokens=20))
    started = None
    for step in range(200):
        engine.add_request(Request(f"short {step}", prompt_of(3, step % 5), max_tokens=2))
        stepper.step()
        if started is None and any(s.request.request_id == "long" for s in engine.running):
            started = step
        ended += [output.request_id for output in engine.take_finished()]
        if "long" in ended:
            break
    assert started is not None
    # Eight chunks, and 19 tokens behind the first; its chunks come before those of later prompts
    assert step - started <= 2 * (8 + 19)
    # Others went on all the while
    assert sum(name.startswith("short") for name in ended) >= 8


def test_a_stopped_request_is_resumed_before_those_that_arrived_later() -> None:
    rig = make_rig(SHAPE)
    engine = rig.engine(kv_blocks=1 + 12)
    for i in range(4):
        engine.add_request(Request(str(i), prompt_of(8, i), max_tokens=24))
    stepper, ends = Stepper(engine), list[str]()
    while engine.has_unfinished():
        stepper.step()
        ends += [output.request_id for output in engine.take_finished()]
    assert engine.num_preemptions > 0
    assert ends[0] == "0"
    assert sorted(ends) == ["0", "1", "2", "3"]
