"""A request that begins as an earlier one takes its KV over, and is then as if nobody had been there before."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runtime.engine import Engine
from runtime.fused import draft_proposer
from runtime.prefix import PrefixCaching
from runtime.request import Request, RequestOutput
from runtime.sampling.params import SamplingParams
from tests.runtime.loop.invariants import Stepper
from tests.runtime.loop.kv import TOLERANCE, kv_rows, same_bits, worst_draft_row
from tests.runtime.loop.rig import K, Rig, Shape, Watch, make_rig, prompt_of

SHARED = tuple(range(1, 9))
A, B = (*SHARED, 20, 21), (*SHARED, 30, 31)
CHUNKED = Shape(prefill_tokens=(4,), seed=25, layers=4)
NEW = 14


def run(engine: Engine, name: str, prompt: tuple[int, ...], max_tokens: int = NEW) -> RequestOutput:
    (output,) = engine.generate([Request(name, prompt, max_tokens=max_tokens)])
    return output


def prefilled(engine: Engine, prompt: tuple[int, ...], name: str = "last") -> int:
    """Compute the prompt of a new request; how many of its tokens were found."""
    engine.add_request(Request(name, prompt, max_tokens=NEW))
    engine.step()
    sequence = next(s for s in engine.running if s.request.request_id == name)
    while sequence.prefilling:
        engine.step()
    return sequence.num_cached_tokens


@pytest.mark.parametrize("fused", [False, True], ids=["separate", "fused"])
@pytest.mark.parametrize(
    ("mode", "chunk", "found"), [("full", 4, 4), ("full", 16, 4), ("exact", 4, 4), ("exact", 8, 0), ("off", 4, 0)]
)
def test_a_block_whose_following_token_differs_is_computed_anew(
    mode: PrefixCaching, chunk: int, found: int, fused: bool
) -> None:
    """K1 (vllm#17137, openvino.genai#3887): eight tokens are shared, but draft row 7 ate token 20, so one block is."""
    rig = make_rig(replace(CHUNKED, prefill_tokens=(chunk,), draft_fused=fused))
    engine = rig.engine(prefix_caching=mode)
    run(engine, "a", A)
    assert prefilled(engine, B) == found
    assert worst_draft_row(rig, engine) < TOLERANCE
    (sequence,) = engine.running
    assert sequence.drafts == rig.chain(sequence.token_ids, K)
    assert Stepper(engine).run()["last"] == rig.plain(B, NEW)
    assert (engine.blocks.prefix_queries, engine.blocks.prefix_hits) == ((0, 0) if mode == "off" else (20, found))


@pytest.mark.parametrize("mode", ["full", "exact"])
def test_a_block_whose_following_token_is_the_same_is_taken_over(mode: PrefixCaching) -> None:
    """K1 (vllm#51771 had no hits at all): A and A' part one token later, so both blocks of eight are shared."""
    rig = make_rig(CHUNKED)
    engine = rig.engine(prefix_caching=mode)
    run(engine, "a", A)
    assert prefilled(engine, (*SHARED, 20, 35)) == 8
    assert worst_draft_row(rig, engine) < TOLERANCE
    assert Stepper(engine).run()["last"] == rig.plain((*SHARED, 20, 35), NEW)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("chunk", "found"), [(4, 16), (8, 16), (16, 16), (12, 12)])
def test_a_hit_has_the_bits_of_a_cold_run(chunk: int, found: int, dtype: str) -> None:
    """Exact mode: KV of target and draft, drafts and text, whatever chunk the prompt is computed in."""
    rig = make_rig(replace(CHUNKED, prefill_tokens=(chunk,), dtype=dtype))
    first, second = prompt_of(19, 1), (*prompt_of(19, 1)[:17], 5, 9, 33)
    warm, cold = rig.engine(), rig.engine()
    run(warm, "a", first)
    assert (prefilled(warm, second), prefilled(cold, second)) == (found, 0)
    (hit,), (miss,) = warm.running, cold.running
    assert same_bits(kv_rows(warm, hit), kv_rows(cold, miss))
    assert hit.drafts == miss.drafts
    while warm.has_unfinished():
        assert warm.step() == cold.step()
        if warm.running:
            assert same_bits(kv_rows(warm, hit), kv_rows(cold, miss))


