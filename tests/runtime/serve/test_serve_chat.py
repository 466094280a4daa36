"""/v1/chat/completions by the openai client: messages, streams, log probabilities, what is refused by name."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.runtime.loop.rig import Rig
from tests.runtime.serve.conftest import MODEL, SHAPE, TOKENIZER, engine_of, serving, toy_tokenizer

HELLO: list[dict[str, Any]] = [{"role": "user", "content": "hello"}]
HELLO_TEXT = "u: hello\na:"


def ask(client: openai.OpenAI, messages: Any = HELLO, **options: Any) -> Any:
    return client.chat.completions.create(model=MODEL, messages=messages, **({"temperature": 0} | options))


def expected(rig: Rig, prompt: str, count: int) -> str:
    return TOKENIZER.decode(rig.plain(TOKENIZER.encode(prompt, False), count))


def test_messages_are_answered_through_the_chat_template(client: openai.OpenAI, rig: Rig) -> None:
    answer = ask(client, [{"role": "system", "content": "be kind"}, *HELLO], max_tokens=20)
    choice = answer.choices[0]
    assert choice.message.content == expected(rig, "s: be kind\n" + HELLO_TEXT, 20)
    assert (choice.message.role, choice.finish_reason, choice.logprobs) == ("assistant", "length", None)
    assert (answer.object, answer.id[:9]) == ("chat.completion", "chatcmpl-")
    assert answer.usage.completion_tokens == 20


def test_the_rest_of_the_context_is_the_default_length(client: openai.OpenAI) -> None:
    assert ask(client).usage.total_tokens == SHAPE.max_model_len


def test_max_completion_tokens_goes_before_max_tokens(client: openai.OpenAI) -> None:
    assert ask(client, max_completion_tokens=5, max_tokens=9).usage.completion_tokens == 5
    assert ask(client, max_tokens=9).usage.completion_tokens == 9


def test_text_parts_are_lines_of_one_message(client: openai.OpenAI, rig: Rig) -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    answer = ask(client, [{"role": "user", "content": parts}], max_tokens=12)
    assert answer.choices[0].message.content == expected(rig, "u: one\ntwo\na:", 12)


def test_a_stream_begins_with_the_role_and_adds_up_to_the_answer(client: openai.OpenAI, rig: Rig) -> None:
    chunks = list(ask(client, stream=True, max_tokens=40, stream_options={"include_usage": True}))
    assert (chunks[0].choices[0].delta.role, chunks[0].choices[0].delta.content) == ("assistant", "")
    assert all(chunk.object == "chat.completion.chunk" for chunk in chunks)
    body = [chunk.choices[0] for chunk in chunks[:-1]]
    assert "".join(choice.delta.content for choice in body) == expected(rig, HELLO_TEXT, 40)
    assert [choice.finish_reason for choice in body if choice.finish_reason] == ["length"]
    assert (chunks[-1].choices, chunks[-1].usage.completion_tokens) == ([], 40)


@pytest.mark.parametrize("stream", [False, True])
def test_logprobs_spell_the_answer_in_bytes(client: openai.OpenAI, rig: Rig, stream: bool) -> None:
    """J3 (vllm#29216): one entry for every id."""
    answer = ask(client, max_tokens=30, logprobs=True, top_logprobs=2, stream=stream)
    parts = [chunk.choices[0] for chunk in answer if chunk.choices[0].logprobs] if stream else [answer.choices[0]]
    content = [entry for part in parts for entry in part.logprobs.content]
    assert len(content) == 30
    spelt = b"".join(bytes(entry.bytes) for entry in content if entry.token != "<eos>")
    assert spelt.decode("utf-8", "replace") == expected(rig, HELLO_TEXT, 30)
    for entry in content:
        assert entry.logprob < 0
        assert entry.top_logprobs[0].token == entry.token
        assert len(entry.top_logprobs) == 2


def test_logprobs_alone_name_no_others(client: openai.OpenAI) -> None:
    content = ask(client, max_tokens=3, logprobs=True).choices[0].logprobs.content
    assert [entry.top_logprobs for entry in content] == [[], [], []]


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"n": 2}, "n"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"extra_body": {"guided_json": {}, "guided_regex": "a+"}}, "guided_regex"),
        ({"extra_body": {"chat_template": "{{ 1 }}"}}, "chat_template"),
        ({"extra_body": {"continue_final_message": True}}, "continue_final_message"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"stop": ["a", ""]}, "stop"),
        ({"temperature": -1}, "temperature"),
        ({"logit_bias": {"64": 1}}, "logit_bias"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(client: openai.OpenAI, options: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        ask(client, **options)
    assert error.value.param == param
    assert param in error.value.message
    assert error.value.type == "invalid_request_error"


@pytest.mark.parametrize(
    "options",
    [
        {"n": 1, "response_format": {"type": "text"}},
        {"user": "me", "metadata": {}, "store": False},
        {"extra_body": {"no_such_key": 1, "chat_template_kwargs": {}, "add_generation_prompt": True}},
    ],
)
def test_what_asks_for_nothing_is_passed_over(client: openai.OpenAI, options: dict[str, Any]) -> None:
    assert ask(client, max_tokens=2, **options).usage.completion_tokens == 2


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], "at least one message"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"content": "hello"}], "messages[0].role"),
        (["hello"], "messages[0]"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}], "image_url"),
        ([{"role": "assistant", "content": "x", "tool_calls": [{"id": "1"}]}], "tool_calls"),
        ([{"role": "tool", "content": "x"}], "no tools here"),
        ([{"role": "user", "content": "a" * 200}], "too long"),
    ],
)
def test_a_bad_message_is_named(client: openai.OpenAI, messages: Any, words: str) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        ask(client, messages)
    assert words in error.value.message
    assert error.value.param == "messages"
    assert "--raw" not in error.value.message


def test_a_model_without_a_template_says_where_to_go(rig: Rig) -> None:
    with (
        serving(engine_of(rig), rig, tokenizer=toy_tokenizer(None)) as server,
        pytest.raises(openai.BadRequestError, match="/v1/completions"),
    ):
        ask(server.client())
