"""What runs inside one process: plain decoding beside its peer, row counts, the host's share, the pool's size.

Every comparison is interleaved: A and B take turns within one run, in changing order, so that a busy neighbour slows
both, and the ratio is the median over pairs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from bench.figures import Figure, median_ratio, ratios, spread
from bench.peer import load_generate
from bench.runs import PROMPT
from bench.timed import HOST, STEP, TimedEngine
from runtime.batch import pad_rows
from runtime.blocks import BlockManager
from runtime.bundle.manifest import GraphKind
from runtime.bundle.open import Bundle, open_bundle
from runtime.engine import Engine
from runtime.graphs import GraphSet
from runtime.prompts import Prompt, to_requests
from runtime.request import Request
from runtime.sampling.device import device_inputs
from runtime.sequence import Sequence
from runtime.text import Tokenizer

NEW_TOKENS = 128
# Tokens in the cache while single passes are timed: a prompt and half an answer.
CONTEXT = 128
POOL_FACTOR = 16


def request(bundle: Bundle, max_tokens: int = NEW_TOKENS) -> Request:
    """The benchmark's request: one chat question, end of sequence ignored."""
    tokenizer = Tokenizer.of(bundle.tokenizer_files())
    vocabulary = bundle.manifest.target.vocab_size
    prompts = [Prompt("the prompt", PROMPT)]
    return to_requests(prompts, tokenizer, raw=False, vocab_size=vocabulary, max_tokens=max_tokens, ignore_eos=True)[0]


def measure_decode(folder: Path, repeats: int) -> list[Figure]:
    """Plain decoding, 128 new tokens of one request, against transformers' generate; both with their prefill."""
    bundle = open_bundle(folder)
    asked = request(bundle)
    # The same prompt again and again: its prefill is part of what is timed
    engine = Engine.load(bundle, speculation=False, prefix_caching="off")
    generate = load_generate(bundle.manifest.target.reference)
    ours = list(engine.generate([asked])[0].token_ids)
    theirs = generate(asked.prompt_token_ids, NEW_TOKENS)
    own, peer = interleave(
        lambda: engine.generate([asked]), lambda: generate(asked.prompt_token_ids, NEW_TOKENS), repeats
    )
    same = next((i for i, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1]), NEW_TOKENS)
    agree = f"the first {same} of {NEW_TOKENS} tokens equal"
    own_speeds, peer_speeds = ([NEW_TOKENS / seconds for seconds in side] for side in (own, peer))
    return [
        Figure("decode", "plain decode over transformers generate", median_ratio(peer, own), "x", "at least", 3, agree),
        _speed("plain decode", own_speeds),
        _speed("transformers generate", peer_speeds),
    ]


def _speed(name: str, speeds: list[float]) -> Figure:
    return Figure("decode", name, statistics.median(speeds), "tokens/s", detail=spread(speeds, 1))


def measure_verify(near_tie: Path, repeats: int) -> list[Figure]:
    """target_verify.r1, 1+K rows that all count, against target_decode.r1, one row, at the same context."""
    bundle = open_bundle(near_tie)
    graphs = GraphSet(bundle, ["target_verify", "target_decode"])
    k = bundle.manifest.speculation.num_speculative_tokens
    many, one = rows_pass(graphs, "target_verify", k), rows_pass(graphs, "target_decode", 0)
    above, below = interleave(many, one, repeats)
    detail = f"{1 + k} rows {statistics.median(above) * 1e3:.2f} ms, 1 row {statistics.median(below) * 1e3:.2f} ms"
    return [
        Figure("verify", f"verify of {1 + k} rows over 1 row", median_ratio(above, below), "x", "at most", 1.2, detail)
    ]


def rows_pass(graphs: GraphSet, kind: GraphKind, drafts: int) -> Callable[[], list[Tensor]]:
    """A pass of one request over 1 + `drafts` rows, after CONTEXT tokens, ready to be timed."""
    cache = graphs.manifest.kv_cache
    blocks = BlockManager(graphs.num_blocks, cache.block_size)
    tokens = [1 + i % 1000 for i in range(CONTEXT)]
    sequence = Sequence(Request("bench", tuple(tokens)), CONTEXT + drafts, tokens)
    sequence.block_ids = blocks.allocate(blocks.blocks_for(sequence.length_limit)) or []
    graph, bucket = graphs.decode(kind, 1, CONTEXT + drafts)
    inputs = pad_rows([sequence], [tokens[-1:] * (1 + drafts)], [CONTEXT - 1], bucket, cache.block_size)
    inputs["num_draft_tokens"] = torch.tensor([drafts], dtype=torch.int32)
    if graphs.manifest.sampling == "random":
        inputs |= device_inputs([], 1, 1 + drafts)

    def run() -> list[Tensor]:
        with torch.inference_mode():
            return graph(inputs)

    return run


def measure_host(folder: Path, repeats: int) -> list[Figure]:
    """The part of a decode step that no compiled call took, plain and speculating; the prefill is left out."""
    bundle = open_bundle(folder)
    figures = []
    for name, speculation in (("plain", False), ("speculative", True)):
        k = bundle.manifest.speculation.num_speculative_tokens if speculation else 0
        asked = request(bundle, (1 + k) * repeats + 16)
        engine = TimedEngine(bundle, speculation=speculation)
        engine.steps(asked, count=3)
        steps = engine.steps(asked, count=repeats)
        shares = [100 * step[HOST] / step[STEP] for step in steps]
        detail = f"{statistics.median(s[HOST] for s in steps) * 1e3:.2f} ms of {median_step(steps):.2f} ms"
        value = statistics.median(shares)
        figures.append(Figure("host", f"host's share of a {name} step", value, "%", "at most", 5, detail))
    return figures


def median_step(steps: list[dict[str, float]]) -> float:
    """Median milliseconds of a step."""
    return statistics.median(step[STEP] for step in steps) * 1e3


def measure_pool(folder: Path, repeats: int) -> list[Figure]:
    """A decode step with a KV pool 16 times larger against the bundle's own, step by step of the same request."""
    bundle = open_bundle(folder)
    asked = request(bundle, repeats + 16)
    blocks = bundle.manifest.kv_cache.num_blocks
    large = Engine.load(bundle, speculation=False, kv_blocks=POOL_FACTOR * blocks)
    own = Engine.load(bundle, speculation=False)
    for engine in (large, own):
        engine.add_request(asked)
        for _ in range(4):  # the prefill and the first, cold steps
            engine.step()
    above, below = interleave(large.step, own.step, repeats)
    value, each = median_ratio(above, below), ratios(above, below)
    quarter = statistics.quantiles(each, n=4)
    detail = (
        f"{statistics.median(above) * 1e3:.2f} ms with {POOL_FACTOR * blocks} blocks, "
        f"{statistics.median(below) * 1e3:.2f} ms with {blocks}; half of the pairs {quarter[0]:.2f} to {quarter[2]:.2f}"
    )
    return [Figure("pool", f"step with a KV pool {POOL_FACTOR} times larger", value, "x", "at most", 1.05, detail)]


def interleave(
    first: Callable[[], object], second: Callable[[], object], repeats: int
) -> tuple[list[float], list[float]]:
    """Seconds of `repeats` runs of each, taking turns; who begins changes with every pair. Both run once untimed."""
    first()
    second()
    times: tuple[list[float], list[float]] = ([], [])
    for repeat in range(repeats):
        order = ((0, first), (1, second))
        for side, run in order if repeat % 2 == 0 else reversed(order):
            started = time.perf_counter()
            run()
            times[side].append(time.perf_counter() - started)
    return times
