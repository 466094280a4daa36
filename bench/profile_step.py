"""Where one decode step goes: median milliseconds by call kind, beside the floor that memory bandwidth sets.

    python bench/profile_step.py

A step of few rows reads every weight once and computes little with it, so weights over memory bandwidth is the least
time it can take. `floor` is that, `GB/s` what the calls reached; a kind far above its floor is worth work, one at its
floor is not. The KV read is left out: at the profile's context it is a hundredth of the weights.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a script, not as a module

from runtime.bundle.threads import bound_spinning

bound_spinning()  # as eagle3-run does, before torch is imported

import torch

from bench.commands import CONFIG, ROOT
from bench.machine import describe, load_average
from bench.passes import request
from bench.timed import HOST, STEP, TimedEngine
from runtime.bundle.errors import Eagle3Error, render
from runtime.bundle.manifest import Graph
from runtime.bundle.open import Bundle, open_bundle

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
    engine.steps(asked, 5)
    before = {graph.spec.name: graph.runs for graph in loaded}
    steps = engine.steps(asked, STEPS)
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


@click.command(help=__doc__, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--bundle", default=ROOT / "artifacts" / CONFIG.stem, type=click.Path(path_type=Path, exists=True))
def main(bundle: Path) -> None:
    opened = open_bundle(bundle)
    rate = bandwidth()
    for name, fact in describe().items():
        click.echo(f"{name:<14} {fact}")
    threads = torch.get_num_threads()
    click.echo(f"{'load average':<14} {load_average()} (1 and 5 minutes)")
    click.echo(f"{'bandwidth':<14} {rate / 1e9:.1f} GB/s, best of reads of 512 MiB by {threads} threads")
    for speculation in (False, True):
        click.echo()
        click.echo("\n".join(profile(opened, speculation, rate)))


if __name__ == "__main__":
    try:
        main()
    except Eagle3Error as error:
        click.echo("\n".join(render(error)), err=True)
        sys.exit(error.exit_code)
