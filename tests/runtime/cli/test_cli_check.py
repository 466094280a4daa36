"""`--check`: plain decoding alone is the reference, and any other run that leaves it is a failure."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runtime.check import builtin_prompts, first_difference
from runtime.request import FinishReason, RequestOutput, SpecDecodeStats, Timing

Run = Callable[..., Any]


def output(*token_ids: int, reason: FinishReason = "length") -> RequestOutput:
    return RequestOutput("0", (1,), token_ids, reason, Timing(), SpecDecodeStats())


@pytest.mark.parametrize(
    ("left", "right", "at"),
    [
        (output(1, 2, 3), output(1, 2, 3), None),
        (output(1, 2, 3), output(1, 4, 3), 1),
        (output(1, 2, 3), output(1, 2), 2),
        (output(1, 2), output(1, 2, 3), 2),
        (output(1, 2), output(1, 2, reason="stop"), 2),
        (output(), output(5), 0),
    ],
)
def test_the_first_difference_is_a_token_or_an_end(left: RequestOutput, right: RequestOutput, at: int | None) -> None:
    assert first_difference(left, right) == at


def test_an_exact_bundle_passes_on_eight_prompts(run: Run, bundle: Path, script: Any) -> None:
    result = run("--bundle", bundle, "--check")
    assert result.code == 0
    lines = result.out.splitlines()
    assert lines[0] == "1. Why is the sky blue?: same, 12 tokens"
    assert len(lines) == 8
    assert all(line.endswith(": same, 12 tokens") for line in lines)
    assert script.loaded == [False, True]  # one engine at a time, plain decoding first
    assert len(script.requests) == 8 * 4  # alone and in a batch, plain and speculating
    assert "speculation accepted 16 of 48 draft tokens" in result.err


@pytest.mark.parametrize(
    ("speculation", "batch", "sentence"),
    [
        (True, False, "speculation alone: first difference at token 3"),
        (False, True, "plain in a batch: first difference at token 3"),
        (True, True, "speculation in a batch: first difference at token 3"),
    ],
)
def test_a_difference_in_any_run_is_named_and_exits_1(
    run: Run, bundle: Path, script: Any, speculation: bool, batch: bool, sentence: str
) -> None:
    def change(ids: tuple[int, ...], by_speculation: bool, in_batch: bool) -> tuple[int, ...]:
        wrong = (by_speculation, in_batch) == (speculation, batch)
        return (*ids[:3], 0, *ids[4:]) if wrong else ids

    script.change = change
    result = run("--bundle", bundle, "--check")
    assert result.code == 1
    assert result.out.splitlines()[7] == f"8. What is 17 + 25? Answer with the number…: {sentence}"
    assert "changed 8 of 8 answers" in result.err


def test_given_prompts_take_the_place_of_the_built_in_ones(run: Run, bundle: Path) -> None:
    result = run("--bundle", bundle, "--check", "--prompt", "Mine", "--json", "--max-tokens", 4)
    assert [json.loads(line) for line in result.out.splitlines()] == [
        {"prompt": "Mine", "same": True, "tokens": 4, "first_difference": {}}
    ]


def test_a_bundle_without_a_tokenizer_is_checked_on_fixed_ids(run: Run, toy_bundle: Path, script: Any) -> None:
    assert run("--bundle", toy_bundle, "--check").code == 0
    lengths = [len(request.prompt_token_ids) for request in script.requests[:8]]
    assert lengths == [1, 2, 3, 5, 8, 13, 21, 34]


def test_fixed_ids_fit_a_small_model() -> None:
    prompts = builtin_prompts(False, vocab_size=11, max_model_len=16)
    ids = [token for prompt in prompts for token in prompt.content if isinstance(token, int)]
    assert max(len(prompt.content) for prompt in prompts) == 8
    assert min(ids) >= 0
    assert max(ids) <= 10


def test_a_model_without_a_template_is_checked_on_raw_prompts(run: Run, bundle: Path, script: Any) -> None:
    (bundle / "tokenizer" / "chat_template.jinja").unlink()
    assert run("--bundle", bundle, "--check").code == 0
    assert script.prompts()[0] == "Why is the sky blue?"


def test_a_prompt_that_the_engine_refuses_is_named(run: Run, bundle: Path, script: Any) -> None:
    script.max_model_len = 30
    result = run("--bundle", bundle, "--check", "--raw", "--prompt", "short", "--prompt", "x" * 30)
    assert (result.code, result.err.splitlines()[-2]) == (
        2,
        "error: --prompt 2 cannot run: expected at most 29 tokens, found 30 tokens.",
    )


def test_check_without_speculation_is_a_contradiction(run: Run, bundle: Path) -> None:
    assert run("--bundle", bundle, "--check", "--no-speculation").code == 2
