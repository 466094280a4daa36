"""Sampling parameters from options and prompt lines to the engine, and endings and log probabilities as printed."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from runtime.sampling.options import OPTIONS
from runtime.sampling.params import GREEDY, SamplingParams, TokenLogprobs
from tests.runtime.cli.test_cli_prompts import lines_file

Run = Callable[..., Any]


def test_without_options_decoding_is_greedy(run: Run, bundle: Path, script: Any) -> None:
    run("--bundle", bundle, "--prompt", "a")
    assert script.requests[0].sampling == GREEDY
    assert script.settings[0]["rejection"] is None
    assert script.settings[0]["prefix_caching"] == "exact"
    assert script.settings[0]["tokenizer"].decode(list(b"a")) == "a"


def test_every_option_reaches_the_engine(run: Run, bundle: Path, script: Any) -> None:
    options = {
        "--temperature": 0.75,
        "--top-k": 40,
        "--top-p": 0.9,
        "--min-p": 0.05,
        "--presence-penalty": 0.5,
        "--frequency-penalty": -0.5,
        "--repetition-penalty": 1.1,
        "--seed": -3,
        "--stop-token-id": 33,
        "--min-tokens": 2,
        "--logprobs": 1,
    }
    assert {*options, "--stop"} == {option for each in OPTIONS for option in _names(each)}
    flat = [part for pair in options.items() for part in pair]
    result = run("--bundle", bundle, "--prompt", "a", "--json", *flat, "--stop", "zz", "--stop", "\n")
    assert result.code == 0
    assert script.requests[0].sampling == SamplingParams(
        temperature=0.75,
        top_k=40,
        top_p=0.9,
        min_p=0.05,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        repetition_penalty=1.1,
        seed=-3,
        stop=("zz", "\n"),
        stop_token_ids=(33,),
        min_tokens=2,
        logprobs=1,
    )


def _names(option: Any) -> list[str]:
    @click.command()
    @option
    def command() -> None: ...

    return [name for name in command.params[0].opts if name.startswith("--")]


def test_rejection_and_prefix_caching_reach_the_engine(run: Run, bundle: Path, script: Any) -> None:
    run("--bundle", bundle, "--prompt", "a", "--rejection", "standard", "--prefix-caching", "off")
    assert (script.settings[0]["rejection"], script.settings[0]["prefix_caching"]) == ("standard", "off")
    assert run("--bundle", bundle, "--prompt", "a", "--prefix-caching", "some").code == 2


def test_a_line_has_its_own_parameters_over_the_options(run: Run, bundle: Path, tmp_path: Path, script: Any) -> None:
    file = lines_file(
        tmp_path,
        {"prompt": "a", "temperature": 0.9, "seed": 1, "ignore_eos": True, "max_tokens": 5},
        {"prompt": "b", "stop": "zz", "logit_bias": {"65": -100}, "bad_words": ["no"]},
        {"prompt": "c"},
    )
    assert run("--bundle", bundle, "--prompts", file, "--temperature", 0.5, "--stop", "yy").code == 0
    one, two, three = (request.sampling for request in script.requests)
    assert one == SamplingParams(0.9, seed=1, stop=("yy",))
    words = (tuple(b"no"), tuple(b" no"))
    assert two == SamplingParams(0.5, stop=("zz",), logit_bias={65: -100.0}, bad_words_token_ids=words)
    assert three == SamplingParams(0.5, stop=("yy",))
    assert [request.ignore_eos for request in script.requests] == [True, False, False]


def test_wrong_types_of_all_lines_are_named_at_once(run: Run, bundle: Path, tmp_path: Path) -> None:
    file = lines_file(
        tmp_path,
        {"prompt": "a", "temperature": "hot"},
        {"prompt": "a", "stop": 3},
        {"prompt": "a", "response_format": {"type": "json_object"}},
        {"prompt": "a", "ignore_eos": 1},
        {"prompt": "a", "n": 2},
        {"prompt": "a", "n": 1, "response_format": None},
    )
    result = run("--bundle", bundle, "--prompts", file)
    assert result.code == 2
    lines = result.err.splitlines()
    assert lines[0] == "error: prompts.jsonl has 5 bad lines."
    assert lines[1::2] == [
        '  - prompts.jsonl line 1 is not a prompt: expected temperature to be a number, found "hot".',
        "  - prompts.jsonl line 2 is not a prompt: expected stop to be text or a list of texts, found 3.",
        "  - prompts.jsonl line 3 is not a prompt: expected no response_format, for structured output is not "
        'supported, found {"type": "json_object"}.',
        "  - prompts.jsonl line 4 is not a prompt: expected ignore_eos to be true or false, found 1.",
        "  - prompts.jsonl line 5 is not a prompt: expected no n, for more than one answer to a prompt is not "
        "supported, found 2.",
    ]


def test_values_out_of_range_are_named_before_the_engine_is_loaded(
    run: Run, bundle: Path, tmp_path: Path, script: Any
) -> None:
    file = lines_file(tmp_path, {"prompt": "a", "top_p": 2}, {"prompt": "a", "logit_bias": {"999": 1}})
    result = run("--bundle", bundle, "--prompts", file)
    assert result.code == 2
    assert "  - prompts.jsonl line 1 cannot run: expected top_p to be a number above 0 and at most 1, found 2.0." in (
        result.err
    )
    assert "  - prompts.jsonl line 2 cannot run: expected logit_bias with ids from 0 to 256, found 999." in result.err
    refused = run("--bundle", bundle, "--prompt", "a", "--temperature", "nan")
    assert refused.err.splitlines() == [
        "error: These options cannot be used: expected temperature to be a number of at least 0, found nan.",
        "hint: correct temperature",
    ]
    assert script.loaded == []


def test_stop_strings_need_a_tokenizer(run: Run, toy_bundle: Path, tmp_path: Path) -> None:
    file = lines_file(tmp_path, {"prompt_token_ids": [1]})
    result = run("--bundle", toy_bundle, "--prompts", file, "--stop", "x")
    assert result.err == (
        'error: These options cannot be used: expected no stop, for this bundle has no tokenizer, found ["x"].\n'
        "hint: use stop_token_ids\n"
    )
    in_line = run("--bundle", toy_bundle, "--prompts", lines_file(tmp_path, {"prompt_token_ids": [1], "stop": "x"}))
    assert "prompts.jsonl line 1 cannot run: expected no stop" in in_line.err


@pytest.mark.parametrize(
    ("more", "text", "stop_reason", "count"),
    [
        ({"stop": "blue"}, "It is ", "blue", 10),
        ({"stop": "blue", "include_stop_str_in_output": True}, "It is blue", "blue", 10),
        ({"stop": ["x", "is b"]}, "It ", "is b", 7),
        ({"stop_token_ids": [98]}, "It is ", 98, 7),
        ({"stop_token_ids": [98], "include_stop_str_in_output": True}, "It is b", 98, 7),
        ({"stop": "It", "min_tokens": 2}, "It is blue.", None, 12),
    ],
)
def test_an_answer_says_what_ended_it_and_counts_the_ids_it_gives(
    run: Run, bundle: Path, tmp_path: Path, more: dict[str, Any], text: str, stop_reason: object, count: int
) -> None:
    """I3 (sglang#39826): usage counts the ids that are given back, whatever cut the text."""
    result = run("--bundle", bundle, "--prompts", lines_file(tmp_path, {"prompt": "Why?", **more}), "--json")
    answer = json.loads(result.out)
    assert (answer["text"], answer["finish_reason"], answer.get("stop_reason")) == (text, "stop", stop_reason)
    assert ("stop_reason" in answer) == (stop_reason is not None)
    assert answer["usage"]["completion_tokens"] == len(answer["token_ids"]) == count


def test_a_stop_string_cuts_what_streams_on_a_terminal(run: Run, bundle: Path) -> None:
    assert run("--bundle", bundle, "--prompt", "a", "--stop", " bl", terminal=True).out == "It is\n"
    assert run("--bundle", bundle, "--prompt", "a", "--stop", "zz", terminal=True).out == "It is blue.\n"


def test_logprobs_are_printed_for_every_token(run: Run, bundle: Path, script: Any) -> None:
    script.answer = "é"
    script.logprobs = lambda ids, speculation: tuple(
        TokenLogprobs(token, -0.25, 2, ((33, -0.125), (token, -math.inf))) for token in ids
    )
    answer = json.loads(run("--bundle", bundle, "--prompt", "a", "--json", "--logprobs", 2).out)
    assert len(answer["logprobs"]) == len(answer["token_ids"]) == 3
    assert answer["logprobs"][2] == {
        "token_id": 256,
        "token": "<eos>",
        "logprob": -0.25,
        "rank": 2,
        "top": [
            {"token_id": 33, "token": "!", "logprob": -0.125},
            {"token_id": 256, "token": "<eos>", "logprob": -9999.0},
        ],
    }
    assert "logprobs" not in json.loads(run("--bundle", bundle, "--prompt", "a", "--json").out)


def test_logprobs_of_a_bundle_without_a_tokenizer_have_ids_only(run: Run, toy_bundle: Path, tmp_path: Path) -> None:
    file = lines_file(tmp_path, {"prompt_token_ids": [1], "logprobs": 1, "max_tokens": 1})
    answer = json.loads(run("--bundle", toy_bundle, "--prompts", file, "--json").out)
    assert answer["logprobs"] == [
        {"token_id": 73, "logprob": -0.5, "rank": 1, "top": [{"token_id": 73, "logprob": -0.5}]}
    ]


def test_logprobs_go_with_json_or_check_only(run: Run, bundle: Path) -> None:
    result = run("--bundle", bundle, "--prompt", "a", "--logprobs", 1)
    assert (result.code, result.err.splitlines()[0]) == (2, "error: --logprobs are printed by --json only.")


def test_cached_prompt_tokens_are_told_where_there_are_any(run: Run, bundle: Path, script: Any) -> None:
    script.num_cached_tokens = 16
    answer = json.loads(run("--bundle", bundle, "--prompt", "Why?", "--json").out)
    assert answer["usage"] == {
        "prompt_tokens": 22,
        "completion_tokens": 12,
        "prompt_tokens_details": {"cached_tokens": 16},
    }


def test_the_chat_keeps_the_text_as_it_was_shown(run: Run, bundle: Path, script: Any) -> None:
    options = ("--stop", "blue", "--temperature", 0.5, "--seed", 3)
    result = run("--bundle", bundle, *options, stdin="Hello\nAnd?\n/exit\n", terminal=True)
    assert result.out == "> It is \n> It is \n> "
    assert script.prompts()[1] == "user: Hello\nassistant: It is \nuser: And?\nassistant: "
    assert script.requests[0].sampling == SamplingParams(0.5, seed=3, stop=("blue",))


def test_options_that_do_nothing_at_temperature_0_are_told(run: Run, bundle: Path, tmp_path: Path) -> None:
    note = "Temperature is 0, so --top-p and --seed change nothing."
    options = ("--top-p", 0.9, "--seed", 3)
    assert note in run("--bundle", bundle, "--prompt", "a", *options).err.splitlines()
    assert note in run("--bundle", bundle, *options, stdin="Hello\n/exit\n", terminal=True).err.splitlines()
    random = lines_file(tmp_path, {"prompt": "a", "temperature": 1})
    assert "Temperature is 0" not in run("--bundle", bundle, "--prompts", random, *options).err
    assert "Temperature is 0" not in run("--bundle", bundle, "--prompt", "a").err


def test_a_chat_with_bad_parameters_does_not_begin(run: Run, bundle: Path, script: Any) -> None:
    result = run("--bundle", bundle, "--top-k", -2, stdin="Hello\n", terminal=True)
    assert (result.code, script.loaded) == (2, [])


# --check


def test_random_requests_are_checked_with_a_seed_and_the_coupled_rejection(run: Run, bundle: Path, script: Any) -> None:
    result = run("--bundle", bundle, "--check", "--prompt", "a", "--temperature", 0.8)
    assert result.code == 0
    assert {(request.sampling.temperature, request.sampling.seed) for request in script.requests} == {(0.8, 0)}
    assert [settings["rejection"] for settings in script.settings] == ["coupled", "coupled"]


def test_a_given_seed_is_kept_and_a_greedy_check_is_as_before(run: Run, bundle: Path, script: Any) -> None:
    run("--bundle", bundle, "--check", "--prompt", "a", "--temperature", 0.8, "--seed", 5)
    assert {request.sampling.seed for request in script.requests} == {5}
    script.requests.clear()
    script.settings.clear()
    run("--bundle", bundle, "--check", "--prompt", "a")
    assert all(request.sampling == GREEDY for request in script.requests)
    assert [settings["rejection"] for settings in script.settings] == [None, None]


def test_standard_rejection_promises_no_text_to_compare(run: Run, bundle: Path, script: Any) -> None:
    result = run("--bundle", bundle, "--check", "--temperature", 0.8, "--rejection", "standard")
    assert (result.code, script.loaded) == (2, [])
    assert "standard rejection keeps their distribution only" in result.err
    assert run("--bundle", bundle, "--check", "--rejection", "standard").code == 0


def test_check_compares_log_probabilities_where_asked(run: Run, bundle: Path, script: Any) -> None:
    """J3 (vllm#29216): a log probability that speculation changes or loses is a difference."""
    right = script.logprobs
    script.logprobs = lambda ids, speculation: right(ids, speculation)[: -1 if speculation else None]
    assert run("--bundle", bundle, "--check", "--prompt", "a").code == 0
    result = run("--bundle", bundle, "--check", "--prompt", "a", "--logprobs", 1)
    assert result.code == 1
    assert result.out == (
        "1. a: speculation alone: log probabilities differ at token 11; "
        "speculation in a batch: log probabilities differ at token 11\n"
    )
    as_json = json.loads(run("--bundle", bundle, "--check", "--prompt", "a", "--logprobs", 1, "--json").out)
    assert as_json["first_logprobs_difference"] == {"speculation alone": 11, "speculation in a batch": 11}
    assert as_json["same"] is False
