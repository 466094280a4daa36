"""The chat on a terminal: turns, ends, interruptions, and conversations that grow too long."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[..., Any]


def test_every_turn_sends_the_whole_conversation(run: Run, bundle: Path, script: Any) -> None:
    result = run("--bundle", bundle, stdin="Hello\n\nAnd then?\n/exit\nnever read\n", terminal=True)
    assert result.code == 0
    assert result.out == "> It is blue.\n> > It is blue.\n> "
    assert script.prompts() == [
        "user: Hello\nassistant: ",
        "user: Hello\nassistant: It is blue.\nuser: And then?\nassistant: ",
    ]
    assert "/exit or Ctrl-D ends the chat" in result.err


def test_the_end_of_input_ends_the_chat(run: Run, bundle: Path) -> None:
    assert run("--bundle", bundle, stdin="Hello\n", terminal=True).out == "> It is blue.\n> \n"


def test_ctrl_c_stops_the_answer_and_keeps_what_was_shown(run: Run, bundle: Path, script: Any) -> None:
    steps = 0

    def interrupt_in_the_second_step() -> None:
        nonlocal steps
        steps += 1
        if steps == 2:
            signal.raise_signal(signal.SIGINT)

    script.on_step = interrupt_in_the_second_step
    before = signal.getsignal(signal.SIGINT)
    result = run("--bundle", bundle, stdin="Hello\nGo on\n", terminal=True)
    assert result.code == 0
    assert result.out == "> It i\n(stopped)\n> It is blue.\n> \n"
    assert script.aborted == ["turn-1"]
    assert script.prompts()[1] == "user: Hello\nassistant: It i\nuser: Go on\nassistant: "
    assert signal.getsignal(signal.SIGINT) is before


def test_half_a_character_of_a_stopped_answer_is_not_shown(run: Run, bundle: Path, script: Any) -> None:
    script.answer = "😀 and more"  # two of the four bytes in the first step
    script.on_step = lambda: signal.raise_signal(signal.SIGINT)
    result = run("--bundle", bundle, stdin="Hello\n/exit\n", terminal=True)
    assert result.out == "> \n(stopped)\n> "


def test_a_second_ctrl_c_in_one_step_ends_the_program(run: Run, bundle: Path, script: Any) -> None:
    def interrupt_twice() -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    script.on_step = interrupt_twice
    assert run("--bundle", bundle, stdin="Hello\n", terminal=True).code == 130


def test_the_oldest_turns_go_when_the_conversation_is_too_long(run: Run, bundle: Path, script: Any) -> None:
    script.max_model_len = 80
    result = run("--bundle", bundle, "--max-tokens", 20, stdin="First\nSecond\nThird\n/exit\n", terminal=True)
    assert script.prompts()[1:] == [
        "user: First\nassistant: It is blue.\nuser: Second\nassistant: ",
        "user: Second\nassistant: It is blue.\nuser: Third\nassistant: ",
    ]
    assert "(The conversation passed max_model_len 80; the oldest turn was dropped.)\nIt is blue.\n" in result.out


def test_a_message_that_is_too_long_is_refused_and_the_conversation_goes_on(
    run: Run, bundle: Path, script: Any
) -> None:
    script.max_model_len = 60
    result = run("--bundle", bundle, "--max-tokens", 15, stdin=f"{'x' * 60}\nHello\n/exit\n", terminal=True)
    assert "error: The message is too long for this bundle: expected at most 59 tokens, found 78 tokens" in (result.out)
    assert script.prompts() == ["user: Hello\nassistant: "]


def test_an_answer_that_was_cut_says_by_what(run: Run, bundle: Path) -> None:
    result = run("--bundle", bundle, "--max-tokens", 5, stdin="Hello\n/exit\n", terminal=True)
    assert result.out == "> It is\n(cut at 5 tokens by --max-tokens)\n> "


def test_there_is_no_chat_without_a_tokenizer_a_template_or_with_raw(run: Run, bundle: Path, toy_bundle: Path) -> None:
    assert run("--bundle", toy_bundle, terminal=True).err.startswith("error: This bundle has no tokenizer")
    assert run("--bundle", bundle, "--raw", terminal=True).code == 2
    (bundle / "tokenizer" / "chat_template.jinja").unlink()
    refused = run("--bundle", bundle, terminal=True)
    assert (refused.code, "has no chat template" in refused.err) == (2, True)
