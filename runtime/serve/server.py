"""The process around the application: its socket, its log, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import math
import os
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import ip_address

import uvicorn
from starlette.types import ASGIApp

from runtime.bundle.errors import UsageError
from runtime.serve.driver import Driver
from runtime.serve.protocol import MOST_HEAD_BYTES, http_protocol

logger = logging.getLogger("eagle3.serve")

BACKLOG = 2048
KEEP_ALIVE_S = 30
# Between the end of the last request and the moment when a client that does not read is given up
GRACE_S = 2.0


@dataclass(frozen=True)
class Address:
    """Where the server listens."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        try:
            return self.host == "localhost" or ip_address(self.host).is_loopback
        except ValueError:
            return False


def bind(address: Address) -> socket.socket:
    """A socket that has the address and does not listen yet, so that a taken port is told before a model is loaded.

    Raises:
        UsageError: the port is taken or not ours, or the host is none of this machine's.
    """
    host, port = address.host, address.port
    with _in_words(address):
        family, kind, protocol, _, where = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(where)
        except OSError:
            bound.close()
            raise
    return bound


def listen(bound: socket.socket, address: Address) -> None:
    """Let clients connect; raises UsageError where another process was faster."""
    with _in_words(address):
        bound.listen(BACKLOG)


@contextlib.contextmanager
def _in_words(address: Address) -> Iterator[None]:
    try:
        yield
    except UnicodeError:
        raise UsageError(
            f"The server cannot listen on {address.host!r}",
            found="a name that no host can have",
            repair="choose a --host of this machine, such as 127.0.0.1",
        ) from None
    except OSError as error:
        repair = {
            errno.EADDRINUSE: "end what listens there, or choose another --port (0 takes a free one)",
            errno.EACCES: "choose a --port of 1024 or above",
        }.get(error.errno or 0, "choose a --host of this machine, such as 127.0.0.1")
        raise UsageError(
            f"The server cannot listen on {address.host}:{address.port}", found=_reason(error), repair=repair
        ) from None


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def url_of(bound: socket.socket) -> str:
    """The URL of a bound socket."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def set_up_log(level: str) -> None:
    """Log to standard error, this package's and the HTTP server's own messages."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    ours, theirs = logging.getLogger("eagle3"), logging.getLogger("uvicorn")
    for log in (ours, theirs):
        log.handlers[:] = [handler]
        log.propagate = False
    ours.setLevel(level.upper())
    # What uvicorn tells of its start and end is told here in other words
    theirs.setLevel(max(logging.WARNING, ours.level))


class HttpServer(uvicorn.Server):
    """uvicorn, whose signals are ours: it would end the process by the signal, and not with exit code 0.

    Args:
        ready: set once connections are accepted.
    """

    def __init__(self, app: ASGIApp, shutdown_timeout: float, ready: asyncio.Event | None = None) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=http_protocol(),
                h11_max_incomplete_event_size=MOST_HEAD_BYTES,
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                access_log=False,
                server_header=False,
                backlog=BACKLOG,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=math.ceil(shutdown_timeout + GRACE_S),
            )
        )
        self._ready = ready

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._ready is not None:
            self._ready.set()


async def run(
    app: ASGIApp,
    driver: Driver,
    bound: socket.socket,
    *,
    shutdown_timeout: float,
    signals: Sequence[signal.Signals] = (),
    stop: asyncio.Event | None = None,
    ready: asyncio.Event | None = None,
) -> None:
    """Serve until a signal comes or `stop` is set; then finish what runs, and end what is left after a time.

    Args:
        shutdown_timeout: seconds that running requests have, from the signal on.
        signals: a first one ends the server as above, a second one ends the process at once.
    """
    loop = asyncio.get_running_loop()
    server = HttpServer(app, shutdown_timeout, ready)
    driver.start()

    def begin_to_stop() -> None:
        if driver.stopping:
            return
        driver.refuse_new()
        server.should_exit = True
        if driver.unfinished:
            logger.info("Stopping: %d requests have %g s to end.", driver.unfinished, shutdown_timeout)
        loop.call_later(shutdown_timeout, driver.end_all)

    def on_signal(number: signal.Signals) -> None:
        if driver.stopping:
            logger.warning("Stopped at once by a second signal; %d requests were lost.", driver.unfinished)
            os._exit(128 + number)
        begin_to_stop()

    for number in signals:
        loop.add_signal_handler(number, on_signal, number)
    waiter = asyncio.ensure_future(_then(stop, begin_to_stop)) if stop is not None else None
    try:
        await server.serve(sockets=[bound])
    finally:
        if waiter is not None:
            waiter.cancel()
        await driver.close()
    logger.info("Stopped.")


async def _then(event: asyncio.Event, action: object) -> None:
    await event.wait()
    assert callable(action)
    action()


def run_to_end(app: ASGIApp, driver: Driver, bound: socket.socket, *, shutdown_timeout: float) -> None:
    """`run` in a loop of its own, uvloop's where it is installed, ended by SIGINT or SIGTERM."""
    # Without log_config=None, which `HttpServer` has too, uvicorn would set its own log up, INFO lines and all
    factory = uvicorn.Config(app, loop="auto", log_config=None).get_loop_factory()
    with asyncio.Runner(loop_factory=factory) as runner:
        signals = (signal.SIGINT, signal.SIGTERM)
        runner.run(run(app, driver, bound, shutdown_timeout=shutdown_timeout, signals=signals))
