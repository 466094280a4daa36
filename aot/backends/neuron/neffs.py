"""Compile many graphs to NEFFs, several at a time, each in a process of its own.

A failure does not stop the others. How many run at once is bounded by memory; what the system still killed for want of
it is tried again alone, after all others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TypeVar

from aot.backends.neuron.compiler import Compiler
from aot.backends.neuron.neff import Driver, NeffJob, NeffResult, neff_cache
from aot.backends.neuron.processes import Processes
from aot.build.machine import cores, free_memory
from aot.cache import Cache

T = TypeVar("T")

# One run of the compiler, in seconds. AWS's guides speak of minutes, users of up to an hour for a large graph.
TIMEOUT = 3600.0
# Assumptions, not measurements: none of this has met neuronx-cc. They only decide how many compile at once.
PROCESS_BYTES, HLO_FACTOR = 8 << 30, 4


def default_workers(largest_hlo_bytes: int) -> int:
    """How many compilers fit: bounded by cores and by free memory, a container's limits included; at least 1."""
    return max(1, min(cores(), free_memory() // (PROCESS_BYTES + HLO_FACTOR * largest_hlo_bytes)))


def compile_neffs(
    jobs: Iterable[NeffJob],
    compiler: Compiler,
    cache: Cache,
    logs: Path,
    workers: int | None = None,
    *,
    timeout: float = TIMEOUT,
    started: Callable[[str], None] = lambda name: None,
    finished: Callable[[NeffResult], None] = lambda result: None,
) -> list[NeffResult]:
    """Compile `jobs`, `workers` at a time (default: as many as memory allows).

    Args:
        cache: the user's build cache; the NEFF of a result is OUTPUT in `neff_cache(cache).entry(result.key)`.
        logs: folder for NAME.log of every graph that was compiled, successes and failures.
        timeout: seconds for one run of the compiler.

    On KeyboardInterrupt all compilers are ended, with all that they started, and nothing half made stays in the cache.
    """
    queue = list(jobs)
    logs.mkdir(parents=True, exist_ok=True)
    largest = max((job.hlo.stat().st_size for job in queue), default=0)
    driver = Driver(compiler, neff_cache(cache), logs, timeout, Processes())
    results: list[NeffResult] = []
    killed: list[tuple[NeffJob, NeffResult]] = []

    def first(job: NeffJob) -> tuple[NeffJob, NeffResult]:
        started(job.name)
        return job, driver.compile(job)

    def done(result: NeffResult) -> None:
        results.append(result)
        finished(result)

    with _pool(workers or default_workers(largest), driver.processes) as pool:
        for job, result in _as_done({pool.submit(first, job) for job in queue}):
            if result.lacked_memory:
                killed.append((job, result))
            else:
                done(result)
        for job, result in killed:
            while result.lacked_memory:
                (result,) = _as_done({pool.submit(driver.compile, job, result)})
            done(result)
    return results


@contextlib.contextmanager
def _pool(workers: int, processes: Processes) -> Iterator[ThreadPoolExecutor]:
    pool = ThreadPoolExecutor(max_workers=workers)
    try:
        yield pool
    except BaseException:
        processes.stop()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        processes.close()


def _as_done(pending: set[Future[T]]) -> Iterator[T]:
    while pending:
        # Waiting without a limit would not hear Ctrl-C everywhere
        done, pending = wait(pending, timeout=0.2, return_when=FIRST_COMPLETED)
        for future in done:
            yield future.result()