def test_exact_mode_begins_a_pass_where_a_cold_run_does() -> None:
    """Chunks of eight: of four blocks that match, 16 tokens, two chunks are taken; of three, 12 tokens, one."""
    rig = make_rig(replace(CHUNKED, prefill_tokens=(8,)))
    base = prompt_of(24, 2)
    for same, exact, full in ((17, 16, 16), (13, 8, 12), (16, 8, 12), (8, 0, 4), (24, 16, 20)):
        other = (*base[:same], *(token ^ 1 for token in base[same:]))
        for mode, found in (("exact", exact), ("full", full)):
            engine = rig.engine(prefix_caching=mode)  # type: ignore[arg-type]
            run(engine, "a", base)
            assert prefilled(engine, other) == found, (same, mode)


@pytest.mark.parametrize("mode", ["exact", "full"])
def test_chunks_that_end_within_blocks_leave_no_row_out(mode: PrefixCaching) -> None:
    """Chunks of five, blocks of four: nothing is taken over before token 20, where both end."""
    rig = make_rig(replace(CHUNKED, prefill_tokens=(5,)))
    base = prompt_of(26, 2)
    engine = rig.engine(prefix_caching=mode)
    run(engine, "a", base)
    for same, exact, full in ((13, 0, 12), (19, 0, 16), (23, 20, 20)):
        other = (*base[:same], *(token ^ 1 for token in base[same:]))
        assert prefilled(engine, other) == (exact if mode == "exact" else full)
        assert worst_draft_row(rig, engine) < TOLERANCE
        assert Stepper(engine).run()["last"] == rig.plain(other, NEW)


@pytest.mark.parametrize("fused", [False, True], ids=["separate", "fused"])
@pytest.mark.parametrize("mode", ["exact", "full"])
def test_a_hit_drafts_and_accepts_as_much_as_a_cold_run(mode: PrefixCaching, fused: bool) -> None:
    """D4 (llama.cpp#24637), D5 (llama-cpp-turboquant#239): the draft's rows are cached beside the target's."""
    rig = make_rig(replace(CHUNKED, draft_fused=fused, layers=8))  # whose target agrees with some drafts
    prompt = prompt_of(21, 3)
    engine = rig.engine(prefix_caching=mode)
    cold, hit = run(engine, "cold", prompt, 20), run(engine, "hit", prompt, 20)
    assert (cold.num_cached_tokens, hit.num_cached_tokens) == (0, 20)
    assert hit.token_ids == cold.token_ids
    assert hit.spec_decode == cold.spec_decode
    assert cold.spec_decode.num_accepted_tokens > 0
    # And the draft's own proposals are those of the reference from the first on
    watch = Watch()
    other = rig.engine(watch.over(), prefix_caching=mode)
    for name in ("cold", "hit"):
        run(other, name, prompt, 20)
    proposals = {name: [(c, p) for who, c, p in watch.proposed if who == name] for name in ("cold", "hit")}
    assert proposals["hit"] == proposals["cold"]
    assert all(proposal == rig.chain(committed, len(proposal)) for _, committed, proposal in watch.proposed)


