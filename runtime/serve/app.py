"""The ASGI application: routes, API keys, and an OpenAI error for everything that is not an answer."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runtime.serve.chat import ChatStyle, read_chat
from runtime.serve.completions import CompletionStyle, read_completion
from runtime.serve.cors import Cors
from runtime.serve.driver import Driver
from runtime.serve.errors import (
    ApiError,
    ClientGone,
    defect,
    log_defect,
    queue_full,
    too_large,
    unauthorized,
    unknown_model,
)
from runtime.serve.fields import parse_body, wrong
from runtime.serve.generation import Answer, Generation, Served, Style
from runtime.serve.metrics import Metrics
from runtime.serve.respond import answer_stream, answer_whole, send_json

MAX_BODY_BYTES = 8 * 2**20
# A body beyond LONG is read in a thread: its tokenizer would keep the loop from everybody else's answers. So many of
# them are read at once, and of those beyond HUGE, whose encoding takes 150 times their memory, one
LONG_BODY_BYTES, LONG_AT_ONCE = 16 * 2**10, 4
HUGE_BODY_BYTES = 2**20
# Of a body that is too long so many bodies more are taken and dropped, for so long: closed before the client has sent
# it all, the connection would be reset, and the answer lost with it
LEFT_OVER_BODIES, LEFT_OVER_S = 16, 30.0
GUARDED = "/v1/"

Read = Callable[[Mapping[str, object], Served], Generation]


class Lanes:
    """Where bodies are read: short ones at once, long ones in threads, so that neither they nor their number matter to
    others. One for all of a server's endpoints.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver, self._waiting = driver, 0
        self._long, self._huge = asyncio.Semaphore(LONG_AT_ONCE), asyncio.Semaphore(1)

    async def read(self, reader: Callable[[bytes], Generation], body: bytes, receive: Receive) -> Generation:
        """`reader(body)`.

        Raises:
            ApiError: a long body, and the driver has no room for its request, or as many wait here as may in its queue.
            ClientGone: the client left while its body waited.
        """
        if len(body) <= LONG_BODY_BYTES:
            return reader(body)
        self._driver.check_room()
        lane = self._huge if len(body) > HUGE_BODY_BYTES else self._long
        if lane.locked() and self._waiting >= self._driver.max_queue:
            raise queue_full(self._driver.max_queue)
        self._waiting += 1
        try:
            await _turn(lane, receive)
        finally:
            self._waiting -= 1
        try:
            return await anyio.to_thread.run_sync(reader, body)
        finally:
            lane.release()


async def _turn(lane: asyncio.Semaphore, receive: Receive) -> None:
    """Acquire `lane`, or raise ClientGone once the client has left."""
    with anyio.CancelScope() as scope:

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            scope.cancel()

        watcher = asyncio.ensure_future(watch())
        try:
            await lane.acquire()
        finally:
            watcher.cancel()
    if scope.cancelled_caught:
        raise ClientGone


@dataclass(frozen=True)
class Endpoint:
    """Answers one of the two kinds of generation requests; an ASGI application."""

    driver: Driver
    served: Served
    read: Read
    style: Callable[[Served], Style]
    max_body: int
    lanes: Lanes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await read_body(scope, receive, self.max_body)
            generation = await self.lanes.read(self._generation, body, receive)
            answer = Answer(generation, self.served, self.style(self.served))
            tickets = self.driver.submit(answer.requests())
            respond = answer_stream if generation.stream else answer_whole
            await respond(answer, tickets, receive, send)
        except BodyTooLong as error:
            await send_error(send, error.answer, more_body=True)
            await drop_body(receive, self.max_body * LEFT_OVER_BODIES)
            await send({"type": "http.response.body"})
        except ClientGone:
            return

    def _generation(self, body: bytes) -> Generation:
        data = parse_body(body)
        if "model" in data:
            check_model(data["model"], self.served)
        return self.read(data, self.served)


def check_model(name: object, served: Served) -> None:
    """Raise ApiError: 404 for a model that is not served here, 400 for a name that is none."""
    if not isinstance(name, str):
        raise wrong("model", "a string", name)
    if name not in served.names:
        raise unknown_model(name, served.names[0])


class BodyTooLong(Exception):
    """The body is longer than it may be, and has not been read to its end; `answer` is what its sender is told."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.answer = too_large(limit)


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The whole body of a request.

    Raises:
        BodyTooLong: it is longer than `limit` bytes, or says so.
        ClientGone: the client left before its end.
    """
    declared = dict(scope["headers"]).get(b"content-length", b"0")
    if declared.isdigit() and int(declared) > limit:
        raise BodyTooLong(limit)
    parts, length = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part = message.get("body", b"")
        length += len(part)
        if length > limit:
            raise BodyTooLong(limit)
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


