"""Any schedule of arrivals and aborts gives every request the text that it has alone, and loses no block."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from runtime.engine import Engine
from runtime.proposer import EagleProposer
from runtime.request import Request
from tests.runtime.loop.rig import Rig, Shape, Watch, make_rig, oracle, prompt_of, with_eos

# A pool for less than two of the longest requests, so that some wait for memory and some for a place
LIMIT, EOS, NEW = 32, (6, 9, 17), 12
SHAPE = Shape(
    layers=4,
    max_model_len=LIMIT,
    context_tokens=(16, 32),
    prefill_tokens=(5, 8),
    max_num_seqs=3,
    num_seqs=(1, 3),
    kv_blocks=1 + 13,
    seed=25,
)


@dataclass(frozen=True)
class Arrival:
    """A request, the step before which it arrives, and how many steps later it is aborted, if it is."""

    length: int
    seed: int
    max_tokens: int
    ignore_eos: bool
    step: int
    abort_after: int | None

    def request(self, name: str) -> Request:
        prompt = prompt_of(self.length, self.seed)
        return Request(name, prompt, max_tokens=self.max_tokens, ignore_eos=self.ignore_eos)


ARRIVALS = st.builds(
    Arrival,
    length=st.integers(1, LIMIT - 1),
    seed=st.integers(0, 3),
    max_tokens=st.integers(1, NEW),
    ignore_eos=st.booleans(),
    step=st.integers(0, 12),
    abort_after=st.none() | st.integers(0, 8),
)


def alone(rig: Rig, request: Request) -> list[int]:
    """The text by the reference: to the first end of sequence, max_tokens or max_model_len."""
    room = min(request.max_tokens, LIMIT - len(request.prompt_token_ids))
    text = rig.plain(request.prompt_token_ids, NEW)[:room]
    if request.ignore_eos:
        return text
    stop = next((i for i, token in enumerate(text) if token in EOS), len(text) - 1)
    return text[: stop + 1]


def check_blocks(engine: Engine) -> None:
    """Every block is free or owned by exactly one running request; block 0 by nobody."""
    owned = [block for sequence in engine.running for block in sequence.block_ids]
    everyone = sorted([*owned, *engine.blocks._free])
    assert everyone == list(range(1, engine.blocks.num_blocks))
    for sequence in engine.running:
        assert len(sequence.block_ids) * 4 >= sequence.length_limit
        assert len(sequence.drafts) <= sequence.draft_room(3)
    assert not any(sequence.block_ids for sequence in engine.waiting)
    assert len(engine.running) <= 3


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    arrivals=st.lists(ARRIVALS, min_size=1, max_size=6),
    pattern=st.lists(st.integers(0, 3), min_size=1, max_size=4),
    draft=st.sampled_from(["scripted", "overruled", "eagle"]),
)
def test_any_schedule_gives_each_request_its_own_text(arrivals: list[Arrival], pattern: list[int], draft: str) -> None:
    rig = with_eos(make_rig(SHAPE), *EOS)
    requests = {str(i): arrival.request(str(i)) for i, arrival in enumerate(arrivals)}
    texts = {
        name: [*request.prompt_token_ids, *rig.plain(request.prompt_token_ids, NEW + 4)]
        for name, request in requests.items()
    }
    proposers = {
        "scripted": oracle(texts, pattern),
        "overruled": Watch().over(texts, pattern),
        "eagle": EagleProposer,
    }
    engine = rig.engine(proposers[draft])
    aborted: set[str] = set()
    streamed: dict[str, list[int]] = {name: [] for name in requests}
    finished: dict[str, list[int]] = {}
    step = 0
    while step <= 20 or engine.has_unfinished():
        for i, arrival in enumerate(arrivals):
            if arrival.step == step:
                engine.add_request(requests[str(i)])
            if arrival.abort_after is not None and arrival.step + arrival.abort_after == step:
                engine.abort(str(i))
                aborted.add(str(i))
        check_blocks(engine)
        busy = bool(engine.running)
        outputs = engine.step()
        # No step of a busy engine stands still, and none runs for ever
        assert outputs or not busy
        assert step < 300
        for output in outputs:
            streamed[output.request_id] += output.token_ids
        for done in engine.take_finished():
            finished[done.request_id] = list(done.token_ids)
        check_blocks(engine)
        step += 1
    note(f"aborted {aborted}, {step} steps")
    for name, request in requests.items():
        text = alone(rig, request)
        assert streamed[name] == text[: len(streamed[name])]
        assert name in finished or name in aborted
        if name in finished:
            assert finished[name] == text == streamed[name]
    assert engine.blocks.num_free == 13
