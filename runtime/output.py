"""What `eagle3-run` prints: answers to stdout, everything about them to stderr, so that a pipe gets answers
only.

`--json` prints one object a line for each request, in the order of the prompts, in ASCII so that no terminal
or locale can break it. Its keys are part of the contract (see `request_json`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TextIO

from runtime.prompts import Prompt
from runtime.request import FinishReason, RequestOutput, SpecDecodeStats, StepOutput
from runtime.text import StreamDecoder, Tokenizer

# C0 controls but tab and newline, and DEL, as their visible pictures; C1 controls as U+FFFD. A model's text
# must not move the cursor, rename the window or write to the clipboard of the terminal that it is shown on.
_VISIBLE = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n"}
_VISIBLE |= {0x7F: 0x2421} | dict.fromkeys(range(128, 160), 65533)


def text_ids(
    token_ids: Sequence[int], finish_reason: FinishReason | None, eos_token_ids: Sequence[int]
) -> Sequence[int]:
    """The ids that make the text: all but the end-of-sequence id that stopped the request."""
    stopped = finish_reason == "stop" and token_ids and token_ids[-1] in eos_token_ids
    return token_ids[:-1] if stopped else token_ids


def answer_text(output: RequestOutput, tokenizer: Tokenizer | None, eos_token_ids: Sequence[int]) -> str | None:
    """The text of a finished request; None where the bundle has no tokenizer."""
    if tokenizer is None:
        return None
    return tokenizer.decode(text_ids(output.token_ids, output.finish_reason, eos_token_ids))


def request_json(prompt: Prompt, output: RequestOutput, text: str | None) -> dict[str, object]:
    """A finished request as `--json` prints it.

    `id` is there when the prompt had one. `token_ids` holds the end-of-sequence id that stopped the request,
    `text` does not. `text` is null for a bundle without a tokenizer.
    """
    head: dict[str, object] = {} if prompt.id is None else {"id": prompt.id}
    return head | {
        "text": text,
        "token_ids": list(output.token_ids),
        "finish_reason": output.finish_reason,
        "usage": {
            "prompt_tokens": len(output.prompt_token_ids),
            "completion_tokens": len(output.token_ids),
        },
        "timing": output.timing.to_json(len(output.token_ids)),
        "spec_decode": output.spec_decode.to_json(),
    }


class Out:
    """A text stream to print on; on a terminal, control characters are shown and not obeyed."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.is_terminal = stream.isatty()

    def write(self, text: str) -> None:
        """Print `text` as it is, at once."""
        self._stream.write(text.translate(_VISIBLE) if self.is_terminal else text)
        self._stream.flush()

    def line(self, text: str = "") -> None:
        self.write(text + "\n")

    def json(self, value: object) -> None:
        self.line(json.dumps(value))


class Streamer:
    """Prints the tokens of one request as text while they come. Without a tokenizer it prints the ids."""

    def __init__(self, out: Out, tokenizer: Tokenizer | None, eos_token_ids: Sequence[int]) -> None:
        self._out, self._eos_token_ids = out, eos_token_ids
        self._decoder = None if tokenizer is None else StreamDecoder(tokenizer)
        self._ids_printed = False
        self.text = ""

    def push(self, step: StepOutput) -> None:
        """Print what `step` settles."""
        if self._decoder is None:
            ids = " ".join(map(str, step.token_ids))
            self._print((" " if self._ids_printed and ids else "") + ids)
            self._ids_printed |= bool(ids)
        else:
            self._print(self._decoder.push(text_ids(step.token_ids, step.finish_reason, self._eos_token_ids)))

    def finish(self, *, aborted: bool = False) -> None:
        """Print what is still held back, unless it is half a character of an aborted answer; end the line."""
        if self._decoder is not None and not aborted:
            self._print(self._decoder.flush())
        if not self.text.endswith("\n"):
            self._out.line()

    def _print(self, delta: str) -> None:
        self.text += delta
        if delta:
            self._out.write(delta)


class InOrder:
    """Takes finished requests in any order and prints them in the order of their prompts.

    Several answers get a header each; one answer stands alone.
    """

    def __init__(
        self,
        out: Out,
        prompts: Sequence[Prompt],
        tokenizer: Tokenizer | None,
        eos_token_ids: Sequence[int],
        *,
        as_json: bool,
    ) -> None:
        self._out, self._prompts, self._tokenizer = out, prompts, tokenizer
        self._eos_token_ids, self._as_json = eos_token_ids, as_json
        self._waiting: dict[int, RequestOutput] = {}
        self._next = 0

    def add(self, index: int, output: RequestOutput) -> None:
        """Take the answer to prompt `index`, and print all answers that are next in line."""
        self._waiting[index] = output
        while self._next in self._waiting:
            self._print(self._next, self._waiting.pop(self._next))
            self._next += 1

    def _print(self, index: int, output: RequestOutput) -> None:
        prompt, text = self._prompts[index], answer_text(output, self._tokenizer, self._eos_token_ids)
        if self._as_json:
            self._out.json(request_json(prompt, output, text))
            return
        if len(self._prompts) > 1:
            name = index + 1 if prompt.id is None else prompt.id
            self._out.line(("" if index == 0 else "\n") + f"==> {name}: {prompt.title()}")
        shown = " ".join(map(str, output.token_ids)) if text is None else text
        self._out.write(shown if shown.endswith("\n") else shown + "\n")


def run_stats(outputs: Sequence[RequestOutput], seconds: float, report: Mapping[str, object]) -> dict[str, object]:
    """What `--stats` tells of a run: totals over its requests, then the engine's own report."""
    total = SpecDecodeStats()
    for output in outputs:
        total.merge(output.spec_decode)
    completion = sum(len(output.token_ids) for output in outputs)
    rates = [round(count / total.num_drafts, 4) for count in total.num_accepted_tokens_per_pos]
    return {
        "requests": len(outputs),
        "prompt_tokens": sum(len(output.prompt_token_ids) for output in outputs),
        "completion_tokens": completion,
        "seconds": round(seconds, 3),
        "tokens_per_s": round(completion / seconds, 2) if seconds > 0 else None,
        "spec_decode": total.to_json() | {"acceptance_rate_per_pos": rates},
        "engine": {name: value for name, value in report.items() if name != "spec_decode"},
    }


def stats_lines(stats: Mapping[str, object], indent: str = "") -> list[str]:
    """`stats` for people: a line for each value, one level of indent for each mapping."""
    lines: list[str] = []
    for name, value in stats.items():
        label = name.replace("_", " ")
        if isinstance(value, Mapping):
            lines += [f"{indent}{label}:", *stats_lines(value, indent + "  ")]
        else:
            lines.append(f"{indent}{label}: {_plain(value)}")
    return lines


def _plain(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    if type(value) is int:
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value)) or "none"
    return "none" if value is None else str(value)
