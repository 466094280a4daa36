"""/metrics: vLLM's names, in Prometheus' form, with figures that a scripted draft makes known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import httpx
import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

from runtime.graphs import GraphSet
from runtime.proposer import Proposer, ScriptedProposer
from tests.runtime.loop.rig import VOCAB, Rig
from tests.runtime.serve.conftest import MODEL, TOKENIZER, Running, Slow, engine_of, serving, until


def scrape(server: Running) -> dict[str, float]:
    """Every sample by its name and labels other than the model's: `vllm:x{position=0}`."""
    answer = httpx.get(f"{server.url}/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    samples = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            labels = dict(sample.labels)
            if family.name.startswith("vllm:"):
                assert labels.pop("model_name") == MODEL
            inner = ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
            samples[sample.name + (f"{{{inner}}}" if inner else "")] = sample.value
    return samples


def pattern(text: Sequence[int], right: Sequence[int]) -> Callable[[GraphSet], Proposer]:
    """A draft whose i-th proposal has `right[i]` right tokens and then wrong ones, and none after the last."""
    turns = iter(right)

    def propose(sequence: Any, room: int) -> list[int]:
        good = next(turns, None)
        if good is None:
            return []
        known = text[len(sequence.token_ids) :][:room]
        return [token if i < good else (token + 1) % VOCAB for i, token in enumerate(known)]

    return lambda graphs: ScriptedProposer(propose, 3)


def ask(server: Running, prompt: str = "hello", **options: Any) -> Any:
    return server.client().completions.create(model=MODEL, prompt=prompt, **({"temperature": 0} | options))


def test_the_counts_of_speculation_are_those_of_the_pattern(rig: Rig) -> None:
    """N1 (sglang#11144, aiperf#1191): accepted [3, 0, 2] of 3 drafts each; the bonus token is not counted."""
    ids = TOKENIZER.encode("hello")
    text = [*ids, *rig.plain(ids, 24)]
    with serving(engine_of(rig, pattern(text, [3, 0, 2])), rig) as server:
        # 1 by the prefill, then 4, 1 and 3, and the rest one by one
        ask(server, max_tokens=16)
        samples = scrape(server)
    spec = "vllm:spec_decode_num_"
    drafts, proposed = samples[f"{spec}drafts_total"], samples[f"{spec}draft_tokens_total"]
    accepted = samples[f"{spec}accepted_tokens_total"]
    per_position = [samples[f"{spec}accepted_tokens_per_pos_total{{position={i}}}"] for i in range(3)]
    assert (drafts, proposed, accepted, per_position) == (3, 9, 5, [2, 2, 1])
    assert 1 + accepted / drafts == pytest.approx(2.667, abs=1e-3)
    assert accepted / proposed == pytest.approx(0.556, abs=1e-3)
    assert samples["vllm:generation_tokens_total"] == 16


def test_requests_tokens_and_times_are_counted(rig: Rig) -> None:
    with serving(engine_of(rig), rig) as server:
        for count in (1, 5, 9):
            list(ask(server, max_tokens=count, stream=True))
        stop = ask(server, max_tokens=9).choices[0].text[2]
        ask(server, max_tokens=9, stop=stop)
        with pytest.raises(openai.BadRequestError):
            ask(server, max_tokens=0)
        samples = scrape(server)
    reasons = {reason: samples[f"vllm:request_success_total{{finished_reason={reason}}}"] for reason in REASONS}
    assert reasons == {"length": 4, "stop": 1, "abort": 0, "error": 0}
    assert samples["vllm:prompt_tokens_total"] == 5 * len(TOKENIZER.encode("hello"))
    assert samples["vllm:time_to_first_token_seconds_count"] == 5
    assert samples["vllm:e2e_request_latency_seconds_count"] == 5
    assert samples["vllm:request_time_per_output_token_seconds_count"] == 4
    assert samples["vllm:request_generation_tokens_sum"] == samples["vllm:generation_tokens_total"]
    # All outputs of a request but its first
    assert 0 < samples["vllm:inter_token_latency_seconds_count"] < samples["vllm:generation_tokens_total"] - 5 + 1
    assert samples["vllm:e2e_request_latency_seconds_sum"] >= samples["vllm:time_to_first_token_seconds_sum"] > 0


REASONS = ("length", "stop", "abort", "error")


def test_gauges_show_who_runs_and_who_waits(rig: Rig) -> None:
    slow = Slow(engine_of(rig))
    with serving(slow, rig) as server:
        before = scrape(server)
        names = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
        assert [before[name] for name in names] == [0, 0, 0]
        stream = ask(server, prompt=["hello"] * 6, max_tokens=100, stream=True)
        until(lambda: scrape(server)["vllm:num_requests_running"] == 4)
        slow.hold()
        during = scrape(server)
        assert [during[name] for name in names[:2]] == [4, 2]
        assert 0 < during[names[2]] <= 1
        stream.close()
        slow.release()
        until(lambda: [scrape(server)[name] for name in names] == [0, 0, 0])
        assert scrape(server)["vllm:request_success_total{finished_reason=abort}"] == 6


def test_the_prefix_cache_is_counted(rig: Rig) -> None:
    prompt = "the cat and the hat and the cat and the hat, and the cat and the hat again"
    with serving(engine_of(rig), rig) as server:
        ask(server, prompt, max_tokens=8)
        cached = ask(server, prompt, max_tokens=8).usage.prompt_tokens_details.cached_tokens
        samples = scrape(server)
    assert samples["vllm:prefix_cache_hits_total"] == cached > 0
    assert samples["vllm:prefix_cache_queries_total"] > cached


def test_preemptions_are_counted(rig: Rig) -> None:
    with serving(engine_of(rig, kv_blocks=1 + 20), rig) as server:
        assert scrape(server)["vllm:num_preemptions_total"] == 0
        ask(server, prompt=["hello", "bye", "the", "and"], max_tokens=50)
        assert scrape(server)["vllm:num_preemptions_total"] == server.engine.num_preemptions > 0
