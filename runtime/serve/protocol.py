"""HTTP/1.1 with a bound on everything of a request that is not its body, by httptools or by h11.

The body has a bound of its own (`runtime.serve.app`). The rest is a request's head, the sizes and extensions of its
chunks, and its trailers. uvicorn's parsers keep heads and trailers as they come, so without a bound one client could
fill the memory. A client may also send further requests before the first is answered: they wait in memory too.
"""

from __future__ import annotations

import asyncio
from importlib.util import find_spec

from uvicorn.protocols.http.h11_impl import H11Protocol

# Of a head, of the trailers, of what stands between two chunks. h11 is given the same number.
MOST_HEAD_BYTES = 64 * 2**10
MOST_HEADERS = 1000
# Requests that wait behind the one that is answered; of these small ones many fit in one piece of data
MOST_WAITING = 64


def http_protocol() -> type[asyncio.Protocol]:
    """httptools where it is installed, which takes a third of h11's time."""
    if find_spec("httptools") is None:
        return BoundedH11
    from runtime.serve.protocol_httptools import BoundedHttpTools

    return BoundedHttpTools


class BoundedH11(H11Protocol):
    """h11 bounds what it has not understood yet, heads and trailers; it takes requests one by one, and drops trailers.

    Its server must be configured with `h11_max_incomplete_event_size`.
    """

    def send_400_response(self, msg: str) -> None:
        """End the connection with 400, or without a word where an answer has begun: another would stand within it."""
        if self.conn.our_state.__name__ in ("IDLE", "SEND_RESPONSE"):
            super().send_400_response(msg)
        else:
            self.transport.close()
