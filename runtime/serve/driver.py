"""The engine in a thread of its own, and the event loop's side of every request in it.

The loop's thread never touches the engine: it leaves commands in a queue, which the engine's thread obeys between two
steps. What a step brought goes back as one callback of the loop, however many requests it served: each such callback
wakes the loop by a system call and takes the interpreter's lock from the engine.

A compiled call holds the interpreter's lock. A loop that works while the engine steps gets it back only when the
interpreter forces a switch, after each system call anew, and falls behind; so the engine waits between two steps until
the loop has sent what the last one brought. That costs what the sending takes.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from runtime.bundle.errors import UsageError
from runtime.generate import TokenEngine
from runtime.request import Request, RequestOutput, StepOutput
from runtime.serve.errors import (
    ClientGone,
    debugging,
    defect,
    describe,
    engine_failed,
    engine_gone,
    log_defect,
    queue_full,
    request_failed,
    stopping,
    timed_out,
    too_many,
)

logger = logging.getLogger("eagle3.serve")

# Longest wait of the engine for the loop, in seconds; it is reached only where a client's own work is slow
PATIENCE = 0.01


class Observer(Protocol):
    """Who counts: called on the loop's thread. Times are seconds of `time.perf_counter`."""

    def stepped(self, ticket: Ticket, output: StepOutput, now: float) -> None: ...

    def ended(self, ticket: Ticket, reason: str, now: float) -> None:
        """`reason`: "stop" or "length", "abort" for a client that left or a time-out, or "error"."""


