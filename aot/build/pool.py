"""Compile many units at once, each in a process of its own.

A crash, an endless compile or a lack of memory takes down one worker and no more: the others go on, and what succeeded
is in the cache. Any `concurrent.futures.Executor` can run `compile_unit`; the default is a pool of threads on this
machine, each of which waits for one child process.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from aot.backends.aoti.backend import AotiBackend
from aot.backends.aoti.worker import run_logged
from aot.build.machine import cores, free_memory
from aot.build.plan import PlannedUnit
from aot.build.result import UnitResult
from aot.cache import Cache

# Peak resident memory of one worker, measured over the demo model's units: 0.4 to 0.7 GB; a unit's weights are extra.
WORKER_BYTES = 1 << 30


def default_jobs(largest_unit_bytes: int) -> int:
    """How many workers fit: bounded by cores and by free memory, a container's limits included."""
    # A unit's weights exist about four times while it compiles: module, export, packed form, package
    return max(1, min(cores(), free_memory() // (WORKER_BYTES + 4 * largest_unit_bytes)))


class Workers:
    """The worker processes that are alive, so that Ctrl-C can end all of them with their compilers."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["aot.backends.aoti.preload"])
        self._lock = threading.Lock()
        self._running: set[BaseProcess] = set()
        self.stopping = False

    def run(self, job: dict[str, Any], out: Path, environment: dict[str, str]) -> int:
        """Compile `job` into folder `out` in a process of its own; returns its exit code."""
        process = self._context.Process(target=run_logged, args=(job, str(out), environment))
        # Ctrl-C on a terminal reaches every process of the build. This one alone answers it; what is started from here
        # inherits the blocked signal, so that no worker prints a traceback before it leads its own process group.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        with self._lock:
            if self.stopping:
                return -signal.SIGINT
            process.start()
            self._running.add(process)
        try:
            process.join()
            return process.exitcode if process.exitcode is not None else 1
        finally:
            with self._lock:
                self._running.discard(process)

    def stop(self) -> None:
        """End every worker and the compilers that it started; no new one starts."""
        with self._lock:
            self.stopping = True
            for process in self._running:
                # The worker leads a process group of its own; in its first moments it does not yet
                for kill in (lambda p: os.killpg(p.pid, signal.SIGKILL), lambda p: p.kill()):
                    with contextlib.suppress(OSError):
                        kill(process)


def compile_unit(unit: PlannedUnit, backend: AotiBackend, cache: Cache, logs: Path, workers: Workers) -> UnitResult:
    """Compile one unit into the cache, unless another process has done it meanwhile."""
    started = time.monotonic()
    log, peak = logs / f"{unit.spec.name}.log", 0
    with cache.locked(unit.key):
        if cache.has(unit.key):
            return UnitResult(unit.spec.name, unit.key, 0, time.monotonic() - started, 0, log, cached=True)
        with cache.staging(unit.key) as staged:
            exit_code = workers.run(backend.job(unit.spec), staged, backend.environment(cache.scratch))
            with contextlib.suppress(OSError):
                shutil.copyfile(staged / "log.txt", log)
            with contextlib.suppress(OSError):
                peak = int((staged / "peak.txt").read_text(encoding="ascii"))
            if exit_code == 0:
                keep = {"unit.so", "unit.json", "log.txt"}
                for leftover in staged.iterdir():
                    if leftover.name not in keep:
                        shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
                cache.publish(staged, unit.key, unit.factors)
    return UnitResult(unit.spec.name, unit.key, exit_code, time.monotonic() - started, peak, log, cached=False)


def compile_all(
    units: Iterable[PlannedUnit],
    backend: AotiBackend,
    cache: Cache,
    logs: Path,
    jobs: int,
    *,
    started: Callable[[str], None] = lambda name: None,
    finished: Callable[[UnitResult], None] = lambda result: None,
    executor: Executor | None = None,
) -> list[UnitResult]:
    """Compile `units`, `jobs` at a time; a failure does not stop the others.

    On KeyboardInterrupt all workers are ended and nothing half made stays in the cache.
    """
    logs.mkdir(parents=True, exist_ok=True)
    cache.scratch.mkdir(parents=True, exist_ok=True)
    workers = Workers()

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
