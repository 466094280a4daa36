"""Every field that clients of vLLM know has its effect, is refused by name, or is documented as having none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from runtime.sampling.parse import UNSUPPORTED
from runtime.serve import chat, completions
from runtime.serve.errors import ApiError
from runtime.serve.fields import WITHOUT_EFFECT
from runtime.serve.generation import Generation
from runtime.serve.start import describe
from tests.runtime.loop.rig import Rig
from tests.runtime.serve.conftest import MODEL, TOKENIZER, Scripted, engine_of, parse_events, serving

DOCS = Path(__file__).parents[3] / "docs" / "serving.md"
# A value of each that is not the default
EFFECTS: dict[str, Any] = {
    "max_tokens": 3,
    "ignore_eos": True,
    "stream": True,
    "return_token_ids": True,
    "return_tokens_as_token_ids": True,
    "temperature": 0.5,
    "top_k": 3,
    "top_p": 0.5,
    "min_p": 0.5,
    "presence_penalty": 1,
    "frequency_penalty": 1,
    "repetition_penalty": 2,
    "logit_bias": {"3": 1},
    "allowed_token_ids": [3],
    "bad_words": ["the"],
    "min_tokens": 2,
    "stop": "the",
    "stop_token_ids": [3],
    "include_stop_str_in_output": True,
    "skip_special_tokens": False,
    "seed": 7,
}
OF_CHAT = EFFECTS | {"messages": [{"role": "user", "content": "bye"}], "max_completion_tokens": 3, "logprobs": True}
OF_COMPLETIONS = EFFECTS | {"prompt": "bye", "logprobs": 3}
# With others, in tests of their own
BESIDES = {"model", "stream_options", "top_logprobs"}
# What vLLM's two protocols list, beside what has its effect here
VLLM = [
    "response_format",
    "structured_outputs",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "user",
    "n",
    "prompt_logprobs",
    "use_beam_search",
    "length_penalty",
    "spaces_between_special_tokens",
    "truncate_prompt_tokens",
    "echo",
    "add_special_tokens",
    "priority",
    "request_id",
    "cache_salt",
    "kv_transfer_params",
    "vllm_xargs",
    "logits_processors",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "guided_whitespace_pattern",
]
VLLM_CHAT = [
    "reasoning_effort",
    "include_reasoning",
    "add_generation_prompt",
    "continue_final_message",
    "documents",
    "chat_template",
    "chat_template_kwargs",
    "media_io_kwargs",
    "mm_processor_kwargs",
]
VLLM_COMPLETIONS = ["best_of", "suffix", "prompt_embeds"]


def read(rig: Rig, kind: str, **data: Any) -> Generation:
    served = describe(rig.manifest, TOKENIZER)
    if kind == "chat":
        return chat.read_chat({"messages": [{"role": "user", "content": "hello"}], **data}, served)
    return completions.read_completion({"prompt": "hello", **data}, served)


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [("chat", *item) for item in OF_CHAT.items()] + [("completions", *item) for item in OF_COMPLETIONS.items()],
)
def test_s1_a_field_that_is_taken_changes_what_is_run(rig: Rig, kind: str, name: str, value: Any) -> None:
    assert read(rig, kind, **{name: value}) != read(rig, kind)


@pytest.mark.parametrize(
    ("module", "effects", "listed"),
    [(chat, OF_CHAT, VLLM + VLLM_CHAT), (completions, OF_COMPLETIONS, VLLM + VLLM_COMPLETIONS)],
    ids=["chat", "completions"],
)
def test_s1_no_field_is_taken_in_silence(module: Any, effects: dict[str, Any], listed: list[str]) -> None:
    """What is known is one of three things, and what vLLM lists is known."""
    refused = {*module.REFUSED_HERE, *UNSUPPORTED}
    known = {*effects, *BESIDES, *refused, *WITHOUT_EFFECT}
    assert known ^ module.KNOWN <= ({"top_logprobs"} if module is completions else set()) | {"add_special_tokens"}
    assert not set(effects) & refused
    assert set(listed) - {"add_special_tokens"} <= module.KNOWN


@pytest.mark.parametrize("name", WITHOUT_EFFECT)
def test_s1_a_field_without_effect_is_documented(rig: Rig, name: str) -> None:
    assert f"`{name}`" in DOCS.read_text(encoding="utf-8").partition("\n- Without effect")[2].partition("\n")[0]
    for kind in ("chat", "completions"):
        assert read(rig, kind, **{name: "x"}) == read(rig, kind)


@pytest.mark.parametrize(
    ("name", "value"), [("priority", 1), ("cache_salt", "x"), ("truncate_prompt_tokens", 3), ("vllm_xargs", {"a": 1})]
)
def test_s1_a_field_that_would_have_an_effect_is_refused(rig: Rig, name: str, value: Any) -> None:
    for kind in ("chat", "completions"):
        with pytest.raises(ApiError) as error:
            read(rig, kind, **{name: value})
        assert error.value.param == name


@pytest.mark.parametrize(("name", "value"), [("reasoning_effort", "high"), ("chat_template_kwargs", {"a": 1})])
def test_s1_arguments_of_a_chat_template_are_refused(rig: Rig, name: str, value: Any) -> None:
    with pytest.raises(ApiError) as error:
        read(rig, "chat", **{name: value})
    assert error.value.param == name


def test_s1_counts_in_every_chunk_are_refused(rig: Rig) -> None:
    with pytest.raises(ApiError) as error:
        read(rig, "chat", stream=True, stream_options={"continuous_usage_stats": True})
    assert error.value.param == "stream_options"


IDS = [*TOKENIZER.encode("an"), 0, *TOKENIZER.encode("the")]


@pytest.mark.parametrize("stream", [False, True])
def test_s1_special_tokens_are_shown_where_that_is_asked_for(rig: Rig, stream: bool) -> None:
    with serving(Scripted(IDS), rig) as server:
        client = server.client()
        for skip, text in ((True, "anthe"), (False, "an<eos>the"), (None, "anthe")):
            extra = {} if skip is None else {"skip_special_tokens": skip}
            whole = client.completions.create(model=MODEL, prompt="a", stream=stream, extra_body=extra)
            parts = list(whole) if stream else [whole]
            assert "".join(part.choices[0].text for part in parts) == text
            messages: Any = [{"role": "user", "content": "a"}]
            talk: Any = client.chat.completions.create(model=MODEL, messages=messages, stream=stream, extra_body=extra)
            if stream:
                assert "".join(part.choices[0].delta.content or "" for part in talk) == text
            else:
                assert talk.choices[0].message.content == text


def test_s1_a_shown_special_token_may_be_a_stop_string(rig: Rig) -> None:
    with serving(Scripted(IDS), rig) as server:
        for skip, text in ((True, "anthe"), (False, "an")):
            extra = {"skip_special_tokens": skip, "stop": ["<eos>"]}
            answer = server.client().completions.create(model=MODEL, prompt="a", extra_body=extra)
            assert answer.choices[0].text == text


@pytest.mark.parametrize("stream", [False, True])
def test_s1_log_probabilities_name_ids_where_that_is_asked_for(rig: Rig, stream: bool) -> None:
    with serving(engine_of(rig), rig) as server:
        body = {"prompt": "a", "max_tokens": 5, "temperature": 0, "logprobs": 1, "stream": stream}
        for asked in (False, True):
            more = {"return_tokens_as_token_ids": asked, "return_token_ids": True}
            answer = httpx.post(f"{server.url}/v1/completions", json=body | more, timeout=30)
            events = [e for e in parse_events(answer.text) if e != "[DONE]"] if stream else [answer.json()]
            choices = [event["choices"][0] for event in events if event["choices"]]
            names = [name for choice in choices if choice["logprobs"] for name in choice["logprobs"]["tokens"]]
            ids = [token for choice in choices for token in choice["token_ids"]]
            assert len(ids) == 5
            assert (names == [f"token_id:{token}" for token in ids]) == asked
