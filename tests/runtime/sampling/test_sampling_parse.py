"""JSON keys to SamplingParams: every name, every wrong type in one sentence, and what is refused by name."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.bundle.errors import UsageError
from runtime.sampling.params import GREEDY, MOST_BAD_WORD_IDS, SamplingParams
from runtime.sampling.parse import READERS, UNSUPPORTED, ParameterError, bad_words_token_ids, sampling_params
from tests.runtime.serve.conftest import toy_tokenizer
from tests.runtime.test_text_stream import BYTE_FALLBACK, BYTE_LEVEL

WHERE = "Request 7 cannot run"
ALL = {
    "temperature": 1,
    "top_k": 40,
    "top_p": 0.9,
    "min_p": 0.1,
    "presence_penalty": -1.5,
    "frequency_penalty": 2,
    "repetition_penalty": 1.25,
    "logit_bias": {"5": -100, "12": 0.5},
    "allowed_token_ids": [3, 5],
    "min_tokens": 4,
    "stop": ["\n\n", "END"],
    "stop_token_ids": [9],
    "include_stop_str_in_output": True,
    "seed": -1,
    "logprobs": 0,
}


def read(data: dict[str, Any], default: SamplingParams = GREEDY) -> SamplingParams:
    return sampling_params(data, BYTE_LEVEL, default=default, where=WHERE)


def test_every_parameter_is_read_under_its_own_name() -> None:
    assert read(ALL) == SamplingParams(
        temperature=1.0,
        top_k=40,
        top_p=0.9,
        min_p=0.1,
        presence_penalty=-1.5,
        frequency_penalty=2.0,
        repetition_penalty=1.25,
        logit_bias={5: -100.0, 12: 0.5},
        allowed_token_ids=(3, 5),
        min_tokens=4,
        stop=("\n\n", "END"),
        stop_token_ids=(9,),
        include_stop_str_in_output=True,
        seed=-1,
        logprobs=0,
    )
    assert isinstance(read({"temperature": 1}).temperature, float)


def test_a_field_of_sampling_params_has_a_key() -> None:
    keys = {"bad_words_token_ids" if key == "bad_words" else key for key in READERS}
    assert keys == {field.name for field in fields(SamplingParams)}


def test_what_is_not_given_or_null_is_the_default() -> None:
    default = SamplingParams(temperature=0.5, stop=("x",), seed=3, bad_words_token_ids=((1,),))
    assert read({}, default) is not None
    assert read({}, default) == default
    assert read(dict.fromkeys(READERS), default) == default
    assert read({"seed": 4}, default) == SamplingParams(0.5, stop=("x",), seed=4, bad_words_token_ids=((1,),))
    assert read({"stop": [], "bad_words": []}, default) == SamplingParams(0.5, seed=3)


def test_one_stop_string_needs_no_list() -> None:
    assert read({"stop": "END"}).stop == ("END",)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ({"temperature": "hot"}, 'expected temperature to be a number, found "hot".'),
        ({"temperature": True}, "expected temperature to be a number, found true."),
        ({"temperature": 10**400}, "expected temperature to be a number, found 1000"),
        ({"top_k": 5.0}, "expected top_k to be a whole number, found 5.0."),
        ({"top_k": False}, "expected top_k to be a whole number, found false."),
        ({"top_p": [0.9]}, "expected top_p to be a number, found [0.9]."),
        ({"seed": 1.5}, "expected seed to be a whole number, found 1.5."),
        ({"logprobs": True}, "expected logprobs to be a whole number, found true."),
        ({"stop": 7}, "expected stop to be text or a list of texts, found 7."),
        ({"stop": ["a", None]}, 'expected stop to be text or a list of texts, found ["a", null].'),
        ({"stop": "\ud83d"}, 'expected stop to be text or a list of texts, found "\\ud83d".'),
        ({"stop_token_ids": 7}, "expected stop_token_ids to be a list of token ids, found 7."),
        ({"stop_token_ids": ["7"]}, 'expected stop_token_ids to be a list of token ids, found ["7"].'),
        ({"allowed_token_ids": [True]}, "expected allowed_token_ids to be a list of token ids, found [true]."),
        ({"logit_bias": [1]}, 'expected logit_bias to be an object of token ids and numbers, like {"42": -1.5}, found'),
        ({"logit_bias": {"a": 1}}, 'found {"a": 1}.'),
        ({"logit_bias": {"٣": 1}}, "found {"),
        ({"logit_bias": {"3": "1"}}, 'found {"3": "1"}.'),
        ({"bad_words": "no"}, 'expected bad_words to be a list of words, found "no".'),
        ({"bad_words": [" "]}, 'expected bad_words to be a list of words, found [" "].'),
        ({"include_stop_str_in_output": 1}, "expected include_stop_str_in_output to be true or false, found 1."),
    ],
)
def test_a_wrong_type_is_one_sentence_with_its_repair(data: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ParameterError) as caught:
        read(data)
    assert caught.value.sentence().startswith(f"{WHERE}: expected ")
    assert sentence in caught.value.sentence()
    assert len(caught.value.sentence()) < 300
    (name,) = data
    assert (caught.value.parameter, caught.value.repair) == (name, f"correct {name}")
    assert caught.value.to_json()["error"] == "UsageError"


@pytest.mark.parametrize("key", UNSUPPORTED)
def test_what_is_not_supported_is_refused_by_name(key: str) -> None:
    """J1 (vllm#44297) and J6 (vllm#21068): grammars and adapters beside speculation are refused, not half done."""
    with pytest.raises(ParameterError, match=f"expected no {key}, for {UNSUPPORTED[key]} is not supported"):
        read({key: {"type": "json_object"}})


def test_structured_output_and_lora_are_named_so() -> None:
    with pytest.raises(UsageError, match="structured output is not supported"):
        read({"response_format": {"type": "json_object"}})
    with pytest.raises(UsageError, match="structured output is not supported"):
        read({"guided_json": {"type": "object"}})
    with pytest.raises(UsageError, match="LoRA is not supported"):
        read({"lora": "adapter"})


def test_an_unsupported_key_that_asks_for_nothing_is_taken() -> None:
    data = {"response_format": {"type": "text"}, "n": 1, "tools": [], "tool_choice": "none", "prompt_logprobs": None}
    assert read(data) == GREEDY


def test_bad_words_are_banned_at_the_beginning_and_after_a_space() -> None:
    spelt = bad_words_token_ids(("the", " cat"), BYTE_LEVEL)
    assert {BYTE_LEVEL.decode(ids) for ids in spelt} == {"the", " the", "cat", " cat"}
    assert read({"bad_words": ["the", " cat"]}).bad_words_token_ids == spelt


def test_a_bad_word_that_is_spelt_alike_after_a_space_is_banned_once() -> None:
    assert len(set(bad_words_token_ids(("a", "a"), BYTE_FALLBACK))) == len(bad_words_token_ids(("a",), BYTE_FALLBACK))


@pytest.mark.parametrize(("name", "repair"), [("stop", "use stop_token_ids"), ("bad_words", "leave bad_words out")])
def test_texts_need_a_tokenizer(name: str, repair: str) -> None:
    with pytest.raises(ParameterError, match=f"expected no {name}, for this bundle has no tokenizer") as caught:
        sampling_params({name: ["a"]}, None, default=GREEDY, where=WHERE)
    assert caught.value.repair == repair
    assert sampling_params(ALL | {"stop": []}, None, default=GREEDY, where=WHERE).top_k == 40


def test_allowed_ids_are_kept_once() -> None:
    """They are looked through at every step, and a body has room for millions."""
    assert read({"allowed_token_ids": [5, 3, 5, 5, 3]}).allowed_token_ids == (5, 3)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text("ab 1\ud83d", max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("0123456789-a", max_size=3), inner, max_size=2),
    max_leaves=6,
)