async def drop_body(receive: Receive, most: int) -> None:
    """Read what is left of a body, at most `most` bytes and for LEFT_OVER_S, and keep nothing of it."""
    with anyio.move_on_after(LEFT_OVER_S):
        while most > 0:
            message = await receive()
            most -= len(message.get("body", b""))
            if not message.get("more_body", False):
                return


class Guard:
    """Lets requests to /v1/ pass that have one of the keys; the other paths tell nothing about anybody's text."""

    def __init__(self, app: ASGIApp, keys: Sequence[str]) -> None:
        self._app, self._keys = app, [_digest(key.encode()) for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._keys and scope["type"] == "http" and scope["path"].startswith(GUARDED) and not self._knows(scope):
            await send_error(send, unauthorized())
            return
        await self._app(scope, receive, send)

    def _knows(self, scope: Scope) -> bool:
        scheme, _, key = dict(scope["headers"]).get(b"authorization", b"").partition(b" ")
        given = _digest(key.strip())
        # All are compared, in a time that tells nothing
        matches = [hmac.compare_digest(given, known) for known in self._keys]
        return scheme.lower() == b"bearer" and any(matches)


class LastResort:
    """Answers 500 for a defect, so that a client sees one sentence and the log the reason."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def noted(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except Exception as error:
            log_defect(error)
            if started:
                raise
            await send_error(send, defect())


async def send_error(send: Send, error: ApiError, *, more_body: bool = False) -> None:
    headers = [(name.lower().encode(), value.encode()) for name, value in error.headers.items()]
    await send_json(send, error.body(), error.status, headers, more_body=more_body)


class _ErrorAnswer(Response):
    """An ApiError as a response of Starlette's."""

    def __init__(self, error: ApiError) -> None:
        super().__init__()
        self._error = error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send_error(send, self._error)


class _JsonAnswer(Response):
    def __init__(self, value: object, status: int = 200) -> None:
        super().__init__()
        self._value, self._status = value, status

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send_json(send, self._value, self._status)


async def _api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return _ErrorAnswer(error)


async def _http_error(request: Request, error: Exception) -> Response:
    """404 and 405 of the router."""
    assert isinstance(error, HTTPException)
    path, headers = request.url.path, error.headers or {}
    if error.status_code == 405:
        allowed = headers.get("Allow", "another method")
        message = f"{request.method} is not allowed at {path}: expected {allowed}."
    else:
        message = f"There is nothing at {path}."
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code)
    return _ErrorAnswer(ApiError(error.status_code, message, code=code, headers=headers))


def make_app(
    driver: Driver,
    served: Served,
    metrics: Metrics,
    *,
    api_keys: Sequence[str] = (),
    max_body: int = MAX_BODY_BYTES,
    cors: Cors | None = None,
) -> ASGIApp:
    """The application over a driver that has been started, or will be before the first request."""

    async def models(request: Request) -> Response:
        return _JsonAnswer({"object": "list", "data": [_model(name, served) for name in served.names]})

    async def model(request: Request) -> Response:
        name = request.path_params["name"]
        check_model(name, served)
        return _JsonAnswer(_model(name, served))

    async def health(request: Request) -> Response:
        reason = "engine failed" if driver.failed else "shutting down" if driver.stopping else None
        return _JsonAnswer({"status": reason or "ok"}, 503 if reason else 200)

    async def scrape(request: Request) -> Response:
        return Response(metrics.render(), media_type=metrics.content_type)

    async def tell_version(request: Request) -> Response:
        return _JsonAnswer({"version": _version(), "bundle": served.fingerprint})

    lanes = Lanes(driver)
    completions = Endpoint(driver, served, read_completion, CompletionStyle, max_body, lanes)
    chat = Endpoint(driver, served, read_chat, ChatStyle, max_body, lanes)
    routes = [
        Route("/v1/completions", completions, methods=["POST"]),
        Route("/v1/chat/completions", chat, methods=["POST"]),
        Route("/v1/models", models, methods=["GET"]),
        Route("/v1/models/{name:path}", model, methods=["GET"]),
        Route("/health", health, methods=["GET"]),
        Route("/metrics", scrape, methods=["GET"]),
        Route("/version", tell_version, methods=["GET"]),
    ]
    handlers = {ApiError: _api_error, HTTPException: _http_error}
    app = Starlette(routes=routes, exception_handlers=handlers)
    # A redirect is no error of OpenAI's, and sends a client to whatever host its own header named
    app.router.redirect_slashes = False
    # Around the keys: a preflight has none, and a page is to read why it was refused
    return (cors or Cors()).around(LastResort(Guard(app, api_keys)))


def _model(name: str, served: Served) -> dict[str, object]:
    return {
        "id": name,
        "object": "model",
        "created": served.created,
        "owned_by": "eagle3-run",
        "root": served.names[0],
        "parent": None,
        "max_model_len": served.max_model_len,
    }


def _version() -> str:
    try:
        return version("eagle3-aot")
    except PackageNotFoundError:
        return "unknown"


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
