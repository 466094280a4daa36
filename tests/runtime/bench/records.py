"""Hand-made records of runs, from which figures can be worked out on paper."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.bench.facts import Facts
from runtime.bench.measure import Run, Step
from runtime.request import RequestOutput, SpecDecodeStats, Timing

FACTS = Facts(
    bundle="toy",
    bundle_id="0123456789abcdef",
    num_speculative_tokens=3,
    dtype="float32",
    lossless="exact",
    device="cpu",
    cpu="A CPU",
    cores=2,
    threads=2,
    load_average=0.5,
    system="Linux",
    versions={"eagle3-aot": "0.1.0", "torch": "2.13.0", "python": "3.11.7"},
    prompts=2,
    max_tokens=11,
    concurrency=1,
    warmup=1,
    ignore_eos=False,
    raw=False,
)


def step(drafts: int, accepted: int, verify_ms: float = 8.0, draft_ms: float = 1.0, host_ms: float = 0.5) -> Step:
    return Step(drafts, accepted, verify_ms, draft_ms, host_ms)


def run(
    prompt: int,
    k: int,
    tokens: Sequence[int],
    *,
    after_first: float,
    seconds: float,
    steps: Sequence[Step] = (),
) -> Run:
    """A run that gave `tokens`, all but the first in `after_first` seconds, and took `seconds` in all."""
    timing = Timing(arrived=10.0, first_token=10.0 + seconds - after_first, last_token=10.0 + seconds)
    output = RequestOutput(str(prompt), (1, 2), tuple(tokens), "length", timing, SpecDecodeStats())
    return Run(prompt, k, output, tuple(steps), seconds)


def plain_and_speculative(k: int = 3) -> list[Run]:
    """Two prompts, plain and with k drafts.

    The first has 11 tokens, of which 10 come in 1.0 s, and with speculation in 0.5 s; prefill takes half a second. The
    second has 5 tokens, of which 4 come in 2.0 s either way.
    """
    long, short = range(11), range(5)
    steps = [step(3, 3), step(3, 0, verify_ms=9.0), step(3, 2), step(2, 1, draft_ms=3.0), step(0, 0, draft_ms=0.0)]
    return [
        run(0, 0, long, after_first=1.0, seconds=1.5, steps=[step(0, 0, 7.0, 0.0, 0.25)] * 10),
        run(0, k, long, after_first=0.5, seconds=1.0, steps=steps),
        run(1, 0, short, after_first=2.0, seconds=2.5, steps=[step(0, 0, 7.0, 0.0, 0.25)] * 4),
        run(1, k, short, after_first=2.0, seconds=2.5),
    ]
