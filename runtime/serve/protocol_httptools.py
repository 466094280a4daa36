"""`runtime.serve.protocol` by httptools, whose parser has no bound at all."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from runtime.serve.protocol import MOST_HEAD_BYTES, MOST_HEADERS, MOST_WAITING


class TooMuch(Exception):
    """Raised in a callback: the parser stops, and the client gets 400."""


class BoundedHttpTools(HttpToolsProtocol):
    """Answers 400 to a head, or to what stands around chunks, that goes on past MOST_HEAD_BYTES.

    The piece of data in which a part begins is not counted, since the end of a body may stand before it.
    """

    _framing: int | None = None  # bytes of a part that is no body, has begun and not ended; None in a body, or between
    _parts = 0
    _in_head = False

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if self.transport.is_closing():
            return
        part = self._parts
        super().data_received(data)
        # The same part before and behind this data
        if part == self._parts and self._framing is not None:
            self._framing += len(data)
            if self._framing > MOST_HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response("The request's headers are too long.")

    def send_400_response(self, msg: str) -> None:
        """End the connection with 400, or without a word where an answer has begun: another would stand within it."""
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self.transport.close()
        else:
            super().send_400_response(msg)

    def _part(self, framing: bool) -> None:
        self._framing, self._parts = 0 if framing else None, self._parts + 1

    # What the parser met, in this order; chunk_header, body and chunk_complete come again for each chunk

    def on_message_begin(self) -> None:
        """The first byte of a head."""
        self._part(True)
        self._in_head = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A whole header, or a trailer: that is dropped, for it would change the headers that were acted upon."""
        if not self._in_head:
            return
        if len(self.headers) >= MOST_HEADERS:
            raise TooMuch
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The end of a head."""
        if len(self.pipeline) >= MOST_WAITING:
            raise TooMuch
        self._part(True)
        self._in_head = False
        super().on_headers_complete()

    def on_chunk_header(self) -> None:
        """The size of a chunk and its extensions; behind the size 0 come the trailers."""
        self._part(True)

    def on_body(self, body: bytes) -> None:
        """A part of a body."""
        self._part(False)
        super().on_body(body)

    def on_chunk_complete(self) -> None:
        """The end of a chunk."""
        self._part(True)

    def on_message_complete(self) -> None:
        """The end of a request."""
        self._part(False)
        super().on_message_complete()
