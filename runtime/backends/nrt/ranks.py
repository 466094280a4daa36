"""One thread per rank, for as long as the bundle is open: what one rank runs may wait for what all others run.

A collective operation ends on no rank before it has begun on all. So a pass is handed to all ranks at once, and when
one fails its error is raised at once too: the others may be waiting for it on their devices, which ends by the
runtime's own timeout (NEURON_RT_EXEC_TIMEOUT) or never, and nothing here can end it sooner.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TypeVar

from runtime.bundle.errors import HostError

T = TypeVar("T")
Job = Callable[[], None]


class Ranks:
    """Runs a job on every rank at the same time. With a single rank the caller's own thread does it."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._failed = ""
        self._idle = threading.Condition()
        self._busy = 0
        self._jobs: list[queue.SimpleQueue[Job | None]] = [
            queue.SimpleQueue() for _ in range(count if count > 1 else 0)
        ]
        # Daemons: a rank that hangs in the runtime must not keep the process from ending
        for rank, jobs in enumerate(self._jobs):
            threading.Thread(target=_serve, args=(jobs,), name=f"neuron-rank-{rank}", daemon=True).start()

    def run(self, job: Callable[[int], T]) -> list[T]:
        """`[job(rank) for rank in range(count)]`, all at once.

        Raises:
            HostError: an earlier job failed, so that no device's state is known.
            Exception: what the first rank to fail raised, while others may still be running.
        """
        if self._failed:
            raise HostError(
                "The devices cannot go on after an earlier failure",
                found=self._failed.rstrip("."),
                repair="start the program again",
            )
        try:
            return self._together(job) if self._jobs else [job(0)]
        except BaseException as error:  # an interrupt too leaves ranks in the middle of a pass
            self._failed = str(error) or type(error).__name__
            raise

    def _together(self, job: Callable[[int], T]) -> list[T]:
        done: queue.SimpleQueue[tuple[int, T | None, Exception | None]] = queue.SimpleQueue()

        def on(rank: int) -> None:
            try:
                done.put((rank, job(rank), None))
            except Exception as error:
                done.put((rank, None, error))
            finally:
                with self._idle:
                    self._busy -= 1
                    self._idle.notify_all()

        with self._idle:
            self._busy += self.count
        for rank, jobs in enumerate(self._jobs):
            jobs.put(lambda rank=rank: on(rank))  # type: ignore[misc]
        results: dict[int, T] = {}
        while len(results) < self.count:
            rank, result, error = done.get()
            if error is not None:
                raise error
            results[rank] = result  # type: ignore[assignment]
        return [results[rank] for rank in range(self.count)]

    def close(self, patience: float) -> bool:
        """End the threads; whether all ranks came back within `patience` seconds."""
        for jobs in self._jobs:
            jobs.put(None)
        with self._idle:
            return self._idle.wait_for(lambda: self._busy == 0, patience)


def _serve(jobs: queue.SimpleQueue[Job | None]) -> None:
    while (job := jobs.get()) is not None:
        job()
