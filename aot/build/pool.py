"""Compile many units at once, each in a process of its own.

A crash, a compile beyond its time or a lack of memory takes down one worker and no more: the others go on, and what
succeeded is in the cache. Any `concurrent.futures.Executor` can run `compile_unit`; the default is a pool of threads on
this machine, each of which waits for one child process.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from aot.backends.protocol import BuildBackend
from aot.build.machine import cores, free_memory
from aot.build.plan import PlannedUnit
from aot.build.result import UnitResult
from aot.build.workers import TIMEOUT, TookTooLong, Workers
from aot.cache import Cache
from runtime.bundle.errors import CompileError, Eagle3Error

# Peak resident memory of one worker, measured over the demo model's units: 0.4 to 0.7 GB; a unit's weights are extra.
WORKER_BYTES = 1 << 30


def default_jobs(largest_unit_bytes: int) -> int:
    """How many workers fit: bounded by cores and by free memory, a container's limits included."""
    # A unit's weights exist about four times while it compiles: module, export, packed form, package
    return max(1, min(cores(), free_memory() // (WORKER_BYTES + 4 * largest_unit_bytes)))


def compile_unit(unit: PlannedUnit, backend: BuildBackend, cache: Cache, logs: Path, workers: Workers) -> UnitResult:
    """Compile one unit into the cache, unless another process has done it meanwhile."""
    started = time.monotonic()
    name, log, peak = unit.spec.name, logs / f"{unit.spec.name}.log", 0
    problem: Eagle3Error | None = None
    with cache.locked(unit.key, lambda: workers.stopping):
        if cache.has(unit.key):
            return UnitResult(name, unit.key, 0, time.monotonic() - started, 0, log, cached=True)
        with cache.staging(unit.key) as staged:
            try:
                exit_code = backend.compile(unit.spec, staged, workers, cache.scratch)
            except TookTooLong:
                exit_code, problem = -signal.SIGKILL, _too_slow(name, workers.timeout, log)
            with contextlib.suppress(OSError):
                shutil.copyfile(staged / "log.txt", log)
            with contextlib.suppress(OSError):
                peak = int((staged / "peak.txt").read_text(encoding="ascii"))
            if exit_code == 0:
                try:
                    backend.complete(unit.spec, staged)
                except Eagle3Error as error:
                    problem = error
            if exit_code == 0 and problem is None:
                keep = {*backend.files, "log.txt"}
                for leftover in staged.iterdir():
                    if leftover.name not in keep:
                        shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
                cache.publish(staged, unit.key, unit.factors)
    return UnitResult(name, unit.key, exit_code, time.monotonic() - started, peak, log, cached=False, problem=problem)


def _too_slow(name: str, timeout: float, log: Path) -> Eagle3Error:
    return CompileError(
        f"Unit {name} took too long to compile",
        expected=f"at most {timeout:g} s",
        found="a compiler that was still running, and was ended",
        repair=f"read {log}, and give a longer --timeout or fewer --jobs",
    )


def compile_all(
    units: Iterable[PlannedUnit],
    backend: BuildBackend,
    cache: Cache,
    logs: Path,
    jobs: int,
    *,
    timeout: float = TIMEOUT,
    started: Callable[[str], None] = lambda name: None,
    finished: Callable[[UnitResult], None] = lambda result: None,
    executor: Executor | None = None,
    beside: Future[Any] | None = None,
) -> list[UnitResult]:
    """Compile `units`, `jobs` at a time and each for `timeout` seconds at most; a failure does not stop the others.

    On KeyboardInterrupt, as on a signal that ends the build, all workers are ended and nothing half made stays in the
    cache.

    Args:
        beside: what the build waits for as well; where it fails, the compiles are in vain and are ended.
    """
    logs.mkdir(parents=True, exist_ok=True)
    cache.scratch.mkdir(parents=True, exist_ok=True)
    workers = Workers(timeout)

    def work(unit: PlannedUnit) -> UnitResult:
        started(unit.spec.name)
        return compile_unit(unit, backend, cache, logs, workers)

    pool = executor or ThreadPoolExecutor(max_workers=jobs)
    results = []
    pending: set[Future[UnitResult]] = set()
    try:
        pending = {pool.submit(work, unit) for unit in units}
        while pending:
            done, pending = wait(pending, timeout=0.2, return_when=FIRST_COMPLETED)
            if beside is not None and beside.done():
                beside.result()
            for future in done:
                result = future.result()
                results.append(result)
                finished(result)
    except BaseException:
        for future in pending:
            future.cancel()
        workers.stop()
        raise
    finally:
        if executor is None:
            pool.shutdown(wait=True, cancel_futures=True)
    return results
