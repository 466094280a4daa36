"""Goodput: what a full batch gives in output tokens a second, at each K and batch size, in turns.

A batch is kept full: as soon as a request ends the next prompt takes its place, and behind the last prompt the first
ones come again, until every prompt has been answered once. What is still running then is dropped; its tokens count, as
its time does. So a figure is that of its batch size alone, with the prefills that such a batch brings.

Each repeat runs every batch size through all engines, beginning with another engine each time, so that the noise of a
machine hits all of them alike. Each engine has a KV pool of its own, as in `runtime.bench.measure`, and no prefix
cache: prompts that come again must cost what they cost the first time.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count

from runtime.bench.measure import StepClock, rotated
from runtime.bundle.open import Bundle
from runtime.engine import Engine
from runtime.request import Request, RequestOutput, SpecDecodeStats
from runtime.schedule import KSchedule
from runtime.text import Tokenizer

WARM_UP_TOKENS = 8


@dataclass(frozen=True)
class Trial:
    """One batch size through one engine, once.

    Attributes:
        k: drafts a step; None for plain decoding, which has no draft at all.
        tokens, seconds: of the whole run, prefills included.
        decode_tokens, decode_seconds: of its verify passes alone.
        rows: that a request had in most verify passes, 1+k or more.
        stats: of the prompts' own requests, not of those that only filled the batch.
        outputs: each prompt's answer, in the order of the prompts.
    """

    batch_size: int
    k: int | None
    tokens: int
    seconds: float
    decode_tokens: int
    decode_seconds: float
    rows: int
    stats: SpecDecodeStats
    outputs: tuple[RequestOutput, ...]

    @property
    def goodput(self) -> float:
        """Output tokens a second, end to end."""
        return self.tokens / self.seconds if self.seconds else 0.0

    @property
    def decode_rate(self) -> float:
        """The same of the verify passes alone."""
        return self.decode_tokens / self.decode_seconds if self.decode_seconds else 0.0


def load_engines(bundle: Bundle, counts: Sequence[int], tokenizer: Tokenizer | None = None) -> dict[int | None, Engine]:
    """An engine for plain decoding, under None, and one for each K of `counts`.

    Args:
        tokenizer: the bundle's, for prompts with stop strings.
    """
    plain = Engine.load(bundle, speculation=False, tokenizer=tokenizer, prefix_caching="off")
    engines: dict[int | None, Engine] = {None: plain}
    for k in counts:
        engines[k] = Engine.load(bundle, tokenizer=tokenizer, schedule=KSchedule.constant(k), prefix_caching="off")
    return engines


def measure(
    engines: Mapping[int | None, Engine],
    requests: Sequence[Request],
    batch_sizes: Sequence[int],
    *,
    repeat: int = 3,
    on_trial: Callable[[], None] = lambda: None,
) -> list[Trial]:
    """Run `requests` at every batch size through every engine, `repeat` times, after a short run of each untimed.

    Args:
        engines: by K, with nothing unfinished.
        requests: with ids of their own.
        on_trial: called after each trial.
    """
    with _told_once():
        return _measure(engines, requests, batch_sizes, repeat, on_trial)


def _measure(
    engines: Mapping[int | None, Engine],
    requests: Sequence[Request],
    batch_sizes: Sequence[int],
    repeat: int,
    on_trial: Callable[[], None],
) -> list[Trial]:
    short = [replace(request, max_tokens=min(request.max_tokens, WARM_UP_TOKENS)) for request in requests[:1]]
    for engine in engines.values():
        for size in batch_sizes:
            run_full(engine, short, size, None)
    trials = []
    for turn in range(repeat):
        for place, size in enumerate(batch_sizes):
            for k in rotated(list(engines), turn + place):
                trials.append(run_full(engines[k], requests, size, k))
                on_trial()
    return trials


@contextmanager
def _told_once() -> Iterator[None]:
    """Let one warning of each kind through: every engine would say of one draft that it is never right."""
    seen: set[object] = set()

    def first(record: logging.LogRecord) -> bool:
        known = record.msg in seen
        seen.add(record.msg)
        return not known

    logger = logging.getLogger("eagle3")
    logger.addFilter(first)
    try:
        yield
    finally:
        logger.removeFilter(first)


def run_full(engine: Engine, requests: Sequence[Request], batch_size: int, k: int | None) -> Trial:
    """Answer `requests`, with always `batch_size` of them in the engine."""
    missing = {request.request_id for request in requests}
    before = _rows_run(engine)
    clock, fed = StepClock(engine), _feed(requests)
    outputs: dict[str, RequestOutput] = {}
    tokens = decode_tokens = 0
    decode_seconds = 0.0
    running: set[str] = set()
    started = time.perf_counter()
    while missing:
        while len(running) < batch_size:
            request = next(fed)
            engine.add_request(request)
            running.add(request.request_id)
        given = sum(len(output.token_ids) for output in engine.step())
        prefill, *others = clock.lap()
        tokens += given
        if not prefill:
            decode_tokens += given
            decode_seconds += sum(others)
        for output in engine.take_finished():
            running.remove(output.request_id)
            if output.request_id in missing:
                missing.remove(output.request_id)
                outputs[output.request_id] = output
    seconds = time.perf_counter() - started
    for name in running:
        engine.abort(name)
    stats = SpecDecodeStats()
    for output in outputs.values():
        stats.merge(output.spec_decode)
    used = _rows_run(engine)
    used.subtract(before)
    answers = tuple(outputs[request.request_id] for request in requests)
    rows = max(used, key=lambda rows: used[rows], default=0)
    return Trial(batch_size, k, tokens, seconds, decode_tokens, decode_seconds, rows, stats, answers)


def _feed(requests: Sequence[Request]) -> Iterator[Request]:
    """The requests, then again and again under other ids."""
    yield from requests
    for turn in count(1):
        for request in requests:
            yield replace(request, request_id=f"{request.request_id} again {turn}")


def _rows_run(engine: Engine) -> Counter[int]:
    """How many decoding passes of the target ran so far, by the rows that each request has in them."""
    runs: Counter[int] = Counter()
    for (kind, _, _, rows), graph in engine.graphs.loaded.items():
        if kind in ("target_verify", "target_decode"):
            runs[rows] += graph.runs
    return runs
