"""What the engine refuses, with its sentence; aborting; and who owns which block."""

from __future__ import annotations

import pytest

from runtime.bundle.errors import UsageError
from runtime.engine import Engine
from runtime.request import Request
from tests.runtime.loop.rig import MAX_LEN, VOCAB, Rig, Shape, make_rig, oracle, prompt_of, text_of


def refused(engine: Engine, request: Request) -> UsageError:
    with pytest.raises(UsageError) as caught:
        engine.add_request(request)
    assert not engine.has_unfinished()
    assert not any(graph.runs for graph in engine.graphs.loaded.values())
    return caught.value


def test_a_prompt_of_max_model_len_is_refused() -> None:
    """L17 (vllm-ascend#2979): in words, before any graph runs."""
    error = refused(make_rig().engine(), Request("long", prompt_of(MAX_LEN)))
    assert error.sentence() == (
        "Request long cannot run: expected a prompt of at most 63 tokens (max_model_len - 1), found 64."
    )
    assert error.repair == "shorten the prompt, or build the bundle with a larger max_model_len"
    assert error.exit_code == 2


def test_an_empty_prompt_is_refused() -> None:
    error = refused(make_rig().engine(), Request("a", ()))
    assert error.sentence() == "Request a cannot run: expected at least one prompt token, found none."


@pytest.mark.parametrize("bad", [-1, VOCAB, 2**31])
def test_an_id_outside_the_vocabulary_is_refused(bad: int) -> None:
    error = refused(make_rig().engine(), Request("a", (1, bad, 2)))
    assert error.sentence() == f"Request a cannot run: expected token ids from 0 to 63, found {bad}."


def test_a_refused_request_leaves_none_of_its_batch_queued() -> None:
    engine = make_rig().engine()
    with pytest.raises(UsageError, match="Request b cannot run"):
        engine.generate([Request("a", (1, 2), max_tokens=2), Request("b", ())])
    assert not engine.has_unfinished()


def test_the_first_and_the_last_id_are_taken() -> None:
    rig = make_rig()
    (output,) = rig.generate(Request("a", (0, VOCAB - 1), max_tokens=4))
    assert list(output.token_ids) == rig.plain((0, VOCAB - 1), 4)


@pytest.mark.parametrize("max_tokens", [0, -3])
def test_no_tokens_are_refused(max_tokens: int) -> None:
    error = refused(make_rig().engine(), Request("a", (1, 2), max_tokens=max_tokens))
    assert error.sentence() == f"Request a cannot run: expected max_tokens of at least 1, found {max_tokens}."


def test_an_id_in_use_is_refused_and_a_finished_one_may_come_again() -> None:
    rig = make_rig(Shape(max_num_seqs=1, num_seqs=(1,)))
    engine = rig.engine()
    request = Request("same", prompt_of(5), max_tokens=6)
    engine.add_request(request)
    with pytest.raises(UsageError, match="Request same cannot run: expected a new request id, found one in use"):
        engine.add_request(request)
    engine.step()
    with pytest.raises(UsageError, match="found one in use"):
        engine.add_request(request)
    while engine.has_unfinished():
        engine.step()
    (first,) = engine.take_finished()
    (second,) = engine.generate([request])
    assert list(first.token_ids) == list(second.token_ids) == rig.plain(prompt_of(5), 6)


def test_a_request_that_the_pool_can_never_hold_is_refused() -> None:
    """Five blocks are four beside the null block: 16 tokens of prompt and text, and not one more."""
    rig = make_rig()
    engine = rig.engine(kv_blocks=5)
    error = refused(engine, Request("big", prompt_of(6), max_tokens=11))
    assert error.sentence() == (
        "Request big cannot run: expected at most 4 KV blocks of 4 tokens, found 5 blocks for 17 tokens."
    )
    assert error.repair == "lower max_tokens, or build the bundle with a larger kv_blocks"
    (output,) = engine.generate([Request("fits", prompt_of(6), max_tokens=10)])
    assert list(output.token_ids) == rig.plain(prompt_of(6), 10)


