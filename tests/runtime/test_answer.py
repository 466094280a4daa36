"""The text of an answer from the real loop: ids, text, logprobs and usage are cut together, however tokens came."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models

from runtime.answer import AnswerText, answer_text
from runtime.check import compare
from runtime.engine import Engine
from runtime.fused import draft_proposer
from runtime.output import request_json
from runtime.prompts import Prompt
from runtime.proposer import NoProposer, Proposer
from runtime.request import Request, RequestOutput, StepOutput
from runtime.sampling.params import GREEDY, SamplingParams
from runtime.text import StopStrings, Tokenizer
from runtime.text.tokenizer import TokenizerInfo
from tests.runtime.loop.rig import VOCAB, K, Rig, Shape, make_rig, oracle, prompt_of, text_of

# Ids of one, two and three characters, of a quarter of an emoji, and of spaces
PIECES = [
    *"abcd",
    *map("".join, itertools.product("abcd", repeat=2)),
    *map("".join, itertools.islice(itertools.product("abcd", repeat=3), 38)),
    *("ð", "Ł", "ĺ", "Ģ"),
    *("Ġa", "Ċ"),
]
MAX_TOKENS = 14
PATTERNS = [*((count,) for count in range(K + 1)), tuple(range(K + 1))]


def letters() -> Tokenizer:
    assert len(PIECES) == len(set(PIECES)) == VOCAB
    backend = tokenizers.Tokenizer(models.BPE({piece: index for index, piece in enumerate(PIECES)}, []))
    backend.decoder = decoders.ByteLevel()
    return Tokenizer(backend, TokenizerInfo(None, None, None, False, ()))


TOKENIZER = letters()
RIG = make_rig(replace(Shape(), greedy_only=False))


def run(rig: Rig, request: Request, proposer: Proposer) -> tuple[RequestOutput, list[StepOutput]]:
    def watch(request: Request) -> StopStrings:
        return StopStrings(TOKENIZER, request.sampling.stop, skip=request.sampling.min_tokens)

    engine = Engine(rig.graphs(), proposer, watches=watch)
    engine.add_request(request)
    steps = []
    while engine.has_unfinished():
        steps += engine.step()
    (output,) = engine.take_finished()
    return output, steps


def expected(ids: list[int], sampling: SamplingParams) -> tuple[str, int | str | None, int]:
    """Text, stop reason and number of ids, by looking at the whole text after every id.

    A stop id that is left in the text may hold a stop string, which cuts the text all the same.
    """
    exempt = len(TOKENIZER.decode(ids[: sampling.min_tokens]).removesuffix("\ufffd"))
    for count in range(sampling.min_tokens + 1, len(ids) + 1):
        by_id = ids[count - 1] in sampling.stop_token_ids
        if by_id and not sampling.include_stop_str_in_output:
            return TOKENIZER.decode(ids[: count - 1]), ids[count - 1], count
        text = TOKENIZER.decode(ids[:count]).removesuffix("\ufffd")
        for end in range(exempt + 1, len(text) + 1):
            if ends := [stop for stop in sampling.stop if text[:end].endswith(stop)]:
                longest = max(ends, key=len)
                keep = sampling.include_stop_str_in_output
                return text[: end if keep else end - len(longest)], ids[count - 1] if by_id else longest, count
        if by_id:
            return TOKENIZER.decode(ids[:count]), ids[count - 1], count
    return TOKENIZER.decode(ids), None, len(ids)


@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_ids_text_logprobs_and_usage_are_cut_together_for_every_accept_pattern(data: st.DataObject) -> None:
    """I3 (sglang#39826), J3 (vllm#29216): counts and logprobs are those of the ids that are given back."""
    request = Request("a", prompt_of(7, data.draw(st.integers(0, 3))), MAX_TOKENS)
    known = text_of(RIG, request)
    plain = known[7 : 7 + MAX_TOKENS]
    text = TOKENIZER.decode(plain)
    places = st.tuples(st.integers(0, len(text) - 1), st.integers(1, 5))
    sampling = SamplingParams(
        temperature=0.0,
        stop=tuple(text[at : at + size] for at, size in data.draw(st.lists(places, max_size=2))),
        stop_token_ids=tuple(data.draw(st.lists(st.sampled_from(plain[5:]), max_size=1))),
        include_stop_str_in_output=data.draw(st.booleans()),
        logprobs=data.draw(st.sampled_from([None, 0, 2])),
    )
    shown, reason, count = expected(plain, sampling)
    pattern = data.draw(st.sampled_from([None, *PATTERNS]))
    proposer = NoProposer() if pattern is None else oracle({"a": known}, pattern)
    output, steps = run(RIG, replace(request, sampling=sampling), proposer)
    assert (list(output.token_ids), output.stop_reason) == (plain[:count], reason)
    assert output.finish_reason == ("length" if reason is None else "stop")
    assert answer_text(output, TOKENIZER, sampling) == shown
    stream, streamed = AnswerText(TOKENIZER, sampling), ""
    for step in steps:
        streamed += stream.push(step)
        assert shown.startswith(streamed)
    assert streamed + stream.flush() == shown
    as_json = request_json(Prompt("here", "x"), output, TOKENIZER, sampling)
    assert as_json["usage"] == {"prompt_tokens": 7, "completion_tokens": count}
    assert [each.token_id for each in output.logprobs] == ([] if sampling.logprobs is None else plain[:count])


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_a_stop_string_across_an_accepted_run_ends_it_within(pattern: tuple[int, ...]) -> None:
    request = Request("a", prompt_of(7), MAX_TOKENS)
    known = text_of(RIG, request)
    plain = known[7:]
    # From within one token to within one three tokens on, so that with drafts it lies across a pass or within one
    before, through = len(TOKENIZER.decode(plain[:5])), len(TOKENIZER.decode(plain[:8]))
    stop = TOKENIZER.decode(plain)[before - 1 : through]
    output, _ = run(RIG, replace(request, sampling=replace(GREEDY, stop=(stop,))), oracle({"a": known}, pattern))
    text, reason, count = expected(plain[:MAX_TOKENS], replace(GREEDY, stop=(stop,)))
    assert (reason, count) == (stop, 8)
    assert list(output.token_ids) == plain[:8]
    assert answer_text(output, TOKENIZER, replace(GREEDY, stop=(stop,))) == text


@pytest.mark.parametrize("pattern", [(0,), (K,)], ids=str)
@pytest.mark.parametrize("min_tokens", [0, 3, 4, 9])
def test_a_stop_string_within_min_tokens_does_not_end_an_answer(min_tokens: int, pattern: tuple[int, ...]) -> None:
    request = Request("a", prompt_of(7), MAX_TOKENS)
    known = text_of(RIG, request)
    plain = known[7 : 7 + MAX_TOKENS]
    sampling = replace(GREEDY, stop=(TOKENIZER.decode(plain[3:4]),), min_tokens=min_tokens)
    text, reason, count = expected(plain, sampling)
    output, _ = run(RIG, replace(request, sampling=sampling), oracle({"a": known}, pattern))
    assert (list(output.token_ids), output.stop_reason) == (plain[:count], reason)
    assert count > min_tokens
    assert answer_text(output, TOKENIZER, sampling) == text


@pytest.mark.parametrize(
    "sampling", [SamplingParams(0.8, top_p=0.9, seed=0), SamplingParams(1.0, seed=-5, stop=("b",))]
)
def test_check_finds_the_same_text_and_logprobs_of_random_requests_with_and_without_speculation(
    sampling: SamplingParams,
) -> None:
    requests = [Request(str(n), prompt_of(5 + n, n), 12, sampling=replace(sampling, logprobs=2)) for n in range(4)]
    prompts = [Prompt(f"prompt {n}", request.prompt_token_ids) for n, request in enumerate(requests)]

    def load(speculation: bool) -> Engine:
        graphs = RIG.graphs()
        proposer = draft_proposer(graphs) if speculation else NoProposer()
        return Engine(graphs, proposer, watches=lambda request: StopStrings(TOKENIZER, request.sampling.stop))

    results, stats = compare(load, prompts, requests)
    assert [(result.differences, result.logprobs) for result in results] == [({}, {})] * 4
    assert stats.num_drafts > 0