@pytest.mark.parametrize("fused", [False, True], ids=["separate", "fused"])
@pytest.mark.parametrize("pattern", [None, (0,), (3, 1)], ids=str)
def test_a_second_turn_takes_the_first_one_s_answer_over(pattern: tuple[int, ...] | None, fused: bool) -> None:
    """Full mode: rows that verify passes made are found by a prompt that holds the answer. Exact mode takes none."""
    rig = make_rig(replace(CHUNKED, draft_fused=fused))
    prompt = prompt_of(9, 4)
    texts = {"1": [*prompt, *rig.plain(prompt, 24)]}
    for mode, least in (("full", 20), ("exact", 8)):
        watch = Watch()
        engine = rig.engine(watch.over(texts if pattern else None, pattern or (K,)), prefix_caching=mode)  # type: ignore[arg-type]
        first = run(engine, "1", prompt, 20)
        second = (*prompt, *first.token_ids, 11, 12, 13)
        texts["2"] = [*second, *rig.plain(second, 16)]
        found = prefilled(engine, second, "2")
        # Full: all but the tokens of the last passes, behind which no draft ran
        assert least <= found <= (28 if mode == "full" else least)
        assert worst_draft_row(rig, engine) < TOLERANCE
        assert Stepper(engine).run()["2"] == rig.plain(second, NEW)


def test_blocks_of_a_running_request_are_shared_and_stay_when_it_is_aborted() -> None:
    """K: two owners of two blocks; each gives up its own only, and the other's text does not notice."""
    rig = make_rig(CHUNKED)
    for aborted, other in (("a", "b"), ("b", "a")):
        engine = rig.engine()
        prompts = {"a": A, "b": (*SHARED, 20, 35)}
        for name in "ab":
            prefilled(engine, prompts[name], name)
        one, two = engine.running
        assert two.num_cached_tokens == 8
        assert one.block_ids[:2] == two.block_ids[:2]
        assert not set(one.block_ids[2:]) & set(two.block_ids[2:])
        own = one if aborted == "a" else two
        free, gone = engine.blocks.num_free, own.block_ids
        engine.abort(aborted)
        assert engine.blocks.num_free == free + len(gone) - 2
        assert not {block for block in gone[:2] if block in engine.blocks._free}
        assert Stepper(engine).run() == {other: rig.plain(prompts[other], NEW)}
        assert engine.blocks.num_free == engine.blocks.num_blocks - 1


def test_a_shared_block_is_never_written_by_those_who_found_it() -> None:
    rig = make_rig(CHUNKED)
    engine = rig.engine()
    prefilled(engine, A, "a")
    (owner,) = engine.running
    before = kv_rows(engine, owner, 8)
    for name in "bcd":
        assert prefilled(engine, (*SHARED, 20, ord(name) - 40), name) == 8
        assert same_bits(kv_rows(engine, owner, 8), before)
    while engine.has_unfinished():
        engine.step()
        if owner in engine.running:
            assert same_bits(kv_rows(engine, owner, 8), before)
    assert {output.request_id for output in engine.take_finished()} == set("abcd")


def test_the_least_recently_used_goes_first() -> None:
    """Three prompts of two blocks each and a pool of eight: the first, asked for again, outlives the second."""
    rig = make_rig(CHUNKED)
    one, two, three = (prompt_of(9, seed) for seed in (5, 6, 7))
    engine = rig.engine(kv_blocks=1 + 7)
    for name, prompt in (("1", one), ("2", two), ("1 again", one)):
        run(engine, name, prompt, 3)
    # What is new takes three blocks that were never used or hold nothing that is found, then the oldest
    run(engine, "3", three, 3)
    assert run(engine, "1 once more", one, 3).num_cached_tokens == 8
    assert run(engine, "2 again", two, 3).num_cached_tokens < 8
    for prompt in (one, two, three):
        assert list(run(engine, "x", prompt, 3).token_ids) == rig.plain(prompt, 3)


