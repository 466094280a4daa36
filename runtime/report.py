"""What a run did and where its time went, as plain JSON values."""

from __future__ import annotations

import resource
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from runtime.backends.device import DeviceTensor
from runtime.bundle.cores import compute_threads

if TYPE_CHECKING:
    from runtime.engine import Engine


def report(engine: Engine) -> dict[str, object]:
    """Counts and times of an engine since it was loaded.

    Keys: steps; step_ms (total); host_share, the part of the steps spent outside compiled graphs; graphs {name: {runs,
    mean_ms}}; spec_decode; requests {waiting, running, both of now; preemptions so far}; kv {blocks, free, bytes};
    prefix_cache {queries, hits}, tokens looked up and found; threads {count, of compute; why no more};
    weights_bytes; peak_memory_bytes of the process.
    """
    loaded = engine.graphs.loaded.values()
    inside = sum(engine.graphs.seconds().values())
    pools = engine.graphs.pools.values()
    return {
        "steps": engine.steps,
        "step_ms": round(engine.step_seconds * 1e3, 3),
        "host_share": round(1 - inside / engine.step_seconds, 4) if engine.step_seconds else 0.0,
        "graphs": {
            graph.spec.name: {"runs": graph.runs, "mean_ms": round(graph.seconds / graph.runs * 1e3, 3)}
            for graph in loaded
            if graph.runs
        },
        "spec_decode": engine.totals.to_json(),
        "requests": {
            "waiting": len(engine.waiting),
            "running": len(engine.running),
            "preemptions": engine.num_preemptions,
        },
        "kv": {
            "blocks": engine.blocks.num_blocks,
            "free": engine.blocks.num_free,
            "bytes": sum(pool.nbytes() if isinstance(pool, DeviceTensor) else pool.nbytes for pool in pools),
        },
        "prefix_cache": {"queries": engine.blocks.prefix_queries, "hits": engine.blocks.prefix_hits},
        "threads": _threads(),
        "weights_bytes": engine.graphs.weights.mapped_bytes,
        "peak_memory_bytes": peak_memory(),
    }


def _threads() -> dict[str, object]:
    count, allowed = torch.get_num_threads(), compute_threads()
    why = allowed.why if count >= allowed.count else f"one for each whole core, of {allowed.count} usable"
    return {"count": count, "why": why}


def peak_memory() -> int:
    """Peak resident memory of this process in bytes; mapped weights count once they are read.

    From the kernel's own count of this program: getrusage's begins with what the parent had when it forked.
    """
    try:
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
