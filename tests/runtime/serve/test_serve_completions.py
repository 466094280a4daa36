"""/v1/completions by the openai client: texts and ids, whole and streamed, endings, log probabilities, usage."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx
import openai
import pytest

from tests.runtime.loop.rig import Rig, make_rig, with_eos
from tests.runtime.serve.conftest import MODEL, SHAPE, TOKENIZER, Running, Scripted, engine_of, parse_events, serving

PROMPTS = ("the cat and the hat", "hello", "are you there?", "an 😀 é", "1234")


def expected(rig: Rig, prompt: str, count: int) -> str:
    return TOKENIZER.decode(rig.plain(TOKENIZER.encode(prompt), count))


def ask(client: openai.OpenAI, prompt: Any, **options: Any) -> Any:
    return client.completions.create(model=MODEL, prompt=prompt, **({"temperature": 0} | options))


def streamed(client: openai.OpenAI, prompt: Any, **options: Any) -> list[Any]:
    return list(ask(client, prompt, stream=True, **options))


@pytest.mark.parametrize("prompt", PROMPTS)
def test_a_greedy_answer_is_the_text_of_plain_decoding(client: openai.OpenAI, rig: Rig, prompt: str) -> None:
    answer = ask(client, prompt, max_tokens=20)
    choice = answer.choices[0]
    assert choice.text == expected(rig, prompt, 20)
    assert (choice.finish_reason, choice.stop_reason, choice.logprobs) == ("length", None, None)
    assert (answer.object, answer.model, answer.id[:5]) == ("text_completion", MODEL, "cmpl-")
    assert answer.usage.prompt_tokens == len(TOKENIZER.encode(prompt))
    assert (answer.usage.completion_tokens, answer.usage.total_tokens) == (20, answer.usage.prompt_tokens + 20)


def test_sixteen_tokens_are_the_default(client: openai.OpenAI) -> None:
    assert ask(client, "hello").usage.completion_tokens == 16


def test_a_prompt_of_ids_is_answered_as_its_text(client: openai.OpenAI, rig: Rig) -> None:
    assert ask(client, TOKENIZER.encode("hello"), max_tokens=9).choices[0].text == expected(rig, "hello", 9)


@pytest.mark.parametrize("as_ids", [False, True])
def test_several_prompts_get_a_choice_each_in_order(client: openai.OpenAI, rig: Rig, as_ids: bool) -> None:
    prompts = [TOKENIZER.encode(prompt) for prompt in PROMPTS] if as_ids else list(PROMPTS)
    answer = ask(client, prompts, max_tokens=12)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3, 4]
    assert [choice.text for choice in answer.choices] == [expected(rig, prompt, 12) for prompt in PROMPTS]
    assert answer.usage.completion_tokens == 60


@pytest.mark.parametrize("prompt", PROMPTS)
def test_a_stream_adds_up_to_the_answer_and_shows_no_half_character(
    client: openai.OpenAI, rig: Rig, prompt: str
) -> None:
    chunks = streamed(client, prompt, max_tokens=40)
    text = expected(rig, prompt, 40)
    assert "".join(chunk.choices[0].text for chunk in chunks) == text
    assert len({chunk.id for chunk in chunks}) == 1
    assert [chunk.choices[0].finish_reason for chunk in chunks][-1] == "length"
    assert all(chunk.choices[0].finish_reason is None and chunk.usage is None for chunk in chunks[:-1])
    # One event for a step, and a step may bring several tokens
    assert 2 < len(chunks) <= 40


def test_an_emoji_of_four_tokens_comes_whole(rig: Rig) -> None:
    ids = [TOKENIZER.encode("a")[0], *TOKENIZER.encode("😀"), TOKENIZER.encode("b")[0]]
    assert len(ids) == 6
    with serving(Scripted(ids), rig) as server:
        texts = [chunk.choices[0].text for chunk in streamed(server.client(), "hello", max_tokens=6)]
    # How many steps an event holds is a matter of time; no event holds a part of a character
    assert "".join(texts) == "a😀b"
    assert not any("\ufffd" in text for text in texts)


def test_usage_comes_last_and_only_where_it_is_asked_for(client: openai.OpenAI) -> None:
    chunks = streamed(client, "hello", max_tokens=10, stream_options={"include_usage": True})
    assert chunks[-1].choices == []
    assert (chunks[-1].usage.prompt_tokens, chunks[-1].usage.completion_tokens) == (4, 10)
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_several_prompts_stream_side_by_side(client: openai.OpenAI, rig: Rig) -> None:
    chunks = streamed(client, list(PROMPTS), max_tokens=12)
    for index, prompt in enumerate(PROMPTS):
        mine = [chunk.choices[0] for chunk in chunks if chunk.choices[0].index == index]
        assert "".join(choice.text for choice in mine) == expected(rig, prompt, 12)
        assert [choice.finish_reason for choice in mine if choice.finish_reason] == ["length"]


@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_ends_the_text_before_or_after_it(
    client: openai.OpenAI, rig: Rig, stream: bool, include: bool
) -> None:
    text = expected(rig, "hello", 40)
    stop = text[5:9]
    cut = text.index(stop)
    options = {"max_tokens": 40, "stop": ["never", stop], "extra_body": {"include_stop_str_in_output": include}}
    if stream:
        chunks = streamed(client, "hello", **options)
        shown, last = "".join(chunk.choices[0].text for chunk in chunks), chunks[-1].choices[0]
    else:
        last = ask(client, "hello", **options).choices[0]
        shown = last.text
    assert shown == text[: cut + len(stop) if include else cut]
    assert (last.finish_reason, last.stop_reason) == ("stop", stop)


@pytest.mark.parametrize("stream", [False, True])
def test_an_end_of_sequence_is_counted_and_not_shown(rig: Rig, stream: bool) -> None:
    """I3 (sglang#39826): usage counts the ids of the answer, its end included, and no more."""
    plain = rig.plain(TOKENIZER.encode("hello"), 12)
    eos = next(token for token in plain[3:] if plain.index(token) >= 3)
    count = plain.index(eos) + 1
    ended = with_eos(rig, eos)
    options: dict[str, Any] = {"max_tokens": 40, "extra_body": {"return_token_ids": True}}
    with serving(engine_of(ended), ended) as server:
        if stream:
            chunks = streamed(server.client(), "hello", stream_options={"include_usage": True}, **options)
            text = "".join(chunk.choices[0].text for chunk in chunks[:-1])
            ids = [token for chunk in chunks[:-1] for token in chunk.choices[0].token_ids]
            last, usage = chunks[-2].choices[0], chunks[-1].usage
        else:
            answer = ask(server.client(), "hello", **options)
            last, usage = answer.choices[0], answer.usage
            text, ids = last.text, last.token_ids
    assert (text, ids) == (TOKENIZER.decode(plain[: count - 1]), plain[:count])
    assert (last.finish_reason, last.stop_reason, usage.completion_tokens) == ("stop", None, count)


@pytest.mark.parametrize("include", [False, True])
def test_a_stop_id_is_named_and_left_out_unless_asked_for(client: openai.OpenAI, rig: Rig, include: bool) -> None:
    plain = rig.plain(TOKENIZER.encode("hello"), 12)
    stop = next(token for token in plain[3:] if plain.index(token) >= 3)
    count = plain.index(stop) + 1
    extra = {"stop_token_ids": [stop], "include_stop_str_in_output": include}
    choice = ask(client, "hello", max_tokens=40, extra_body=extra).choices[0]
    assert choice.text == TOKENIZER.decode(plain[: count if include else count - 1])
    assert (choice.finish_reason, choice.stop_reason) == ("stop", stop)


def test_ignore_eos_goes_on(rig: Rig) -> None:
    plain = rig.plain(TOKENIZER.encode("hello"), 20)
    ended = with_eos(rig, plain[2])
    with serving(engine_of(ended), ended) as server:
        answer = ask(server.client(), "hello", max_tokens=20, extra_body={"ignore_eos": True})
    assert answer.usage.completion_tokens == 20


def test_the_context_ends_an_answer(client: openai.OpenAI) -> None:
    answer = ask(client, "hello", max_tokens=5000)
    assert (answer.usage.total_tokens, answer.choices[0].finish_reason) == (128, "length")


def test_a_seed_gives_the_same_text_and_others_give_others(client: openai.OpenAI) -> None:
    texts = [ask(client, "hello", max_tokens=24, temperature=1.0, seed=seed).choices[0].text for seed in (1, 1, 2, 3)]
    assert texts[0] == texts[1]
    assert len(set(texts)) == 3


def test_a_temperature_of_one_is_the_default(client: openai.OpenAI, rig: Rig) -> None:
    texts = {client.completions.create(model=MODEL, prompt="hello", max_tokens=24).choices[0].text for _ in range(4)}
    assert len(texts | {expected(rig, "hello", 24)}) > 2


def test_extra_parameters_of_vllm_reach_the_sampler(client: openai.OpenAI, rig: Rig) -> None:
    allowed = [5, 6, 7]
    extra = {"allowed_token_ids": allowed, "return_token_ids": True}
    assert set(ask(client, "hello", extra_body=extra).choices[0].token_ids) <= set(allowed)
    likeliest = ask(client, "hello", temperature=1.0, extra_body={"top_k": 1}).choices[0].text
    assert likeliest == expected(rig, "hello", 16)
    biased = ask(client, "hello", logit_bias={"9": 100}, extra_body={"return_token_ids": True})
    assert set(biased.choices[0].token_ids) == {9}


@pytest.mark.parametrize("stream", [False, True])
def test_logprobs_have_an_entry_for_every_id_and_offsets_into_the_text(
    client: openai.OpenAI, rig: Rig, stream: bool
) -> None:
    """J3 (vllm#29216): as many log probabilities as ids, whatever the steps accepted."""
    options: dict[str, Any] = {"max_tokens": 30, "logprobs": 3, "extra_body": {"return_token_ids": True}}
    answers = streamed(client, "an 😀 é", **options) if stream else [ask(client, "an 😀 é", **options)]
    choices = [answer.choices[0] for answer in answers]
    ids = [token for choice in choices for token in choice.token_ids]
    text = "".join(choice.text for choice in choices)
    parts = [choice.logprobs for choice in choices]
    tokens, offsets = ([x for part in parts for x in getattr(part, name)] for name in ("tokens", "text_offset"))
    assert ids == rig.plain(TOKENIZER.encode("an 😀 é"), 30)
    assert len(tokens) == len(offsets) == len(ids) == 30
    values = [value for part in parts for value in part.token_logprobs]
    tops = [top for part in parts for top in part.top_logprobs]
    assert len(values) == len(tops) == 30
    # J5 (llama.cpp#27972): none is certain; greedy, so each is the likeliest
    assert all(value < 0 and value == max(top.values()) for value, top in zip(values, tops, strict=True))
    assert all(3 <= len(top) <= 4 for top in tops)
    for token, offset in zip(tokens, offsets, strict=True):
        if not token.startswith("bytes:") and token != "<eos>":
            assert text[offset:].startswith(token)


def test_return_token_ids_is_off_by_default(client: openai.OpenAI) -> None:
    assert not hasattr(ask(client, "hello").choices[0], "token_ids")


def test_cached_tokens_are_told(client: openai.OpenAI) -> None:
    prompt = "the cat and the hat and the cat and the hat, and the cat and the hat again"
    first, second = (ask(client, prompt, max_tokens=2).usage.prompt_tokens_details.cached_tokens for _ in range(2))
    assert first == 0
    assert 0 < second < len(TOKENIZER.encode(prompt))


def test_a_bundle_without_logits_answers_greedily_and_refuses_a_temperature(rig: Rig) -> None:
    greedy = make_rig(replace(SHAPE, greedy_only=True))
    with serving(engine_of(greedy), greedy) as server:
        client = server.client()
        answer = client.completions.create(model=MODEL, prompt="hello", max_tokens=20)
        with pytest.raises(openai.BadRequestError) as refused:
            ask(client, "hello", temperature=0.5)
    assert answer.choices[0].text == expected(rig, "hello", 20)
    assert refused.value.param == "temperature"
    assert "on_device_sampling_config" in refused.value.message
    assert "Request cmpl" not in refused.value.message


def test_events_end_with_done(server: Running) -> None:
    body = {"prompt": "hello", "stream": True, "temperature": 0}
    answer = httpx.post(f"{server.url}/v1/completions", json=body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = parse_events(answer.text)
    assert events[-1] == "[DONE]"
    assert answer.headers["x-request-id"] == events[0]["id"]
