"""Any schedule of arrivals and aborts gives every request the text that it has alone, and loses no block.

Small pools stop requests and run them again, prompts share beginnings, and K changes with the number of requests.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from runtime.fused import draft_proposer
from runtime.prefix import PrefixCaching
from runtime.request import Request
from runtime.schedule import KSchedule
from tests.runtime.loop.invariants import Stepper, check_blocks
from tests.runtime.loop.rig import Rig, Shape, Watch, make_rig, oracle, prompt_of, with_eos

LIMIT, EOS, NEW = 32, (6, 9, 17), 12
SHAPE = Shape(
    layers=4,
    max_model_len=LIMIT,
    context_tokens=(16, 32),
    max_num_seqs=3,
    num_seqs=(1, 3),
    seed=25,
)
# Chunks of one, of two and of no whole number of blocks
CHUNKS = ((4,), (5, 8), (5,))
SCHEDULES = (None, [[1, 1, 3], [2, 3, 1]], [[1, 1, 0], [2, 2, 2], [3, 3, 0]], [[1, 1, 2], [2, 9, 0]])
# From as many blocks as the longest request has, so that hardly two fit, to enough for most
POOLS = st.integers(1 + 8, 1 + 16)


@dataclass(frozen=True)
class Arrival:
    """A request, the step before which it arrives, and how many steps later it is aborted, if it is.

    Prompts of the same `seed` begin alike, to their whole length or to where one has another `tail`.
    """

    length: int
    seed: int
    tail: int
    max_tokens: int
    ignore_eos: bool
    step: int
    abort_after: int | None

    def request(self, name: str) -> Request:
        prompt = prompt_of(LIMIT, self.seed)[: self.length]
        changed = (*prompt[: -self.tail], *(7 + token & 63 for token in prompt[-self.tail :])) if self.tail else prompt
        return Request(name, changed, max_tokens=self.max_tokens, ignore_eos=self.ignore_eos)


ARRIVALS = st.builds(
    Arrival,
    length=st.integers(1, LIMIT - 1),
    seed=st.integers(0, 1),
    tail=st.integers(0, 3),
    max_tokens=st.integers(1, NEW),
    ignore_eos=st.booleans(),
    step=st.integers(0, 12),
    abort_after=st.none() | st.integers(0, 12),
)


def alone(rig: Rig, request: Request) -> list[int]:
    """The text by the reference: to the first end of sequence, max_tokens or max_model_len."""
    room = min(request.max_tokens, LIMIT - len(request.prompt_token_ids))
    text = rig.plain(request.prompt_token_ids, NEW + 4)[:room]
    if request.ignore_eos:
        return text
    stop = next((i for i, token in enumerate(text) if token in EOS), len(text) - 1)
    return text[: stop + 1]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    arrivals=st.lists(ARRIVALS, min_size=1, max_size=6),
    pattern=st.lists(st.integers(0, 3), min_size=1, max_size=4),
    draft=st.sampled_from(["scripted", "overruled", "own"]),
    fused=st.booleans(),
    chunks=st.sampled_from(CHUNKS),
    caching=st.sampled_from(["exact", "full", "off"]),
    schedule=st.sampled_from(SCHEDULES),
    kv_blocks=POOLS,
)
def test_any_schedule_gives_each_request_its_own_text(
    arrivals: list[Arrival],
    pattern: list[int],
    draft: str,
    fused: bool,
    chunks: tuple[int, ...],
    caching: PrefixCaching,
    schedule: list[list[int]] | None,
    kv_blocks: int,
) -> None:
    rig = with_eos(make_rig(replace(SHAPE, prefill_tokens=chunks, draft_fused=fused)), *EOS)
    requests = {str(i): arrival.request(str(i)) for i, arrival in enumerate(arrivals)}
    texts = {
        name: [*request.prompt_token_ids, *rig.plain(request.prompt_token_ids, NEW + 4)]
        for name, request in requests.items()
    }
    proposers = {
        "scripted": oracle(texts, pattern),
        "overruled": Watch().over(texts, pattern),
        "own": draft_proposer,
    }
    engine = rig.engine(
        proposers[draft],
        kv_blocks=kv_blocks,
        prefix_caching=caching,
        schedule=KSchedule.of(schedule) if schedule else None,
    )
    stepper = Stepper(engine)
    aborted: set[str] = set()
    streamed: dict[str, list[int]] = {name: [] for name in requests}
    finished: dict[str, list[int]] = {}
    while stepper.steps <= 24 or engine.has_unfinished():
        for i, arrival in enumerate(arrivals):
            if arrival.step == stepper.steps:
                engine.add_request(requests[str(i)])
            if arrival.abort_after is not None and arrival.step + arrival.abort_after == stepper.steps:
                engine.abort(str(i))
                aborted.add(str(i))
                check_blocks(engine)
        for output in stepper.step():
            streamed[output.request_id] += output.token_ids
        assert len(engine.running) <= 3
        assert stepper.steps < 400
        for done in engine.take_finished():
            finished[done.request_id] = list(done.token_ids)
    note(f"aborted {aborted}, {stepper.steps} steps, {engine.num_preemptions} preemptions, {engine.blocks.prefix_hits}")
    for name, request in requests.items():
        text = alone(rig, request)
        assert streamed[name] == text[: len(streamed[name])]
        assert name in finished or name in aborted
        if name in finished:
            assert finished[name] == text == streamed[name]
    assert engine.blocks.num_free == kv_blocks - 1
