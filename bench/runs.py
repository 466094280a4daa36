"""What a user of eagle3-run sees from outside: the wait for the first token, bundle size and memory."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

from bench.commands import measure
from bench.figures import Figure, spread
from runtime.bundle.open import read_manifest

PROMPT = "Explain in two sentences why the sky is blue."
MB = 1e6


def measure_start(bundle: Path, repeats: int) -> list[Figure]:
    """From starting the process to the first byte of its answer, the files being in the disk cache."""
    command = ["eagle3-run", "--bundle", str(bundle), "--prompt", PROMPT, "--max-tokens", "1", "-q"]
    measure(command)  # warms the disk cache
    seconds = [measure(command).first_byte_s for _ in range(repeats)]
    value = statistics.median(seconds)
    return [
        Figure("start", "eagle3-run to its first token", value, "s", "at most", 4, spread(seconds)),
        _bundle_size(bundle),
    ]


def _bundle_size(bundle: Path) -> Figure:
    size = sum(file.stat().st_size for file in bundle.rglob("*") if file.is_file())
    weights = sum(file.stat().st_size for file in (bundle / "weights").rglob("*") if file.is_file())
    detail = f"of which weights {weights / MB:.0f} MB"
    return Figure("start", "bundle on disk", size / MB, "MB", "at most", 450, detail)


def measure_memory(bundle: Path) -> list[Figure]:
    """Peak resident memory of eagle3-run over weights and KV pool, with as many requests as fit at once."""
    requests = read_manifest(bundle).limits.max_num_seqs
    command = ["eagle3-run", "--bundle", str(bundle), *["--prompt", PROMPT] * requests]
    measured = measure([*command, "--max-tokens", "128", "--ignore-eos", "--stats", "--json"])
    engine = json.loads(measured.stderr.splitlines()[-1])["stats"]["engine"]
    weights, pool = engine["weights_bytes"], engine["kv"]["bytes"]
    rest = measured.peak_bytes - weights - pool
    detail = f"peak {measured.peak_bytes / MB:.0f} MB = weights {weights / MB:.0f} + KV pool {pool / MB:.0f} + the rest"
    return [Figure("memory", "eagle3-run beside weights and KV", rest / MB, "MB", "at most", 400, detail)]
