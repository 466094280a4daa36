"""One build from plan to published bundle.

    1  nothing changed since the bundle at the output was built: stop
    2  stage the tokenizer and open it as the runtime will; then compile the units that the cache lacks, in worker
       processes, and meanwhile load the weights
    3  stage: units, weights in the layouts that the units want, manifest
    4  verify: graphs against eager PyTorch, bits across rows and buckets, scripted accept patterns
    5  publish the staged folder with one rename

Killed anywhere, a build leaves compiled units in the cache and no bundle that looks whole; the next run goes on.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import platform
import shutil
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any, Protocol

from aot.backends.neuron.backend import NeuronBackend
from aot.backends.neuron.compiler import Compiler
from aot.backends.neuron.neff import NeffResult
from aot.backends.protocol import BuildBackend
from aot.build.assemble import (
    BUILD_RECORD,
    check_output,
    draft_manifest,
    fingerprints,
    list_files,
    log_folder,
    place_units,
    publish,
    write_manifest,
)
from aot.build.machine import own_threads
from aot.build.plan import Plan
from aot.build.pool import compile_all, default_jobs
from aot.build.result import UnitResult
from aot.build.turns import turn
from aot.build.workers import TIMEOUT
from aot.cache import DAMAGED, Cache, damage_note
from aot.config import resolved
from aot.seal import Damaged, naming, read_object
from runtime.bundle.errors import CacheMissError, CompileError, Eagle3Error, ErrorGroup
from runtime.bundle.manifest import Manifest
from runtime.bundle.open import file_problems, read_manifest

# Hundreds of times the size of a real one
MAX_RECORD_BYTES = 64 << 20


class Reporter(Protocol):
    """Who hears of a build's progress."""

    def say(self, line: str) -> None: ...
    def compiling(self, total: int) -> None: ...
    def unit_started(self, name: str) -> None: ...
    def unit_finished(self, result: UnitResult) -> None: ...
    def compiled(self) -> None: ...


@dataclass(frozen=True)
class BuildResult:
    """What a build did; `neffs` where it had neuronx-cc, one result for each graph."""

    output: Path
    manifest: Manifest
    compiled: int
    cached: int
    seconds: float
    unchanged: bool
    neffs: tuple[NeffResult, ...] = ()


def builder_version() -> str:
    """The installed version of this package, "0+unknown" from a bare checkout."""
    try:
        return installed_version("eagle3-aot")
    except PackageNotFoundError:
        return "0+unknown"


