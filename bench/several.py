"""Several requests at once: tokens/s of four over that of one, and what scheduler and sampler take of a step."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bench.figures import Figure, spread
from bench.passes import median_step
from bench.timed import HOST, STEP, TimedEngine
from runtime.bundle.open import Bundle, open_bundle
from runtime.engine import Engine
from runtime.prompts import read_prompts, to_requests
from runtime.request import Request
from runtime.sampling.params import SamplingParams
from runtime.text import Tokenizer

PROMPTS = Path(__file__).parents[1] / "examples" / "smollm2" / "eval.jsonl"
TOGETHER = 4
NEW_TOKENS = 96
SAMPLED = SamplingParams(temperature=0.8, top_p=0.95, seed=1)


def requests(bundle: Bundle, count: int, max_tokens: int) -> list[Request]:
    """The first prompts of the evaluation set, end of sequence ignored."""
    tokenizer = Tokenizer.of(bundle.tokenizer_files())
    prompts = read_prompts(PROMPTS)[:count]
    made = to_requests(
        prompts,
        tokenizer,
        raw=False,
        vocab_size=bundle.manifest.target.vocab_size,
        max_tokens=max_tokens,
        ignore_eos=True,
    )
    return [replace(request, max_tokens=max_tokens) for request in made]


def measure_several(folder: Path, repeats: int) -> list[Figure]:
    """Tokens/s of four requests together over those of one after the other, prefill and draft included.

    The four run alone and together in turns; texts must be equal.
    """
    bundle = open_bundle(folder)
    asked = requests(bundle, TOGETHER, NEW_TOKENS)
    engine = Engine.load(bundle, prefix_caching="off")
    alone_texts = [engine.generate([request])[0].token_ids for request in asked]
    together_texts = [output.token_ids for output in engine.generate(asked)]
    alone, together = [], []
    for _ in range(repeats):
        started = time.perf_counter()
        for request in asked:
            engine.generate([request])
        between = time.perf_counter()
        engine.generate(asked)
        alone.append(between - started)
        together.append(time.perf_counter() - between)
    same = sum(a == b for a, b in zip(alone_texts, together_texts, strict=True))
    tokens = TOGETHER * NEW_TOKENS
    speeds = [[tokens / seconds for seconds in side] for side in (alone, together)]
    ratios = [a / b for a, b in zip(alone, together, strict=True)]
    detail = (
        f"{statistics.median(speeds[1]):.1f} against {statistics.median(speeds[0]):.1f} tokens/s, "
        f"{spread(ratios)}; {same} of {TOGETHER} texts equal"
    )
    name = f"tokens/s of {TOGETHER} requests over one"
    return [Figure("requests", name, statistics.median(ratios), "x", "at least", 2, detail)]


def measure_sampled(folder: Path, repeats: int) -> list[Figure]:
    """What scheduler and sampler take of a speculative step, greedy and sampled, of one request and of four.

    All of the host's work, padding and the dispatch from call to call included, stands in the detail.
    """
    bundle = open_bundle(folder)
    k = bundle.manifest.speculation.num_speculative_tokens
    engine = TimedEngine(bundle, speculation=True)
    clock = _Clock()
    loop = engine.engine
    for owner, name in ((loop.scheduler, "next_pass"), (loop._passes.sampler, "choose"), (loop, "_settle")):
        setattr(owner, name, clock.around(getattr(owner, name)))
    figures = []
    for name, sampling, most in (("greedy", None, 5), ("sampled", SAMPLED, 10)):
        for count in (1, TOGETHER):
            asked = requests(bundle, count, (1 + k) * repeats + 16)
            if sampling is not None:
                asked = [replace(request, sampling=sampling) for request in asked]
            engine.steps(*asked, count=3)
            clock.laps.clear()
            steps = engine.steps(*asked, count=repeats)
            laps = clock.sums(len(steps))
            share = statistics.median(100 * lap / step[STEP] for lap, step in zip(laps, steps, strict=True))
            detail = (
                f"{statistics.median(laps) * 1e3:.2f} ms of {median_step(steps):.2f} ms; "
                f"all host work {statistics.median(step[HOST] for step in steps) * 1e3:.2f} ms"
            )
            what = f"scheduler and sampler, {count} {name} request{'s' if count > 1 else ''}"
            figures.append(Figure("sampled", what, share, "%", "at most", most, detail))
    return figures


class _Clock:
    """Seconds inside some functions, by step: a step begins with `next_pass`."""

    def __init__(self) -> None:
        self.laps: list[tuple[bool, float]] = []

    def around(self, function: Callable[..., object]) -> Callable[..., object]:
        begins = function.__name__ == "next_pass"

        def timed(*arguments: object) -> object:
            started = time.perf_counter()
            made = function(*arguments)
            self.laps.append((begins, time.perf_counter() - started))
            return made

        return timed

    def sums(self, steps: int) -> list[float]:
        """Of the last `steps` steps; those before, such as prefills, are left out."""
        total: list[float] = []
        for begins, seconds in self.laps:
            if begins:
                total.append(0.0)
            total[-1] += seconds
        return total[-steps:]