def test_max_model_len_and_not_max_tokens_decides_how_many_blocks_are_needed() -> None:
    engine = make_rig().engine(kv_blocks=17)
    engine.add_request(Request("a", prompt_of(6), max_tokens=10**6))
    assert engine.waiting[0].length_limit == MAX_LEN


# Aborting


def run_out(engine: Engine) -> dict[str, list[int]]:
    while engine.has_unfinished():
        engine.step()
    return {output.request_id: list(output.token_ids) for output in engine.take_finished()}


def busy_engine(rig: Rig) -> tuple[Engine, list[Request]]:
    """Two requests running and two waiting, the running ones three passes in."""
    requests = [Request(str(i), prompt_of(5 + i, i), max_tokens=16) for i in range(4)]
    texts = {request.request_id: text_of(rig, request) for request in requests}
    engine = rig.engine(oracle(texts, (1, 3, 0)))
    for request in requests:
        engine.add_request(request)
    for _ in range(5):
        engine.step()
    assert ([s.request.request_id for s in engine.running], len(engine.waiting)) == (["0", "1"], 2)
    return engine, requests


TWO = Shape(max_num_seqs=2, num_seqs=(1, 2))


@pytest.mark.parametrize("aborted", ["0", "1", "2", "3", "unknown"])
def test_an_aborted_request_is_gone_and_the_others_do_not_notice(aborted: str) -> None:
    rig = make_rig(TWO)
    engine, requests = busy_engine(rig)
    engine.abort(aborted)
    texts = run_out(engine)
    assert texts == {
        request.request_id: rig.plain(request.prompt_token_ids, 16)
        for request in requests
        if request.request_id != aborted
    }
    assert engine.blocks.num_free == engine.blocks.num_blocks - 1


def test_an_aborted_running_request_gives_its_blocks_back_at_once() -> None:
    engine, _ = busy_engine(make_rig(TWO))
    free, own = engine.blocks.num_free, engine.running[0].block_ids
    # At least those of its tokens so far, at most the six blocks of four for a prompt of 5 and 16 tokens
    assert engine.blocks.blocks_for(len(engine.running[0].token_ids)) <= len(own) <= 6
    engine.abort("0")
    assert engine.blocks.num_free == free + len(own)
    engine.abort("0")
    assert engine.blocks.num_free == free + len(own)


def test_an_aborted_id_may_come_again() -> None:
    rig = make_rig(TWO)
    engine, requests = busy_engine(rig)
    for request in requests:
        engine.abort(request.request_id)
    assert not engine.has_unfinished()
    assert engine.blocks.num_free == engine.blocks.num_blocks - 1
    engine.add_request(requests[0])
    assert set(run_out(engine)) == {"0"}


def test_aborting_all_that_runs_lets_the_waiting_start() -> None:
    engine, _ = busy_engine(make_rig(TWO))
    engine.abort("0")
    engine.abort("1")
    engine.step()
    assert [s.request.request_id for s in engine.running] == ["2", "3"]
    assert set(run_out(engine)) == {"2", "3"}


class Counted(str):
    """A request id that counts how often it is compared or looked up."""

    times = 0

    def __eq__(self, other: object) -> bool:
        Counted.times += 1
        return str.__eq__(self, other)

    def __hash__(self) -> int:
        Counted.times += 1
        return str.__hash__(self)


def test_m9_queueing_takes_time_in_proportion() -> None:
    """M9: 8,000 prompts took 25 times what 2,000 did, since each was compared with all that waited."""
    rig, looked = make_rig(), list[float]()
    for count in (200, 800):
        engine, names = rig.plain_engine(), [Counted(f"request {i}") for i in range(count)]
        Counted.times = 0
        for name in names:
            engine.add_request(Request(name, (1, 2), max_tokens=1))
        for name in names[1::2]:
            engine.abort(Counted(name))
        assert [s.request.request_id for s in engine.waiting] == [str(name) for name in names[::2]]
        looked.append(Counted.times / count)
    assert looked[1] < 1.5 * looked[0]
