"""What a run tells about itself: vLLM's acceptance counts, clock readings, graphs, blocks."""

from __future__ import annotations

from unittest.mock import ANY

import pytest
import torch

from runtime.engine import WATCHED_DRAFTS
from runtime.proposer import ScriptedProposer
from runtime.request import Request, SpecDecodeStats, Timing
from tests.runtime.loop.rig import Shape, make_rig, oracle, prompt_of, text_of, with_eos

# Passes that accept 3, 0 and 2 of three drafts, then one without a draft: 1 + 4 + 1 + 3 + 1 tokens
ACCEPTED = (3, 0, 2)


def test_counts_of_a_known_run() -> None:
    """N1 (sglang#11144): the bonus or corrected token is not an accepted draft, a pass without drafts is no draft."""
    rig = make_rig()
    request = Request("a", prompt_of(7), max_tokens=10)
    engine = rig.engine(oracle({"a": text_of(rig, request)}, ACCEPTED))
    (output,) = engine.generate([request])
    assert output.spec_decode == SpecDecodeStats(3, 9, 5, [2, 2, 1])
    assert output.spec_decode.mean_acceptance_length == pytest.approx(1 + 5 / 3)
    assert output.spec_decode.to_json() == {
        "num_drafts": 3,
        "num_draft_tokens": 9,
        "num_accepted_tokens": 5,
        "num_accepted_tokens_per_pos": [2, 2, 1],
        "mean_acceptance_length": 2.6667,
    }
    assert engine.totals == output.spec_decode
    assert engine.steps == 1 + 4


def test_both_acceptances_per_position_follow_from_the_counts() -> None:
    """N3 (EAGLE#132): unconditional 2/3, 2/3, 1/3; given that all before it were accepted 2/3, 1, 1/2."""
    stats = SpecDecodeStats()
    for accepted in ACCEPTED:
        stats.observe(3, accepted)
    counts = stats.num_accepted_tokens_per_pos
    assert [count / stats.num_drafts for count in counts] == pytest.approx([2 / 3, 2 / 3, 1 / 3])
    before = [stats.num_drafts, *counts[:-1]]
    assert [n / m for n, m in zip(counts, before, strict=True)] == pytest.approx([2 / 3, 1, 1 / 2])
    assert stats.num_accepted_tokens / stats.num_draft_tokens == pytest.approx(0.556, abs=1e-3)


def test_a_run_without_drafts_counts_nothing() -> None:
    rig = make_rig()
    engine = rig.plain_engine()
    (output,) = engine.generate([Request("a", prompt_of(7), max_tokens=6)])
    assert output.spec_decode == engine.totals == SpecDecodeStats()
    assert output.spec_decode.mean_acceptance_length == 1.0


def test_a_pass_with_fewer_drafts_counts_fewer() -> None:
    """max_tokens 4: one token from the prompt, two drafts fit, both are accepted, the bonus is the last token."""
    rig = make_rig()
    request = Request("a", prompt_of(7), max_tokens=4)
    (output,) = rig.generate(request, proposer=oracle({"a": text_of(rig, request)}, (3,)))
    assert output.spec_decode == SpecDecodeStats(1, 2, 2, [1, 1])


def test_totals_are_the_sum_over_requests() -> None:
    rig = make_rig(Shape(seed=25))
    requests = [Request(str(i), prompt_of(6 + i, i), max_tokens=20) for i in range(4)]
    texts = {request.request_id: text_of(rig, request) for request in requests}
    engine = rig.engine(oracle(texts, (1, 3, 0, 2)))
    total = SpecDecodeStats()
    for output in engine.generate(requests):
        total.merge(output.spec_decode)
    assert total == engine.totals
    assert total.num_accepted_tokens == sum(total.num_accepted_tokens_per_pos) > 0


def test_merging_counts_of_different_lengths() -> None:
    short, long = SpecDecodeStats(1, 1, 1, [1]), SpecDecodeStats(2, 6, 4, [2, 1, 1])
    short.merge(long)
    assert short == SpecDecodeStats(3, 7, 5, [3, 1, 1])
    assert long == SpecDecodeStats(2, 6, 4, [2, 1, 1])


def test_timing_in_milliseconds() -> None:
    """Arrived at 1 s, first of five tokens at 1.25 s, last at 2.25 s."""
    timing = Timing(arrived=1.0, first_token=1.25, last_token=2.25)
    assert timing.to_json(5) == {"ttft_ms": 250.0, "tpot_ms": 250.0, "tokens_per_s": 4.0}
    assert Timing(1.0, 1.25, 1.25).to_json(1) == {"ttft_ms": 250.0, "tpot_ms": None, "tokens_per_s": 4.0}
    assert Timing(1.0).to_json(0) == {"ttft_ms": None, "tpot_ms": None, "tokens_per_s": None}


