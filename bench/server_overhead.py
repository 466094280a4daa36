"""What the server costs over the library: the same requests at the same concurrency, in turns, in one run.

    python bench/server_overhead.py --bundle artifacts/smollm2-135m

The server runs in a process of its own, as users start it, the library in this one; while one is measured the other
sleeps. Requests are streamed, which is the dearest way to serve: each step sends an event for each request.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a script, not as a module

from bench.commands import ROOT
from bench.figures import ratios, spread
from bench.http_stream import Connection, Reply
from bench.load import PROMPTS, Kind
from bench.machine import load_average
from runtime.bundle.threads import bound_spinning

MOST_OVERHEAD = 0.03


@contextmanager
def server(bundle: Path, arguments: Sequence[str] = ()) -> Iterator[tuple[str, int]]:
    """`eagle3-run serve` in a process of its own; gives its URL and its process id."""
    command = [sys.executable, "-m", "runtime.cli", "serve", "--bundle", str(bundle), "--port", "0", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        lines = []
        for line in process.stderr:
            lines.append(line)
            if found := re.search(r"Serving .* at (http://\S+)\.$", line.strip()):
                yield found.group(1), process.pid
                return
        raise SystemExit("the server did not start:\n" + "".join(lines))
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def through_library(engine: Any, requests: Sequence[Any], concurrency: int) -> tuple[float, int]:
    """Seconds and tokens of a closed loop: a request that ends makes place for the next one at once."""
    started, tokens, left = time.perf_counter(), 0, list(reversed(requests))
    for _ in range(min(concurrency, len(left))):
        engine.add_request(left.pop())
    while engine.has_unfinished():
        engine.step()
        for output in engine.take_finished():
            tokens += len(output.token_ids)
            if left:
                engine.add_request(left.pop())
    return time.perf_counter() - started, tokens


async def through_server(url: str, kinds: Sequence[Kind], concurrency: int, stream: bool) -> tuple[float, int, int]:
    """The same by as many clients, each of which sends its next request when it has its answer.

    Returns seconds, tokens, and how many parts the answers had.
    """
    left: Iterator[Kind] = iter(kinds)
    replies: list[Reply] = []

    async def worker(connection: Connection) -> None:
        for kind in left:
            replies.append(await connection.post("/v1/completions", kind.body(stream)))

    connections = [Connection(url) for _ in range(concurrency)]
    started = time.perf_counter()
    await asyncio.gather(*(worker(connection) for connection in connections))
    seconds = time.perf_counter() - started
    for connection in connections:
        connection.close()
    return seconds, sum(reply.tokens(stream) for reply in replies), sum(len(reply.parts) for reply in replies)


def loop_seconds(process: int) -> float:
    """CPU seconds of a process's first thread, which is the one that serves; the engine has another one."""
    fields = Path(f"/proc/{process}/task/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(
    bundle: Path, *, rounds: int, requests: int, concurrency: int, max_tokens: int, stream: bool
) -> dict[str, Any]:
    """Tokens per second of both, in turns; the first round of each warms up.

    loop_cpu_us_per_event is what the serving thread worked for each event sent. It holds on a busy machine too: times
    the requests that run at once, over the time of a step, it is what the server can cost at most.
    """
    from runtime.bundle.open import open_bundle
    from runtime.engine import Engine
    from runtime.request import Request
    from runtime.text import Tokenizer

    opened = open_bundle(bundle)
    tokenizer = Tokenizer.of(opened.tokenizer_files())
    engine = Engine.load(opened, tokenizer=tokenizer)
    kinds = [Kind(PROMPTS[number % len(PROMPTS)], max_tokens, ignore_eos=True) for number in range(requests)]
    library: list[float] = []
    served: list[float] = []
    events = 0
    with server(bundle) as (url, process):
        for turn in range(rounds + 1):
            if turn == 1:
                events, before = 0, loop_seconds(process)
            asked = [
                Request(f"{turn}-{number}", tuple(tokenizer.encode(kind.prompt)), max_tokens, True)
                for number, kind in enumerate(kinds)
            ]
            seconds, tokens = through_library(engine, asked, concurrency)
            library.append(tokens / seconds)
            seconds, tokens, parts = asyncio.run(through_server(url, kinds, concurrency, stream))
            served.append(tokens / seconds)
            events += parts
        spent = loop_seconds(process) - before
    library, served = library[1:], served[1:]
    engine.close()
    overheads = [ratio - 1 for ratio in ratios(library, served)]
    return {
        "library_tokens_per_s": round(statistics.median(library), 2),
        "server_tokens_per_s": round(statistics.median(served), 2),
        "overhead": round(statistics.median(overheads), 4),
        "overheads": spread(overheads, 4),
        "loop_cpu_us_per_event": round(spent / events * 1e6, 1),
        "concurrency": concurrency,
        "rounds": rounds,
        "load_average": load_average(),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=Path, default=ROOT / "artifacts" / "smollm2-135m")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--requests", type=int, default=12, help="in a round")
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--no-stream", action="store_true")
    options = parser.parse_args()
    bound_spinning()
    result = measure(
        options.bundle,
        rounds=options.rounds,
        requests=options.requests,
        concurrency=options.concurrency,
        max_tokens=options.max_tokens,
        stream=not options.no_stream,
    )
    print(json.dumps(result, indent=2))
    return 0 if result["overhead"] <= MOST_OVERHEAD else 1


if __name__ == "__main__":
    sys.exit(main())
