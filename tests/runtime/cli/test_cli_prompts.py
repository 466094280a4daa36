"""Prompts from options, files and standard input, and how the answers are printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


def lines_file(folder: Path, *lines: object) -> Path:
    file = folder / "prompts.jsonl"
    file.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return file


def test_one_prompt_prints_its_answer_and_nothing_else_on_stdout(run: Run, bundle: Path, script: Any) -> None:
    result = run("--bundle", bundle, "--prompt", "Why?")
    assert (result.code, result.out) == (0, "It is blue.\n")
    assert script.prompts() == ["user: Why?\nassistant: "]
    assert result.err.startswith("Loaded scripted in ")


def test_raw_gives_the_prompt_as_it_is(run: Run, bundle: Path, script: Any) -> None:
    run("--bundle", bundle, "--raw", "--prompt", "Once upon")
    assert script.prompts() == ["Once upon"]


def test_quiet_prints_no_progress(run: Run, bundle: Path) -> None:
    assert run("--bundle", bundle, "--prompt", "Why?", "-q").err == ""


def test_speculation_is_on_unless_refused(run: Run, bundle: Path, script: Any) -> None:
    run("--bundle", bundle, "--prompt", "a")
    run("--bundle", bundle, "--prompt", "a", "--no-speculation")
    assert script.loaded == [True, False]


def test_several_prompts_are_one_batch_and_print_in_order_with_headers(run: Run, bundle: Path, script: Any) -> None:
    result = run("--bundle", bundle, "--prompt", "First?", "--prompt", "Second\nline")
    assert result.out == "==> 1: First?\nIt is blue.\n\n==> 2: Second line\nIt is blue.\n"
    assert script.largest_batch == 2


def test_without_prompt_or_terminal_standard_input_is_the_prompt(run: Run, bundle: Path, script: Any) -> None:
    assert run("--bundle", bundle, stdin="Why\nso?\n").out == "It is blue.\n"
    assert script.prompts() == ["user: Why\nso?\nassistant: "]


def test_empty_standard_input_is_no_prompt(run: Run, bundle: Path) -> None:
    result = run("--bundle", bundle, stdin="\n")
    assert (result.code, result.err.splitlines()[0]) == (2, "error: There is no prompt.")


def test_max_tokens_and_ignore_eos_reach_the_engine(run: Run, bundle: Path, script: Any) -> None:
    run("--bundle", bundle, "--prompt", "a")
    run("--bundle", bundle, "--prompt", "a", "--max-tokens", 5, "--ignore-eos")
    assert [(r.max_tokens, r.ignore_eos) for r in script.requests] == [(256, False), (5, True)]


def test_json_has_exactly_the_promised_keys(run: Run, bundle: Path) -> None:
    result = run("--bundle", bundle, "--prompt", "Why?", "--json")
    assert result.err == ""
    assert json.loads(result.out) == {
        "text": "It is blue.",
        "token_ids": [*b"It is blue.", 256],
        "finish_reason": "stop",
        "usage": {"prompt_tokens": 22, "completion_tokens": 12},
        "timing": {"ttft_ms": 500.0, "tpot_ms": 45.455, "tokens_per_s": 12.0},
        "spec_decode": {
            "num_drafts": 1,
            "num_draft_tokens": 3,
            "num_accepted_tokens": 1,
            "num_accepted_tokens_per_pos": [1, 0, 0],
            "mean_acceptance_length": 2.0,
        },
    }


def test_a_file_of_prompts_takes_all_forms_and_gives_ids_back(
    run: Run, bundle: Path, tmp_path: Path, script: Any
) -> None:
    file = lines_file(
        tmp_path,
        {"id": "a", "prompt": "One\u2028?", "max_tokens": 2},
        "",
        {"id": 7, "messages": [{"role": "system", "content": "Brief."}, {"role": "user", "content": "Two?"}]},
        {"prompt_token_ids": [65, 66]},
    )
    result = run("--bundle", bundle, "--prompts", file, "--json", "--max-tokens", 30)
    answers = [json.loads(line) for line in result.out.splitlines()]
    assert [answer.get("id", "none") for answer in answers] == ["a", 7, "none"]
    assert [answer["finish_reason"] for answer in answers] == ["length", "stop", "stop"]
    assert answers[0]["text"] == "It"
    assert script.prompts() == [
        "user: One\u2028?\nassistant: ",
        "system: Brief.\nuser: Two?\nassistant: ",
        "AB",
    ]
    assert [request.max_tokens for request in script.requests] == [2, 30, 30]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("{", "expected a JSON object, found Expecting property name enclosed in double quotes: "),
        ("[1]", "expected a JSON object, found a list."),
        (
            {"promt": "a"},
            "expected the keys id, kind, prompt, messages, prompt_token_ids, max_tokens, ignore_eos, temperature, ",
        ),
        ({"id": 1}, "expected one of prompt, messages, prompt_token_ids, found none of them."),
        ({"prompt": "a", "messages": []}, "found prompt and messages."),
        ({"prompt": 3}, "expected prompt to be text, found a int."),
        ({"prompt_token_ids": []}, "expected prompt_token_ids to be a list of at least one id, found []."),
        ({"prompt": "a", "kind": 3}, "expected kind to be text, found 3."),
        ({"prompt_token_ids": [True]}, "found [true]."),
        ({"messages": [{"role": "user"}]}, 'found [{"role": "user"}].'),
        (
            {"prompt": "a", "max_tokens": 0},
            "expected max_tokens to be a whole number of at least 1, found 0.",
        ),
        ({"prompt": "a", "id": 1.5}, "expected id to be text or a whole number, found 1.5."),
        ("[" * 100_000, "expected a JSON object, found "),
    ],
)
def test_a_bad_line_is_named(run: Run, bundle: Path, tmp_path: Path, line: object, sentence: str) -> None:
    result = run("--bundle", bundle, "--prompts", lines_file(tmp_path, {"prompt": "good"}, line))
    assert result.code == 2
    assert result.err.startswith("error: prompts.jsonl line 2 is not a prompt: ")
    assert sentence in result.err


def test_all_bad_lines_are_named_at_once(run: Run, bundle: Path, tmp_path: Path) -> None:
    result = run("--bundle", bundle, "--prompts", lines_file(tmp_path, "x", {"prompt": "good"}, "[]"))
    assert result.code == 2
    assert "error: prompts.jsonl has 2 bad lines." in result.err
    assert "  - prompts.jsonl line 1 is not a prompt" in result.err
    assert "  - prompts.jsonl line 3 is not a prompt" in result.err


@pytest.mark.parametrize("content", [None, "", b"\xff\xfe"])
def test_a_file_that_gives_no_prompt_is_a_usage_error(
    run: Run, bundle: Path, tmp_path: Path, content: str | bytes | None
) -> None:
    file = tmp_path / "prompts.jsonl"
    if content is not None:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    result = run("--bundle", bundle, "--prompts", file)
    assert result.code == 2
    assert "prompts.jsonl" in result.err


def test_prompts_that_the_engine_refuses_are_named_and_nothing_runs(run: Run, bundle: Path, script: Any) -> None:
    script.max_model_len = 30
    result = run("--bundle", bundle, "--raw", "--prompt", "short", "--prompt", "x" * 30)
    assert (result.code, result.out) == (2, "")
    assert "error: --prompt 2 cannot run: expected at most 29 tokens, found 30 tokens." in result.err
    assert "hint: shorten it" in result.err


def test_an_empty_raw_prompt_and_an_id_outside_the_vocabulary_are_refused(
    run: Run, bundle: Path, tmp_path: Path
) -> None:
    file = lines_file(tmp_path, {"prompt": ""}, {"prompt_token_ids": [1, 257]}, {"prompt_token_ids": [-1]})
    result = run("--bundle", bundle, "--raw", "--prompts", file)
    assert result.code == 2
    assert "  - prompts.jsonl line 1 is empty." in result.err
    assert "  - prompts.jsonl line 2 has an id outside the vocabulary: expected ids from 0 to 256, found 257." in (
        result.err
    )
    assert "found -1." in result.err


def test_messages_do_not_go_with_raw(run: Run, bundle: Path, tmp_path: Path) -> None:
    file = lines_file(tmp_path, {"messages": [{"role": "user", "content": "a"}]})
    assert "prompts.jsonl line 1 has messages, which --raw does not take." in (
        run("--bundle", bundle, "--raw", "--prompts", file).err
    )


def test_a_bundle_without_a_tokenizer_takes_ids_and_refuses_text(run: Run, toy_bundle: Path, tmp_path: Path) -> None:
    refused = run("--bundle", toy_bundle, "--prompt", "Why?")
    assert refused.code == 2
    assert refused.err.startswith(
        "error: --prompt 1 cannot be used with this bundle, which has no tokenizer: "
        "expected token ids, found text.\nhint: "
    )
    file = lines_file(tmp_path, {"prompt_token_ids": [1, 2]})
    answered = run("--bundle", toy_bundle, "--prompts", file, "--max-tokens", 3)
    assert (answered.code, answered.out) == (0, "73 116 32\n")
    as_json = json.loads(run("--bundle", toy_bundle, "--prompts", file, "--json").out)
    assert as_json["text"] is None
    assert as_json["token_ids"] == [*b"It is blue.", 256]


def test_stats_go_to_stderr(run: Run, bundle: Path) -> None:
    result = run("--bundle", bundle, "--prompt", "a", "--prompt", "b", "--stats", "-q")
    lines = result.err.splitlines()
    assert "requests: 2" in lines
    assert "completion tokens: 24" in lines
    assert "  acceptance rate per pos: 1, 0, 0" in lines
    assert "    target verify: 1.25" in lines
    assert "requests" not in result.out


def test_stats_with_json_are_one_json_line_on_stderr(run: Run, bundle: Path) -> None:
    result = run("--bundle", bundle, "--prompt", "a", "--stats", "--json")
    stats = json.loads(result.err)["stats"]
    assert stats["spec_decode"]["mean_acceptance_length"] == 2.0
    assert stats["engine"]["steps"] == 7
    assert len(result.out.splitlines()) == 1


def test_on_a_terminal_one_prompt_streams_and_controls_are_shown_not_obeyed(
    run: Run, bundle: Path, script: Any
) -> None:
    script.answer = "héllo \x1b]0;title\x07😀"
    result = run("--bundle", bundle, "--prompt", "a", terminal=True)
    assert result.out == "héllo ␛]0;title␇😀\n"
    assert run("--bundle", bundle, "--prompt", "a").out == "héllo \x1b]0;title\x07😀\n"
