"""What `eagle3-run` prints: answers to stdout, everything about them to stderr, so that a pipe gets answers
only.

`--json` prints one object a line for each request, in the order of the prompts, in ASCII so that no terminal
or locale can break it. Its keys are part of the contract (see `request_json`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TextIO

from runtime.answer import AnswerText, answer_text
from runtime.bundle.errors import RequestError
from runtime.failures import failed
from runtime.prompts import Prompt
from runtime.request import Request, RequestOutput, SpecDecodeStats, StepOutput
from runtime.sampling.params import GREEDY, LEAST_LOGPROB, SamplingParams, TokenLogprobs
from runtime.text import Tokenizer

# C0 controls but tab and newline, and DEL, as their visible pictures; C1 controls as U+FFFD. A model's text
# must not move the cursor, rename the window or write to the clipboard of the terminal that it is shown on.
_VISIBLE = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n"}
_VISIBLE |= {0x7F: 0x2421} | dict.fromkeys(range(128, 160), 65533)


def request_json(
    prompt: Prompt,
    output: RequestOutput,
    tokenizer: Tokenizer | None,
    sampling: SamplingParams = GREEDY,
) -> dict[str, object]:
    """A finished request as `--json` prints it.

    `token_ids` holds the id that stopped the request, `text` does not. `text` is null for a bundle without a tokenizer.
    These are there only where there is something to say: `id` when the prompt had one; `stop_reason`, the stop id or
    stop string that ended the request; `error`, with finish_reason "error", as a failing command prints it; `logprobs`
    when they were asked for, one for each of `token_ids`; and `usage.prompt_tokens_details.cached_tokens` when KV of
    the prompt came from the prefix cache.
    """
    answer: dict[str, object] = {} if prompt.id is None else {"id": prompt.id}
    answer |= {
        "text": answer_text(output, tokenizer, sampling),
        "token_ids": list(output.token_ids),
        "finish_reason": output.finish_reason,
    }
    if output.stop_reason is not None:
        answer["stop_reason"] = output.stop_reason
    if output.error is not None:
        answer["error"] = output.error.to_json()
    usage: dict[str, object] = {
        "prompt_tokens": len(output.prompt_token_ids),
        "completion_tokens": len(output.token_ids),
    }
    if output.num_cached_tokens:
        usage["prompt_tokens_details"] = {"cached_tokens": output.num_cached_tokens}
    answer |= {
        "usage": usage,
        "timing": output.timing.to_json(len(output.token_ids)),
        "spec_decode": output.spec_decode.to_json(),
    }
    if sampling.logprobs is not None:
        answer["logprobs"] = [logprobs_json(each, tokenizer) for each in output.logprobs]
    return answer


def logprobs_json(logprobs: TokenLogprobs, tokenizer: Tokenizer | None) -> dict[str, object]:
    """One token's log probabilities for `--json`; `token` is an id's text by itself, left out without a tokenizer."""

    def entry(token_id: int, logprob: float) -> dict[str, object]:
        text = {} if tokenizer is None else {"token": tokenizer.decode([token_id], skip_special_tokens=False)}
        return {"token_id": token_id, **text, "logprob": max(LEAST_LOGPROB, logprob)}

    return {
        **entry(logprobs.token_id, logprobs.logprob),
        "rank": logprobs.rank,
        "top": [entry(*pair) for pair in logprobs.top],
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
    """Prints the tokens of one request as text while they come. Without a tokenizer it prints the ids.

    Args:
        sampling: as in the request, for its stop strings.

    Attributes:
        text: what was printed so far.
    """

    def __init__(self, out: Out, tokenizer: Tokenizer | None, sampling: SamplingParams = GREEDY) -> None:
        self._out = out
        self._answer = None if tokenizer is None else AnswerText(tokenizer, sampling)
        self._ids_printed = False
        self.text = ""

    def push(self, step: StepOutput) -> None:
        """Print what `step` settles."""
        if self._answer is None:
            ids = " ".join(map(str, step.token_ids))
            self._print((" " if self._ids_printed and ids else "") + ids)
            self._ids_printed |= bool(ids)
        else:
            self._print(self._answer.push(step))

    def finish(self, *, aborted: bool = False) -> None:
        """Print what is still held back, but no half character of an aborted answer; end the line."""
        if self._answer is not None:
            self._print(self._answer.flush(aborted=aborted))
        if not self.text.endswith("\n"):
            self._out.line()

    def _print(self, delta: str) -> None:
        self.text += delta
        if delta:
            self._out.write(delta)


class InOrder:
    """Takes finished requests in any order and prints them in the order of their prompts.

    Several answers get a header each; one answer stands alone.

    Args:
        prompts, requests: in the same order; what was asked, and what the engine was given for it.

    Attributes:
        errors: of the requests that ended with one, and of answers that could not be printed, by index.
    """

    def __init__(
        self,
        out: Out,
        prompts: Sequence[Prompt],
        requests: Sequence[Request],
        tokenizer: Tokenizer | None,
        *,
        as_json: bool,
    ) -> None:
        self._out, self._prompts, self._requests = out, prompts, requests
        self._tokenizer, self._as_json = tokenizer, as_json
        self._waiting: dict[int, RequestOutput] = {}
        self._next = 0
        self.errors: dict[int, RequestError] = {}

    def add(self, index: int, output: RequestOutput) -> None:
        """Take the answer to prompt `index`, and print all answers that are next in line."""
        self._waiting[index] = output
        while self._next in self._waiting:
            self._print(self._next, self._waiting.pop(self._next))
            self._next += 1

    def _print(self, index: int, output: RequestOutput) -> None:
        prompt, sampling, tokenizer = self._prompts[index], self._requests[index].sampling, self._tokenizer
        text: str | None = ""
        answer: dict[str, object] = {}
        try:
            if self._as_json:
                answer = request_json(prompt, output, tokenizer, sampling)
            else:
                text = answer_text(output, tokenizer, sampling)
        except Exception as error:  # in making text of this answer's ids, which says nothing of the next one's
            output = replace(output, finish_reason="error", error=failed(prompt.where, error))
            answer = request_json(prompt, output, None, replace(sampling, logprobs=None))
        if output.error is not None:
            self.errors[index] = output.error
        if self._as_json:
            self._out.json(answer)
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
