"""HTTP/1.1 by httptools, with a bound on a request's head: its parser has none, so one client could fill the memory."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# h11, which uvicorn takes where httptools is not installed, has the same bound
MOST_HEAD_BYTES = 64 * 2**10


class BoundedHttp(HttpToolsProtocol):
    """Answers 400 to a head that goes on past MOST_HEAD_BYTES.

    The piece of data in which a head begins is not counted, since the end of a body may stand before it.
    """

    _head: int | None = None  # bytes of a head that has begun and not ended

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        counted = self._head is not None
        super().data_received(data)
        if counted and self._head is not None:
            self._head += len(data)
            if self._head > MOST_HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response("The request's headers are too long.")

    def on_message_begin(self) -> None:
        """The parser met the first byte of a head."""
        self._head = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The parser met its end."""
        self._head = None
        super().on_headers_complete()
