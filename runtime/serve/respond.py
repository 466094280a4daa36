"""An answer over HTTP: one JSON object, or a stream of server-sent events. A client that leaves aborts its requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from starlette.types import Receive, Send

from runtime.bundle.errors import UsageError
from runtime.request import RequestOutput
from runtime.serve.driver import Ticket
from runtime.serve.errors import ApiError, ClientGone, defect, log_defect
from runtime.serve.fields import refused_by_engine
from runtime.serve.generation import Answer, Part, usage

# Made once: json.dumps with other arguments than its own makes an encoder at every call
encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
DONE = b"data: [DONE]\n\n"
JSON_TYPE = b"application/json"


async def send_json(
    send: Send,
    value: object,
    status: int = 200,
    headers: Sequence[tuple[bytes, bytes]] = (),
    *,
    more_body: bool = False,
) -> None:
    """Send one JSON object.

    Args:
        more_body: leave the answer open, though the client has all of it; an empty part ends it.
    """
    body = to_json(value)
    fixed = [(b"content-type", JSON_TYPE), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*fixed, *headers]})
    await send({"type": "http.response.body", "body": body, "more_body": more_body})


def to_json(value: object) -> bytes:
    return encode(value).encode("utf-8", "replace")


def event(value: object) -> bytes:
    """One server-sent event."""
    return b"data: " + to_json(value) + b"\n\n"


async def answer_whole(answer: Answer, tickets: Sequence[Ticket], receive: Receive, send: Send) -> None:
    """Wait for every choice, then send the answer.

    Raises:
        ApiError: a request was refused or ended otherwise; the others have been aborted.
        ClientGone: the client left.
    """
    async with _watched(tickets, receive):
        with _in_words():
            outputs = [await ticket.finished() for ticket in tickets]
    parts = [answer.part(output) for output in outputs]
    value = answer.style.whole(answer, parts) | {"usage": usage(outputs)}
    await send_json(send, value, headers=[(b"x-request-id", answer.id.encode())])


async def answer_stream(answer: Answer, tickets: Sequence[Ticket], receive: Receive, send: Send) -> None:
    """Send the choices as they grow, one event for each step that brought something for one of them.

    An error after the first event is an event of its own, since the status has been sent; no [DONE] follows it.

    Raises:
        ApiError: a request was refused before anything was sent.
        ClientGone: the client left.
    """
    async with _watched(tickets, receive):
        with _in_words():
            for ticket in tickets:
                await ticket.accepted()
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-cache"),
            (b"x-accel-buffering", b"no"),
            (b"x-request-id", answer.id.encode()),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        try:
            writers = [_write(answer, index, ticket, send) for index, ticket in enumerate(tickets)]
            outputs = [await writers[0]] if len(writers) == 1 else await _together(writers)
            rest = DONE
            if answer.generation.include_usage:
                rest = event(answer.style.empty(answer) | {"usage": usage(outputs)}) + DONE
        except ClientGone:
            raise
        except ApiError as error:
            rest = event(error.body())
        except Exception as error:
            log_defect(error)
            rest = event(defect().body())
        await send({"type": "http.response.body", "body": rest})


async def _write(answer: Answer, index: int, ticket: Ticket, send: Send) -> RequestOutput:
    """Send one choice of a stream, up to its end."""
    text, style, generation = answer.text(), answer.style, answer.generation
    usage_key: dict[str, object] = {"usage": None} if generation.include_usage else {}
    opening = style.opening(answer, index)
    # Sent with the first text: a system call and a wake-up of the client less
    ahead = b"" if opening is None else event(opening | usage_key)
    while ticket.output is None or ticket.pending:
        steps = await ticket.steps()
        last = steps[-1]
        settled = "".join(map(text.push, steps))
        part = Part(
            settled if last.finish_reason is None else settled + text.flush(),
            [token for step in steps for token in step.token_ids],
            [token for step in steps for token in step.logprobs],
            last.finish_reason,
            last.stop_reason,
        )
        if part.text or part.finish or part.logprobs or generation.return_token_ids:
            body = ahead + event(style.chunk(answer, index, part) | usage_key)
            ahead = b""
            await send({"type": "http.response.body", "body": body, "more_body": True})
    return ticket.output


async def _together(writers: Sequence[Coroutine[Any, Any, RequestOutput]]) -> list[RequestOutput]:
    """Run the writers side by side. Where one fails, the others have stopped when this raises."""
    tasks = [asyncio.ensure_future(writer) for writer in writers]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def _watched(tickets: Sequence[Ticket], receive: Receive) -> AsyncIterator[None]:
    """Abort `tickets` when the client closes its connection, and those that have not ended when the block is left."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        for ticket in tickets:
            ticket.abort()

    watcher = asyncio.ensure_future(watch())
    try:
        yield
    finally:
        watcher.cancel()
        for ticket in tickets:
            ticket.abort()


@contextmanager
def _in_words() -> Iterator[None]:
    """An engine's refusal as an answer of this interface."""
    try:
        yield
    except UsageError as error:
        raise refused_by_engine(error) from None
