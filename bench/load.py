"""Load a running server: many requests, some at once; none may be lost, and every greedy answer must be right.

    eagle3-run serve --bundle artifacts/smollm2-135m --port 8000
    python bench/load.py --url http://127.0.0.1:8000 --requests 500 --concurrency 16

Each kind of request (a prompt and a length) is sent alone first; every answer under load must equal that one, whatever
it was batched with. Exit code 1 where a request was lost or an answer differs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a script, not as a module

from bench.http_stream import Connection, LostError, Reply

PROMPTS = (
    "The capital of France is",
    "Once upon a time, in a village by the sea,",
    "def fibonacci(n):",
    "The three primary colours are",
    "Water boils at",
    "A list of fruits: apple, banana,",
    "The quick brown fox",
    "In the beginning",
)
LENGTHS = (8, 16, 24, 32)


@dataclass(frozen=True)
class Kind:
    """A greedy completion."""

    prompt: str
    max_tokens: int
    ignore_eos: bool = False

    def body(self, stream: bool) -> dict[str, object]:
        return {
            "prompt": self.prompt,
            "max_tokens": self.max_tokens,
            "temperature": 0,
            "ignore_eos": self.ignore_eos,
            "stream": stream,
        } | ({"stream_options": {"include_usage": True}} if stream else {})


@dataclass
class Load:
    """What came of a load.

    Attributes:
        lost, wrong: a sentence for each request without an answer, and for each with another than alone.
        seconds: from the first request to the last answer.
        first, between: seconds to the first part of a stream, and between two parts.
    """

    requests: int
    seconds: float = 0.0
    tokens: int = 0
    lost: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    between: list[float] = field(default_factory=list)

    def lines(self) -> list[str]:
        """The result for people."""
        lines = [
            f"requests: {self.requests}, lost: {len(self.lost)}, other than alone: {len(self.wrong)}",
            f"seconds: {self.seconds:.2f}, tokens: {self.tokens}, tokens/s: {self.tokens / self.seconds:.1f}",
        ]
        for name, values in (("to the first part", self.first), ("between parts", self.between)):
            if len(values) > 1:
                cuts = statistics.quantiles(values, n=100, method="inclusive")
                shown = ", ".join(f"p{p} {cuts[p - 1] * 1e3:.1f}" for p in (50, 90, 99))
                lines.append(f"ms {name}: {shown}")
        return lines


async def alone(connection: Connection, kinds: Sequence[Kind]) -> dict[Kind, str]:
    """The answer to each kind of request while nothing else runs."""
    answers = {}
    for kind in kinds:
        answers[kind] = (await connection.post("/v1/completions", kind.body(False))).text(False)
    return answers


async def load(
    url: str, kinds: Sequence[Kind], requests: int, concurrency: int, *, stream: bool = True, api_key: str | None = None
) -> Load:
    """Send `requests` requests, `concurrency` at a time, going round the kinds.

    Args:
        stream: every other request as a stream (True), or none.
    """
    first = Connection(url, api_key)
    try:
        expected = await alone(first, kinds)
    finally:
        first.close()
    result = Load(requests)
    left = iter(range(requests))

    async def worker() -> None:
        connection = Connection(url, api_key)
        for number in left:
            kind, streams = kinds[number % len(kinds)], stream and (number // len(kinds)) % 2 == 0
            try:
                reply = await connection.post("/v1/completions", kind.body(streams))
                _note(result, number, reply, streams, expected[kind])
            except LostError as error:
                result.lost.append(f"request {number}: {error}")
        connection.close()

    started = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(concurrency)))
    result.seconds = time.perf_counter() - started
    return result


def _note(result: Load, number: int, reply: Reply, streams: bool, expected: str) -> None:
    text = reply.text(streams)
    result.tokens += reply.tokens(streams)
    if text != expected:
        result.wrong.append(f"request {number}: expected {expected!r}, found {text!r}")
    if streams:
        # The last part is the end of the stream
        times = reply.times[:-1]
        result.first.append(times[0] - reply.sent)
        result.between += [later - earlier for earlier, later in pairwise(times)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--prompts", type=Path, help="JSON lines with prompts (texts) of your own")
    parser.add_argument("--max-tokens", type=int, help="one length for all; by default 8 to 32")
    parser.add_argument("--ignore-eos", action="store_true")
    parser.add_argument("--no-stream", action="store_true", help="whole answers only; by default every other streams")
    parser.add_argument("--api-key")
    options = parser.parse_args()
    prompts: Sequence[str] = PROMPTS
    if options.prompts:
        lines = options.prompts.read_text(encoding="utf-8").split("\n")
        prompts = [json.loads(line)["prompt"] for line in lines if line.strip()]
    lengths = (options.max_tokens,) if options.max_tokens else LENGTHS
    kinds = [Kind(prompt, length, options.ignore_eos) for length in lengths for prompt in prompts]
    try:
        result = asyncio.run(
            load(
                options.url,
                kinds,
                options.requests,
                options.concurrency,
                stream=not options.no_stream,
                api_key=options.api_key,
            )
        )
    except LostError as error:
        print(f"error: the server does not answer: {error}", file=sys.stderr)
        return 2
    print("\n".join(result.lines()))
    for sentence in (result.lost + result.wrong)[:20]:
        print(sentence, file=sys.stderr)
    return 1 if result.lost or result.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