class Ticket:
    """One request in the engine, as the event loop sees it. Used by one task at a time, on the loop's thread.

    Attributes:
        request: what the engine was given.
        arrived: when it was submitted; `last`: when its last tokens came, None before the first.
        output: the finished request, once it is.
    """

    def __init__(self, request: Request, driver: Driver) -> None:
        self.request = request
        self.arrived = time.perf_counter()
        self.last: float | None = None
        self.output: RequestOutput | None = None
        self._driver = driver
        self._accepted = False
        self._steps: list[StepOutput] = []
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def accepted(self) -> None:
        """Wait until the engine has taken the request; raises what it was refused for (UsageError, ApiError)."""
        while not self._accepted:
            await self._wait()

    async def steps(self) -> list[StepOutput]:
        """All that came since the last call, at least one output; the last one has a finish_reason.

        Raises:
            ApiError: the request ended otherwise: with an error, by time-out, shutdown, a failure of the engine.
            ClientGone: it was aborted.
        """
        while not self._steps:
            await self._wait()
        steps, self._steps = self._steps, []
        return steps

    @property
    def pending(self) -> bool:
        """Whether `steps` has something to give at once."""
        return bool(self._steps)

    async def finished(self) -> RequestOutput:
        """Wait for the end; raises as `steps` does."""
        while self.output is None:
            await self._wait()
        return self.output

    def abort(self) -> None:
        """Take the request out of the engine, which frees its blocks; nothing happens where it has ended."""
        self._driver.end(self, ClientGone(), "abort")

    async def _wait(self) -> None:
        if self._error is not None:
            raise self._error
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _notify(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


@dataclass
class _News:
    """What the engine's thread has to tell, in the order in which it is to be read."""

    accepted: list[str] = field(default_factory=list)
    refused: list[tuple[str, Exception]] = field(default_factory=list)
    finished: list[RequestOutput] = field(default_factory=list)
    steps: Sequence[StepOutput] = ()
    failed: bool = False
    time: float = 0.0


class Driver:
    """Runs an engine in a thread. All methods are for the loop's thread.

    Args:
        engine: with nothing unfinished; from `start` on it belongs to the driver's thread.
        max_running: how many requests the engine runs at once; `max_queue`: how many more may wait.
        request_timeout: seconds from arrival to the end of a request; None for no limit.
    """

    def __init__(
        self,
        engine: TokenEngine,
        observer: Observer,
        *,
        max_running: int,
        max_queue: int,
        request_timeout: float | None = None,
    ) -> None:
        self._engine, self._observer = engine, observer
        self.max_queue, self.capacity = max_queue, max_running + max_queue
        self._request_timeout = request_timeout
        self._commands: deque[Callable[[_News], None]] = deque()
        self._wake, self._sent = threading.Event(), threading.Event()
        self._tickets: dict[str, Ticket] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._closed = False
        self.stopping = self.failed = False

    @property
    def unfinished(self) -> int:
        """Requests submitted and not ended."""
        return len(self._tickets)

    def start(self) -> None:
        """Start the engine's thread; call it in the loop that its news go to."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def check_room(self, requests: int = 1) -> None:
        """Raise the ApiError that `submit` would raise for so many requests."""
        if self.failed:
            raise engine_gone()
        if self.stopping:
            raise stopping()
        if requests > self.capacity:
            raise too_many(requests, self.capacity)
        if self.unfinished + requests > self.capacity:
            raise queue_full(self.max_queue)

    def submit(self, requests: Sequence[Request]) -> list[Ticket]:
        """Queue `requests`, all or none.

        Raises:
            ApiError: 503, the queue has no room for them, the server is stopping, or the engine has failed; 400, they
                are more than the empty server takes.
        """
        self.check_room(len(requests))
        tickets = [Ticket(request, self) for request in requests]
        for ticket in tickets:
            self._tickets[ticket.request.request_id] = ticket
            if self._request_timeout is not None and self._loop is not None:
                ticket._timer = self._loop.call_later(self._request_timeout, self._expire, ticket)
            self._order(partial(self._add, ticket.request))
        return tickets

    def end(self, ticket: Ticket, error: Exception, reason: str) -> None:
        """End a request from outside: its waiter gets `error`, the engine drops it. No effect on one that has ended."""
        request_id = ticket.request.request_id
        if self._retire(request_id, error, reason, time.perf_counter()):
            self._order(lambda news: self._engine.abort(request_id))

    def refuse_new(self) -> None:
        """From now on `submit` raises; running requests go on."""
        self.stopping = True

    def end_all(self) -> None:
        """End every request with 503, as a shutdown does when its patience is over."""
        for ticket in list(self._tickets.values()):
            self.end(ticket, stopping(), "abort")

    async def close(self) -> None:
        """End what runs, and wait for the thread; the step under way is finished first."""
        self.refuse_new()
        self.end_all()
        self._closed = True
        self._wake.set()
        await asyncio.to_thread(self._thread.join)

    def _order(self, command: Callable[[_News], None]) -> None:
        self._commands.append(command)
        self._wake.set()

    def _expire(self, ticket: Ticket) -> None:
        assert self._request_timeout is not None
        self.end(ticket, timed_out(self._request_timeout), "abort")

    def _retire(self, request_id: str, error: Exception | None, reason: str, now: float) -> bool:
        """Forget a request and tell its waiter; False where it was forgotten before."""
        ticket = self._tickets.pop(request_id, None)
        if ticket is None:
            return False
        if ticket._timer is not None:
            ticket._timer.cancel()
        ticket._error = error
        self._observer.ended(ticket, reason, now)
        ticket._notify()
        return True

    def _read(self, news: _News) -> None:
        """On the loop's thread: hand everything to its ticket. Those that have ended are passed over."""
        for request_id in news.accepted:
            if ticket := self._tickets.get(request_id):
                ticket._accepted = True
                ticket._notify()
        for request_id, error in news.refused:
            self._retire(request_id, error, "error", news.time)
        outputs = {output.request_id: output for output in news.finished}
        for step in news.steps:
            ticket = self._tickets.get(step.request_id)
            if ticket is None:
                continue
            self._observer.stepped(ticket, step, news.time)
            ticket.last = news.time
            output = outputs[step.request_id] if step.finish_reason is not None else None
            if output is not None and output.error is not None:
                # What came before it is still read; behind that the waiter meets the error
                if step.token_ids:
                    ticket._steps.append(replace(step, finish_reason=None))
                self._retire(step.request_id, request_failed(output.error), "error", news.time)
                continue
            ticket._steps.append(step)
            if output is None:
                ticket._notify()
            else:
                ticket.output = output
                self._retire(step.request_id, None, output.finish_reason, news.time)
        if news.failed:
            self.failed = True
            for request_id in list(self._tickets):
                self._retire(request_id, engine_failed(), "error", news.time)
        # The tasks just woken run before this: callbacks are run in turns, and theirs are in the next one
        asyncio.get_running_loop().call_soon(self._sent.set)

    # On the engine's thread

    def _run(self) -> None:
        try:
            while True:
                # Before the commands are looked at: what comes after that sets it again
                self._wake.clear()
                if self._closed:
                    return
                self._obey()
                if not self._engine.has_unfinished():
                    if not self._commands:
                        self._wake.wait()
                    continue
                steps = self._engine.step()
                self._sent.clear()
                self._tell(_News(steps=steps, finished=self._engine.take_finished()))
                self._sent.wait(PATIENCE)
        except BaseException as error:  # whatever ended this thread, who waits for it must be told
            logger.error("The engine failed, and every request with it: %s", describe(error), exc_info=debugging())
            self._tell(_News(failed=True))

    def _obey(self) -> None:
        news = _News()
        while self._commands:
            self._commands.popleft()(news)
        if news.accepted or news.refused:
            self._tell(news)

    def _add(self, request: Request, news: _News) -> None:
        try:
            self._engine.add_request(request)
        except UsageError as error:
            news.refused.append((request.request_id, error))
        except Exception as error:  # in taking this request, which leaves the engine as it was
            log_defect(error)
            news.refused.append((request.request_id, defect()))
        else:
            news.accepted.append(request.request_id)

    def _tell(self, news: _News) -> None:
        news.time = time.perf_counter()
        assert self._loop is not None
        with suppress(RuntimeError):  # the loop has been closed, so nobody listens
            self._loop.call_soon_threadsafe(self._read, news)