def test_the_wait_for_a_place_belongs_to_the_time_to_the_first_token() -> None:
    rig = make_rig(Shape(max_num_seqs=1, num_seqs=(1,)))
    first, second = rig.generate(*(Request(str(i), prompt_of(5, i), max_tokens=5) for i in range(2)))
    for output in (first, second):
        timing = output.timing
        assert timing.first_token is not None
        assert timing.last_token is not None
        assert timing.arrived < timing.first_token < timing.last_token
    assert first.timing.last_token is not None
    assert second.timing.first_token is not None
    assert second.timing.arrived < first.timing.last_token < second.timing.first_token


def test_the_report_of_a_run() -> None:
    rig = make_rig()
    request = Request("a", prompt_of(7), max_tokens=10)
    texts = {"a": text_of(rig, request)}
    engine = rig.engine(oracle(texts, ACCEPTED))
    engine.add_request(request)
    for _ in range(2):
        engine.step()
    report = engine.report()
    # Before the second pass 8 tokens, and 2K behind them: four blocks of four, of the 64 beside the null block
    elements = 65 * 4 * 2 * 8 * 2 * (rig.target.num_layers + 1)
    assert report["kv"] == {"blocks": 65, "free": 64 - 4, "bytes": elements * 4}
    assert report["requests"] == {"waiting": 0, "running": 1, "preemptions": 0}
    assert report["prefix_cache"] == {"queries": 7, "hits": 0}
    assert report["steps"] == 2
    graphs = report["graphs"]
    assert isinstance(graphs, dict)
    assert {name: entry["runs"] for name, entry in graphs.items()} == {
        "target_prefill.t16.c32": 1,
        "target_verify.r1.c32": 1,
    }
    assert all(entry["mean_ms"] > 0 for entry in graphs.values())
    assert isinstance(report["host_share"], float)
    assert 0 < report["host_share"] < 1
    assert report["spec_decode"] == SpecDecodeStats(1, 3, 3, [1, 1, 1]).to_json()
    assert report["threads"] == {"count": torch.get_num_threads(), "why": ANY}
    # L14 (openvino.genai#3394)
    # A Python process with torch holds more than 50 MB and less than 50 GB: bytes, not kilobytes
    assert isinstance(report["peak_memory_bytes"], int)
    assert 50e6 < report["peak_memory_bytes"] < 50e9


def test_a_report_before_the_first_step() -> None:
    report = make_rig().engine().report()
    assert (report["steps"], report["graphs"], report["host_share"]) == (0, {}, 0.0)


def test_accepted_drafts_that_a_stop_cuts_off_count_as_accepted() -> None:
    """The target agreed with them; the text is shorter, the counts are not."""
    rig = make_rig()
    prompt = prompt_of(7, 1)
    text = rig.plain(prompt, 12)
    stop = text[2]
    assert text.index(stop) == 2
    script = ScriptedProposer(lambda sequence, room: text[1 : 1 + room], 3)
    (output,) = with_eos(rig, stop).generate(Request("a", prompt, max_tokens=9), proposer=script)
    assert list(output.token_ids) == text[:3]
    assert output.spec_decode == SpecDecodeStats(1, 3, 3, [1, 1, 1])


def serve(accepted: int, requests: int) -> SpecDecodeStats:
    """Requests of 40 tokens, one after the other on one engine, every pass accepting so many of three drafts."""
    rig = make_rig(Shape(max_num_seqs=1, num_seqs=(1,)))
    asked = [Request(str(number), prompt_of(7), max_tokens=40) for number in range(requests)]
    text = text_of(rig, asked[0])
    engine = rig.engine(oracle({request.request_id: text for request in asked}, (accepted,) * 60))
    engine.generate(asked)
    return engine.totals


def test_a_draft_that_is_never_accepted_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """A1: wrong auxiliary layers cost all acceptance and no text, so only the counts show it."""
    totals = serve(accepted=0, requests=12)
    assert totals.num_drafts > 2 * WATCHED_DRAFTS
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage().startswith("warning: the target accepted 0.0 % of the first ")
    assert "eagle3-build --probe-aux" in record.getMessage()


@pytest.mark.parametrize(("accepted", "requests"), [(1, 12), (0, 5)])
def test_a_draft_that_is_accepted_or_not_yet_judged_is_not_told_of(
    accepted: int, requests: int, caplog: pytest.LogCaptureFixture
) -> None:
    totals = serve(accepted, requests)
    assert (totals.num_drafts < WATCHED_DRAFTS) == (accepted == 0)
    assert caplog.records == []
