"""A client of the server that costs next to nothing, so that a measurement on one machine is of the server.

It speaks as much HTTP/1.1 as the server does, keeps its connection, and notes when each part of an answer came. Parts
are parsed after the last one.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit


class LostError(Exception):
    """A request without an answer, or with one that is no 200."""


@dataclass
class Reply:
    """One answer.

    Attributes:
        sent: when the request went out; `times`: when each part came; all of `time.perf_counter`.
        parts: the body's parts, as the server sent them: one, or one for each event.
    """

    sent: float
    times: list[float]
    parts: list[bytes]

    def events(self) -> list[dict[str, Any]]:
        """The JSON objects of a stream; raises LostError where it did not come to its end."""
        lines = [line for line in b"".join(self.parts).split(b"\n") if line]
        if not lines or lines[-1] != b"data: [DONE]":
            raise LostError(f"a stream ended early: {lines[-1:]!r}")
        return [json.loads(line.removeprefix(b"data: ")) for line in lines[:-1]]

    def text(self, stream: bool) -> str:
        """The answer's text, of a completion with one choice."""
        objects = self.events() if stream else [json.loads(b"".join(self.parts))]
        return "".join(choice["text"] for value in objects for choice in value["choices"])

    def tokens(self, stream: bool) -> int:
        """usage.completion_tokens; a stream has it where it was asked for."""
        last = self.events()[-1] if stream else json.loads(b"".join(self.parts))
        return int(last["usage"]["completion_tokens"])


class Connection:
    """One connection to the server, used for one request after the other."""

    def __init__(self, url: str, api_key: str | None = None) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._key = f"Authorization: Bearer {api_key}\r\n" if api_key else ""
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, value: object) -> Reply:
        """Send a JSON object and read the whole answer.

        Raises:
            LostError: the connection broke, or the status is not 200.
        """
        body = json.dumps(value).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: {self._host}\r\nContent-Length: {len(body)}\r\n{self._key}\r\n"
        try:
            if self._streams is None:
                self._streams = await asyncio.open_connection(self._host, self._port)
            reader, writer = self._streams
            sent = time.perf_counter()
            writer.write(head.encode() + body)
            status, headers = _head(await reader.readuntil(b"\r\n\r\n"))
            reply = await _body(reader, headers, sent)
        except (OSError, EOFError, asyncio.IncompleteReadError) as error:
            self.close()
            raise LostError(f"{type(error).__name__}: {error}") from None
        if headers.get("connection") == "close":
            self.close()
        if status != 200:
            raise LostError(f"status {status}: {b''.join(reply.parts)[:300]!r}")
        return reply

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def _head(data: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = data.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines if line)
    return int(first.split()[1]), {name.lower(): value.strip().lower() for name, _, value in pairs}


async def _body(reader: asyncio.StreamReader, headers: dict[str, str], sent: float) -> Reply:
    times, parts = [], []
    if "content-length" in headers:
        parts.append(await reader.readexactly(int(headers["content-length"])))
        times.append(time.perf_counter())
        return Reply(sent, times, parts)
    while size := int(await reader.readuntil(b"\r\n"), 16):
        part = await reader.readexactly(size + 2)
        times.append(time.perf_counter())
        parts.append(part[:-2])
    await reader.readexactly(2)
    return Reply(sent, times, parts)