@pytest.mark.parametrize("fused", [False, True], ids=["separate", "fused"])
@pytest.mark.parametrize("ends", [1, 2, 3, "stop"])
def test_m9_a_warm_up_fills_the_cache_however_short_its_answer(ends: int | str, fused: bool) -> None:
    """M9: with one or two tokens to write nothing is ever drafted, and with a stop id at once neither."""
    rig = make_rig(replace(CHUNKED, draft_fused=fused))
    prompt = prompt_of(13, 8)
    first = rig.plain(prompt, 1)[0]
    stop = SamplingParams(temperature=0.0, stop_token_ids=(first,))
    warm, cold = rig.engine(), rig.engine()
    request = Request("warm-up", prompt, 9, sampling=stop) if ends == "stop" else Request("warm-up", prompt, int(ends))
    warm.generate([request])
    assert (prefilled(warm, prompt), prefilled(cold, prompt)) == (12, 0)
    (hit,), (miss,) = warm.running, cold.running
    assert worst_draft_row(rig, warm) < TOLERANCE
    assert hit.drafts == miss.drafts == rig.chain(hit.token_ids, K)
    while cold.has_unfinished():
        if warm.running:
            assert same_bits(kv_rows(warm, hit), kv_rows(cold, miss))
        assert warm.step() == cold.step()
    assert list(hit.output_token_ids) == rig.plain(prompt, NEW)


def test_m9_rows_that_the_draft_did_not_compute_are_not_found() -> None:
    """Behind the prompt of a request that never drafts: its block of prompt and answer holds the target's rows only."""
    for fused in (False, True):
        rig = make_rig(replace(CHUNKED, draft_fused=fused))
        prompt = prompt_of(15, 8)
        engine = rig.engine(prefix_caching="full")
        output = run(engine, "short", prompt, 2)
        assert prefilled(engine, (*prompt, *output.token_ids, 7)) == 12
        assert worst_draft_row(rig, engine) < TOLERANCE


def test_plain_decoding_has_a_cache_too() -> None:
    rig: Rig = make_rig(CHUNKED)
    engine = rig.plain_engine()
    for name, found in (("cold", 0), ("hit", 20)):
        output = run(engine, name, prompt_of(21, 3))
        assert output.num_cached_tokens == found
        assert list(output.token_ids) == rig.plain(prompt_of(21, 3), NEW)


def test_a_hit_saves_the_passes_over_what_it_found() -> None:
    rig = make_rig(CHUNKED)
    engine = rig.engine(draft_proposer)
    run(engine, "cold", prompt_of(21, 3), 1 + K)
    steps = engine.steps
    run(engine, "hit", prompt_of(21, 3), 1 + K)
    # Six chunks cold, of which the last is left
    assert engine.steps - steps == steps - 5


@pytest.mark.parametrize("mode", ["exact", "full"])
@pytest.mark.parametrize("fused", [False, True], ids=["separate", "fused"])
def test_a_turn_behind_a_stop_inside_an_accepted_run(fused: bool, mode: PrefixCaching) -> None:
    """G7 (onnxruntime-genai#2528): tokens behind the stop were verified and dropped; the next turn sees none."""
    rig = make_rig(replace(CHUNKED, draft_fused=fused))
    prompt = prompt_of(9, 4)
    text = rig.plain(prompt, 16)
    # Row 2 of the first pass of four, so that its last row is computed and never committed
    stop = next(i for i in range(2, 8) if text.index(text[i]) == i and i % 4 in (1, 2, 3))
    texts = {"1": [*prompt, *text]}
    engine = rig.engine(Watch().over(texts, (K,)), prefix_caching=mode)
    first = Request("1", prompt, max_tokens=16, sampling=SamplingParams(temperature=0.0, stop_token_ids=(text[stop],)))
    (output,) = engine.generate([first])
    assert (list(output.token_ids), output.stop_reason) == (text[: stop + 1], text[stop])
    second = (*prompt, *output.token_ids, 11, 12, 13, 14)
    texts["2"] = [*second, *rig.plain(second, NEW + K)]
    assert prefilled(engine, second, "2") >= 8
    assert worst_draft_row(rig, engine) < TOLERANCE
    assert Stepper(engine).run()["2"] == rig.plain(second, NEW)
