"""One decode step taken apart: time and weights read by call kind, and what memory bandwidth allows."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping

import torch

from bench.passes import request
from bench.timed import HOST, STEP, TimedEngine
from runtime.bundle.manifest import Graph
from runtime.bundle.open import Bundle

STEPS = 50
BUFFER = 1 << 29


def bandwidth() -> float:
    """Bytes per second that all cores together read from memory: the best of several reads of 512 MiB."""
    rows = torch.ones(BUFFER // 4).view(-1, 2048)
    best = float("inf")
    for _ in range(15):
        for read in (rows.sum, lambda: rows.sum(1)):
            started = time.perf_counter()
            read()
            best = min(best, time.perf_counter() - started)
    return BUFFER / best


def read_bytes(bundle: Bundle, engine: TimedEngine, graphs: Mapping[Graph, int]) -> dict[str, int]:
    """Bytes of weights that each call kind reads in a step.

    Args:
        graphs: the graphs of a step, and how often each runs in it.
    """
    units = {unit.name: unit for unit in bundle.manifest.units}
    total: dict[str, int] = {}
    for graph, runs in graphs.items():
        for call in graph.calls:
            kind = call.unit.partition(".")[0]
            bound = engine.weights.bind(call.scope, units[call.unit].constants)
            for name, tensor in bound.items():
                size = tensor.numel() * tensor.element_size()
                # Of an embedding table a step reads one line per row
                size = size // tensor.shape[0] * graph.rows if "embed" in name else size
                total[kind] = total.get(kind, 0) + runs * size
    return total


def profile(bundle: Bundle, speculation: bool, rate: float) -> list[str]:
    """The lines of one table."""
    engine = TimedEngine(bundle, speculation=speculation)
    loaded = engine.graphs.loaded.values()
    asked = request(bundle, 4 * STEPS + 16)
    engine.steps(asked, count=5)
    before = {graph.spec.name: graph.runs for graph in loaded}
    steps = engine.steps(asked, count=STEPS)
    # The prefill before the steps ran once per graph of a prefill kind; the rest is the steps' own
    graphs = {
        graph.spec: round((graph.runs - before[graph.spec.name]) / STEPS)
        for graph in loaded
        if "prefill" not in graph.spec.kind
    }
    read = read_bytes(bundle, engine, {graph: runs for graph, runs in graphs.items() if runs})
    medians = {kind: statistics.median(step.get(kind, 0.0) for step in steps) for kind in steps[0]}
    name = "speculative" if speculation else "plain"
    lines = [
        f"One {name} step, median of {STEPS}",
        "",
        f"{'':<20} {'ms':>8} {'share':>7} {'MB':>8} {'floor ms':>9} {'GB/s':>7}",
    ]
    for kind in [kind for kind in medians if kind not in (HOST, STEP)] + [HOST, STEP]:
        size = sum(read.values()) if kind == STEP else read.get(kind, 0)
        seconds, share = medians[kind], 100 * medians[kind] / medians[STEP]
        line = f"{kind:<20} {seconds * 1e3:8.3f} {share:6.1f}%"
        if kind != HOST:
            line += f" {size / 1e6:8.2f} {size / rate * 1e3:9.3f} {size / seconds / 1e9:7.1f}"
        lines.append(line)
    return lines
