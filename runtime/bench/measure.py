"""Every prompt through every engine, back to back, so that the noise of a machine hits all of them alike.

One engine decodes plainly, one speculates for each number of draft tokens. A group of prompts (one prompt, or as many
as run at once) goes through all engines before the next group does, and each group begins with another engine: with two
engines they take turns at going first.

Each engine has a KV pool of its own. In a shared one a speculating run could find a row that it failed to write where
plain decoding of the same prompt had just left the right one, and its text would be equal by luck.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from runtime.bundle.open import Bundle
from runtime.engine import Engine
from runtime.request import Request, RequestOutput
from runtime.text import Tokenizer

T = TypeVar("T")

PLAIN = 0  # the number of draft tokens of plain decoding


@dataclass(frozen=True)
class Step:
    """One verify step of one request. A step that several requests share is counted for each of them.

    Attributes:
        num_draft_tokens, num_accepted: drafts that the step checked for the request, and how many were accepted.
        verify_ms, draft_ms: time inside the compiled calls of the target's pass, and of the draft passes after it.
        host_ms: the rest of the step.
    """

    num_draft_tokens: int
    num_accepted: int
    verify_ms: float
    draft_ms: float
    host_ms: float


@dataclass(frozen=True)
class Run:
    """One request through one engine.

    Attributes:
        prompt: index of the request.
        num_speculative_tokens: the engine's; PLAIN for plain decoding.
        steps: its verify steps; prefill is none of them.
        seconds: its equal share of the time that its group took, prefill included. The shares of a group add up to
            its time, so tokens over seconds is what the machine makes, however many requests run at once.
    """

    prompt: int
    num_speculative_tokens: int
    output: RequestOutput
    steps: tuple[Step, ...]
    seconds: float

    @property
    def decode_tokens(self) -> int:
        """The tokens after the first, which prefill gave."""
        return len(self.output.token_ids) - 1

    @property
    def decode_seconds(self) -> float:
        """From the first token to the last."""
        timing = self.output.timing
        if timing.first_token is None or timing.last_token is None:
            return 0.0
        return timing.last_token - timing.first_token


def load_engines(bundle: Bundle, counts: Sequence[int], tokenizer: Tokenizer | None = None) -> dict[int, Engine]:
    """An engine for plain decoding and one for each of `counts`, by number of draft tokens.

    Args:
        tokenizer: the bundle's, for prompts with stop strings.
    """
    # Without a prefix cache: prompts of the warm-up run again, and one template begins them all
    engines = {PLAIN: Engine.load(bundle, speculation=False, tokenizer=tokenizer, prefix_caching="off")}
    for count in counts:
        engines[count] = Engine.load(bundle, num_speculative_tokens=count, tokenizer=tokenizer, prefix_caching="off")
    return engines


def measure(
    engines: Mapping[int, Engine],
    requests: Sequence[Request],
    *,
    concurrency: int = 1,
    warmup: int = 1,
    on_group: Callable[[int], None] = lambda size: None,
) -> list[Run]:
    """Run all requests through all engines.

    Args:
        engines: by number of draft tokens, with nothing unfinished.
        requests: with ids of their own.
        concurrency: how many run at once.
        warmup: how many of the requests to run through every engine before anything is measured.
        on_group: called with the number of requests that every engine has just run.

    Returns:
        For every request a run of every engine, by request and then in the order of `engines`.
    """
    for group in _groups(requests[:warmup], concurrency):
        for engine in engines.values():
            _run_group(engine, group)
    runs: dict[tuple[int, int], Run] = {}
    for number, group in enumerate(_groups(requests, concurrency)):
        for count in rotated(list(engines), number):
            outputs, steps, seconds = _run_group(engines[count], group)
            for place, (output, taken) in enumerate(zip(outputs, steps, strict=True), start=number * concurrency):
                runs[place, count] = Run(place, count, output, tuple(taken), seconds / len(group))
        on_group(len(group))
    return [runs[place, count] for place in range(len(requests)) for count in engines]


def _groups(requests: Sequence[Request], size: int) -> list[Sequence[Request]]:
    return [requests[start : start + size] for start in range(0, len(requests), size)]


def rotated(order: list[T], by: int) -> list[T]:
    """`order`, begun at its element `by`, counted round and round."""
    by %= len(order)
    return order[by:] + order[:by]


def _run_group(engine: Engine, requests: Sequence[Request]) -> tuple[list[RequestOutput], list[list[Step]], float]:
    """The requests as one batch: for each its output and its verify steps, and the time of the whole in seconds."""
    started = time.perf_counter()
    steps: dict[str, list[Step]] = {request.request_id: [] for request in requests}
    for request in requests:
        engine.add_request(request)
    clock = StepClock(engine)
    while engine.has_unfinished():
        outputs = engine.step()
        prefill, verify, draft, host = clock.lap()
        if not prefill:
            for output in outputs:
                step = Step(output.num_draft_tokens, output.num_accepted, verify * 1e3, draft * 1e3, host * 1e3)
                steps[output.request_id].append(step)
    finished = {output.request_id: output for output in engine.take_finished()}
    seconds = time.perf_counter() - started
    return [finished[name] for name in steps], list(steps.values()), seconds


class StepClock:
    """Where an engine's steps spend their time, read off its own counters between steps.

    A step whose lap has time inside target_prefill is a prefill.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._inside, self._total = engine.graphs.seconds(), engine.step_seconds

    def lap(self) -> tuple[float, float, float, float]:
        """Seconds since the last lap: inside target_prefill, other target passes, the draft's passes; the rest."""
        inside, total = self._engine.graphs.seconds(), self._engine.step_seconds
        prefill = verify = draft = 0.0
        for kind, seconds in inside.items():
            spent = seconds - self._inside[kind]
            if kind == "target_prefill":
                prefill += spent
            elif kind.startswith("target"):
                verify += spent
            else:
                draft += spent
        host = total - self._total - prefill - verify - draft
        self._inside, self._total = inside, total
        return prefill, verify, draft, host