@settings(deadline=None)
@given(data=st.dictionaries(st.sampled_from([*READERS, *UNSUPPORTED]), VALUES, max_size=4))
def test_any_json_gives_parameters_or_a_usage_error(data: dict[str, Any]) -> None:
    data = json.loads(json.dumps(data))
    problem: UsageError | None = None
    try:
        params = read(data)
        params.check(WHERE, vocab_size=300)
    except UsageError as error:
        problem = error
    if problem is None:
        assert 0 < params.top_p <= 1
        assert all(params.stop)
    else:
        assert problem.what == WHERE
        assert problem.repair


@pytest.mark.parametrize("stop", [("x",) * 257, ("x" * 16385,), ("x" * 8192, "y" * 8193)])
def test_stop_strings_that_would_hold_everybody_up_are_refused_in_a_short_sentence(stop: tuple[str, ...]) -> None:
    SamplingParams(stop=stop[:1] * 256 if len(stop) > 256 else (stop[0][:16384],)).check(WHERE, vocab_size=300)
    with pytest.raises(
        UsageError, match="expected stop to be at most 256 strings of 16384 characters together"
    ) as error:
        SamplingParams(stop=stop).check(WHERE, vocab_size=300)
    assert len(error.value.sentence()) < 250


@pytest.mark.parametrize("words", [((1,),) * 2049, ((1,) * 16385,)])
def test_bad_words_are_bounded_too(words: tuple[tuple[int, ...], ...]) -> None:
    SamplingParams(bad_words_token_ids=((1,) * 8,) * 2048).check(WHERE, vocab_size=300)
    with pytest.raises(UsageError, match="expected bad_words_token_ids to be at most 2048 lists of 16384 ids together"):
        SamplingParams(bad_words_token_ids=words).check(WHERE, vocab_size=300)


@pytest.mark.parametrize(
    "words", [[" " * 100_000 + "the"], ["the cat sat on a mat " * 5] * 2048], ids=["spaces", "again"]
)
def test_b5_bad_words_are_counted_as_they_are_encoded(words: list[str]) -> None:
    """Without the spaces before them, and each once: what fits is not refused."""
    tokenizer = toy_tokenizer()
    assert sum(map(tokenizer.least_tokens, words)) > MOST_BAD_WORD_IDS
    params = sampling_params({"bad_words": words}, tokenizer, default=GREEDY, where=WHERE)
    assert params.bad_words_token_ids == bad_words_token_ids((words[0],), tokenizer)
