"""N1, N2: a request that ends with an error is told in a sentence, the others are answered, and the exit code is 1."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runtime.bundle.errors import RequestError
from runtime.failures import logits_not_finite
from runtime.output import AnswerText
from runtime.text import Tokenizer
from tests.runtime.cli.conftest import Script

Run = Callable[..., Any]


def fails(on: str) -> Callable[[str], RequestError | None]:
    """The error of prompts that hold `on`."""
    return lambda prompt: logits_not_finite("0", 17) if on in prompt else None


def test_n1_the_other_prompts_are_answered(run: Run, bundle: Path, script: Script) -> None:
    script.error = fails("bad")
    result = run("--bundle", bundle, "--raw", "--prompt", "good", "--prompt", "bad", "--prompt", "fine")
    assert result.code == 1
    assert result.out.count("It is blue.") == 3
    (error,) = [line for line in result.err.splitlines() if line.startswith("error:")]
    assert "17" in error
    assert "finite" in error
    assert "hint:" in result.err


def test_n1_an_error_names_the_prompt_as_the_user_knows_it(run: Run, bundle: Path, script: Script) -> None:
    script.error = lambda prompt: logits_not_finite("1", 17) if prompt == "bad" else None
    result = run("--bundle", bundle, "--raw", "--prompt", "good", "--prompt", "bad")
    assert "error: --prompt 2 ended" in result.err


def test_n1_json_has_the_error_in_the_answer_s_own_line(run: Run, bundle: Path, script: Script) -> None:
    script.error = fails("bad")
    result = run("--bundle", bundle, "--raw", "--json", "--prompt", "bad", "--prompt", "good")
    assert result.code == 1
    bad, good = map(json.loads, result.out.splitlines())
    assert (bad["finish_reason"], bad["error"]["error"], bad["text"]) == ("error", "RequestError", "It is blue.")
    assert (good["finish_reason"], "error" in good) == ("stop", False)
    assert result.err == ""


def test_n1_a_single_prompt_streams_what_there_is_and_then_tells_why(run: Run, bundle: Path, script: Script) -> None:
    script.error = fails("bad")
    result = run("--bundle", bundle, "--raw", "--prompt", "bad", terminal=True)
    assert (result.code, result.out) == (1, "It is blue.\n")
    assert "error: " in result.err


def test_n1_a_chat_goes_on_without_the_turn(run: Run, bundle: Path, script: Script) -> None:
    script.error = fails("user: bad")
    result = run("--bundle", bundle, stdin="bad\ngood\n/exit\n", terminal=True)
    assert result.code == 0
    assert "finite" in result.out
    assert script.prompts()[-1] == "user: good\nassistant: "


def test_n1_check_proves_nothing_by_an_answer_that_is_not_whole(run: Run, bundle: Path, script: Script) -> None:
    script.error = fails("bad")
    result = run("--bundle", bundle, "--raw", "--check", "--prompt", "good", "--prompt", "bad")
    assert result.code == 1
    good, bad = result.out.splitlines()
    assert "same" in good
    assert "finite" in bad
    as_json = run("--bundle", bundle, "--raw", "--check", "--json", "--prompt", "good", "--prompt", "bad")
    assert [json.loads(line)["same"] for line in as_json.out.splitlines()] == [True, False]


@pytest.mark.parametrize("as_json", [False, True])
def test_n2_an_answer_whose_text_cannot_be_made_is_one_answer(
    as_json: bool, run: Run, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    push = AnswerText.push
    calls: list[int] = []

    def broken(self: AnswerText, output: Any) -> str:
        calls.append(1)
        if len(calls) == 2:
            raise ValueError("a defect of a tokenizer")
        return push(self, output)

    monkeypatch.setattr(AnswerText, "push", broken)
    options = ["--json"] if as_json else []
    prompts = ("--prompt", "one", "--prompt", "two", "--prompt", "three")
    result = run("--bundle", bundle, "--raw", *options, *prompts)
    assert result.code == 1
    assert result.out.count("It is blue.") == 2
    assert "a defect of a tokenizer" in (result.out if as_json else result.err)


def test_n2_a_chat_template_that_does_not_parse_is_refused_when_the_bundle_is_opened(
    run: Run, bundle: Path, script: Script
) -> None:
    (bundle / "tokenizer" / "chat_template.jinja").write_text("{% for message in messages %}")
    result = run("--bundle", bundle, "--prompt", "one")
    assert result.code == 5
    assert "chat template" in result.err
    assert script.loaded == []


def test_n2_a_template_that_parses_is_compiled_once(bundle: Path) -> None:
    tokenizer = Tokenizer.load(bundle / "tokenizer")
    assert tokenizer.has_chat_template
    assert tokenizer.apply_chat_template([{"role": "user", "content": "x"}]) == "user: x\nassistant: "