def request_digest(plan: Plan, prints: tuple[str, str], toolchain: Mapping[str, str]) -> str:
    """Digest of everything that decides the bundle: configuration, models' files, units, toolchain, the builder."""
    source = hashlib.sha256()
    root = Path(__file__).parents[2]
    for half in ("aot", "runtime"):
        for file in sorted((root / half).rglob("*.py")):
            source.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    parts = {
        "name": plan.config.name,
        "config": resolved(plan.config),
        "models": list(prints),
        # Of random models the files are no fingerprint, and not all that a config says shows in a unit
        "read": [plan.models.target.to_json(), plan.models.draft.to_json()],
        "units": [unit.key for unit in plan.units],
        "toolchain": dict(toolchain),
        "builder": source.hexdigest(),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def existing(output: Path, request: str) -> Manifest | None:
    """The manifest of the bundle at `output` if it was built from the same request and is whole."""
    try:
        record = read_object(output / BUILD_RECORD, MAX_RECORD_BYTES)
        manifest = read_manifest(output)
    except (Damaged, OSError, Eagle3Error):
        return None
    whole = record.get("request") == request and not file_problems(output, manifest)
    return manifest if whole else None


def run_build(
    plan: Plan,
    backend: BuildBackend,
    cache: Cache,
    output: Path,
    reporter: Reporter,
    *,
    jobs: int | None = None,
    timeout: float = TIMEOUT,
    frozen: bool = False,
) -> BuildResult:
    """Build `plan` into the folder `output`, compiling each unit for at most `timeout` seconds.

    Raises:
        CompileError: units failed (each named with its log and exit code), or verification did; what compiled stays
            in the cache.
        CacheMissError: `frozen`, and the cache lacks a unit, or the NEFF of one.
        UsageError: something that is no bundle lies at `output`.
    """
    started = time.monotonic()
    seed = plan.config.random_weights.seed if plan.config.random_weights else None
    prints = fingerprints(plan.models, seed)
    request = request_digest(plan, prints, backend.describe())
    if (manifest := existing(output, request)) is not None:
        return BuildResult(output, manifest, 0, len(plan.units), time.monotonic() - started, unchanged=True)
    for unit in plan.misses:
        if unit.reason.startswith(DAMAGED):
            reporter.say(damage_note(unit.spec.name, unit.reason.removeprefix(DAMAGED)))
    if frozen and plan.misses:
        raise CacheMissError(
            "The cache lacks compiled graphs and --frozen forbids compiling",
            expected="every unit in the cache",
            found=", ".join(unit.spec.name for unit in plan.misses),
            repair="run the same command without --frozen once",
        )
    if frozen and isinstance(backend, NeuronBackend) and (missing := backend.without_neff(plan.units, cache)):
        raise CacheMissError(
            "The cache lacks NEFFs and --frozen forbids compiling",
            expected="the NEFF of every graph in the cache",
            found=", ".join(missing),
            repair="run the same command without --frozen once",
        )
    check_output(output)
    if plan.misses:
        cache.check_writable([unit.spec.name for unit in plan.misses])
    with turn(output, lambda: reporter.say(f"Waiting for another build of {output}")) as held:
        if held.waited and (manifest := existing(output, request)) is not None:
            return BuildResult(output, manifest, 0, len(plan.units), time.monotonic() - started, unchanged=True)
        staging = held.new_staging()
        try:
            arguments = (plan, backend, cache, output, staging, reporter, jobs, timeout, prints, request, started)
            results, neffs, manifest = _build(*arguments)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    fresh = sum(not result.cached for result in results)
    seconds = time.monotonic() - started
    return BuildResult(output, manifest, fresh, len(plan.units) - fresh, seconds, unchanged=False, neffs=neffs)


def _build(
    plan: Plan,
    backend: BuildBackend,
    cache: Cache,
    output: Path,
    staging: Path,
    reporter: Reporter,
    jobs: int | None,
    timeout: float,
    prints: tuple[str, str],
    request: str,
    started: float,
) -> tuple[list[UnitResult], tuple[NeffResult, ...], Manifest]:
    """Steps 2 to 5."""
    from aot.build.finish import add_to_record
    from aot.verify.tokenizer import place_tokenizer

    if plan.models.target_source is not None:
        with naming(staging):
            place_tokenizer(plan.models.target_source, staging / "tokenizer", plan.models.target.vocab_size)
    loader = ThreadPoolExecutor(max_workers=1)
    try:
        weights = loader.submit(_load, plan)
        results = _compile(plan, backend, cache, output, reporter, jobs, timeout, weights)
        target, draft = weights.result()
    finally:
        loader.shutdown(wait=False)  # a build that ends does not wait for weights
    with naming(staging):
        manifest = _stage(plan, backend, cache, staging, target, draft, prints, reporter)
        neffs: tuple[NeffResult, ...] = ()
        if isinstance(backend, NeuronBackend) and backend.compiler is not None:
            manifest, neffs = _make_neffs(staging, manifest, backend.compiler, cache, output, reporter, jobs, timeout)
        record = _record(plan, request, results, time.monotonic() - started)
        (staging / BUILD_RECORD).write_text(json.dumps(record, indent=1), encoding="utf-8")
        if neffs:
            add_to_record(staging, neffs)
    publish(staging, output)
    return results, neffs, manifest


def _load(plan: Plan) -> tuple[Any, Any]:
    """Both models' weights, None for graphs alone."""
    if plan.models.without_weights:
        return None, None
    from aot.build.models import load_weights

    return load_weights(plan.config, plan.models)


def _compile(
    plan: Plan,
    backend: BuildBackend,
    cache: Cache,
    output: Path,
    reporter: Reporter,
    jobs: int | None,
    timeout: float,
    weights: Future[tuple[Any, Any]],
) -> list[UnitResult]:
    # Largest first: the last unit to finish is then a short one
    misses = sorted(plan.misses, key=lambda unit: -backend.unit_bytes(unit.spec))
    if not misses:
        return []
    largest = max(backend.unit_bytes(unit.spec) for unit in misses)
    reporter.compiling(len(misses))
    try:
        results = compile_all(
            misses,
            backend,
            cache,
            log_folder(output),
            jobs or default_jobs(largest),
            timeout=timeout,
            started=reporter.unit_started,
            finished=reporter.unit_finished,
            beside=weights,
        )
    finally:
        reporter.compiled()
    problems: list[Eagle3Error] = [
        result.problem
        or CompileError(
            f"{graphs_of(plan, result.name)} failed to compile",
            expected="exit code 0",
            found=f"exit code {result.exit_code}",
            repair=f"read {result.log}" + (", and free memory or pass --jobs 1" if result.exit_code == -9 else ""),
        )
        for result in results
        if not result.ok
    ]
    if problems:
        raise ErrorGroup(f"{len(problems)} of {len(misses)} units failed; the others are in the cache", problems)
    return results


def graphs_of(plan: Plan, unit: str) -> str:
    """A unit and the graphs that call it, in words."""
    graphs = [graph.name for graph in plan.table.graphs if any(call.unit == unit for call in graph.calls)]
    if not graphs:  # the unit is a whole graph
        return f"Graph {unit}"
    first, *more = graphs
    return f"Unit {unit} of graph {first}" + (f" and {len(more)} more" if more else "")


def _stage(
    plan: Plan,
    backend: BuildBackend,
    cache: Cache,
    staging: Path,
    target: Any,
    draft: Any,
    prints: tuple[str, str],
    reporter: Reporter,
) -> Manifest:
    from aot.build.scopes import scopes
    from aot.build.store import WeightStore, digest, wanted_layouts
    from aot.build.verify import verify
    from aot.checkpoint.draft import embedding_note

    units = place_units(plan, backend, cache, staging)
    held, stored, digests = {}, {}, {}
    if target is not None:
        if note := embedding_note(draft, target["model.embed_tokens.weight"]):
            reporter.say(f"note: {note}")
        calls = [call for graph in backend.graphs(plan.table) for call in graph.calls]
        wanted = wanted_layouts(calls, {unit.name: unit for unit in units}, backend)
        store = WeightStore(staging / "weights", wanted, backend)
        for scope, tensors in scopes(plan.geometry, target, draft):
            store.add(scope, tensors)
            held[scope] = tensors
        stored = store.references
        # A map that was made from other data than the head was trained on shows here and nowhere else
        digests = {"d2t_sha256": digest(draft["d2t"]), "lm_head_sha256": digest(held["draft"]["lm_head.weight"])}
    manifest = draft_manifest(plan, backend, units, stored, prints, builder_version(), digests)
    manifest = dataclasses.replace(manifest, files=list_files(staging))
    size = sum(entry.size for entry in manifest.files.values())
    reporter.say(f"Stored weights and graphs, {size / 1e6:.0f} MB")
    manifest = write_manifest(staging, manifest)
    if isinstance(backend, NeuronBackend):
        from aot.build.verify_lowered import verify_lowered

        weights = None if target is None else (target, draft)
        return verify_lowered(staging, manifest, plan, backend, cache, weights, reporter.say)
    with own_threads():
        return verify(staging, manifest, plan, held, reporter.say)


def _make_neffs(
    staging: Path,
    manifest: Manifest,
    compiler: Compiler,
    cache: Cache,
    output: Path,
    reporter: Reporter,
    jobs: int | None,
    timeout: float,
) -> tuple[Manifest, tuple[NeffResult, ...]]:
    """Finish the verified, lowered bundle in `staging`, since there is a compiler here."""
    from aot.build.finish import compile_staged

    finished = compile_staged(
        staging, manifest, compiler, cache, reporter, jobs, timeout=timeout, logs=log_folder(output)
    )
    sealed = write_manifest(staging, dataclasses.replace(finished.manifest, files=list_files(staging)))
    return sealed, finished.results


def _record(plan: Plan, request: str, results: list[UnitResult], seconds: float) -> dict[str, Any]:
    """build.json: what happened, outside the bundle's id."""
    units = [
        {
            "name": r.name,
            "key": r.key,
            "seconds": round(r.seconds, 2),
            "peak_bytes": r.peak_bytes,
            "cached": r.cached,
        }
        for r in results
    ]
    return {
        "request": request,
        "seconds": round(seconds, 2),
        "host": {"cores": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()},
        "units": units,
        "draft_fields": dict(plan.models.draft.sources),
    }
