"""What of a request is no body has a bound too, whichever parser reads it; and a body that is too long hears of it."""

from __future__ import annotations

import http.client
import json
import socket
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress

import httpx
import pytest

from runtime.serve import server as serving_process
from runtime.serve.protocol import MOST_HEAD_BYTES, MOST_HEADERS, MOST_WAITING, BoundedH11
from runtime.serve.protocol_httptools import BoundedHttpTools
from tests.runtime.loop.rig import Rig
from tests.runtime.serve.conftest import Running, engine_of, serving

MIB = 2**20
LINE = b"X-a: v\r\n"
BODY = json.dumps({"prompt": [1], "max_tokens": 1}).encode()
CHUNKED = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
FIRST = b"%x\r\n%s\r\n" % (len(BODY), BODY)


@pytest.fixture(params=[BoundedHttpTools, BoundedH11], ids=["httptools", "h11"])
def server(rig: Rig, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    monkeypatch.setattr(serving_process, "http_protocol", lambda: request.param)
    with serving(engine_of(rig), rig, max_body=MIB) as running:
        yield running


def connect(server: Running) -> socket.socket:
    host, _, port = server.url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=20)


def send(server: Running, head: bytes, piece: bytes, most: int) -> tuple[int, bytes]:
    """Send `head`, then `piece` until the server ends it or `most` bytes are sent; how many, and its answer.

    An answer may be lost with the connection, since the server closes it while data comes.
    """
    sent, answer = 0, b""
    with connect(server) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(head)
            while sent < most:
                connection.sendall(piece)
                sent += len(piece)
            connection.shutdown(socket.SHUT_WR)
        with suppress(ConnectionResetError):
            answer = b"".join(iter(lambda: connection.recv(65536), b""))
    return sent, answer


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        (CHUNKED + FIRST + b"0\r\n", LINE * 1000),
        (CHUNKED + FIRST + b"0\r\nX-a: ", b"v" * 8000),
        (CHUNKED + b"1;", b"x" * 8000),
        (CHUNKED + FIRST + b"1;", b"x=y;" * 2000),
        (b"GET /health HTTP/1.1\r\nHost: x\r\n", LINE * 1000),
        (b"GET /health HTTP/1.1\r\nHost: x\r\nX-a: ", b"v" * 8000),
        (b"GET /", b"v" * 8000),
    ],
    ids=["trailers", "one trailer", "extension", "later extension", "headers", "one header", "target"],
)
def test_b2_what_is_no_body_ends_the_connection_where_it_has_no_end(server: Running, head: bytes, piece: bytes) -> None:
    """B2: 24 MiB of trailers would stay in the server's memory."""
    assert httpx.get(f"{server.url}/health").status_code == 200
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        sent, answer = send(server, head, piece, 24 * MIB)
        grown = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    # What the sockets hold is sent too
    assert sent < 16 * MIB
    assert not answer or answer.startswith(b"HTTP/1.1 400 ")
    assert grown < 4 * MIB
    assert httpx.get(f"{server.url}/health").status_code == 200


def test_b2_trailers_of_a_usual_size_are_passed_over(server: Running) -> None:
    with connect(server) as connection:
        connection.sendall(CHUNKED + FIRST + b"0\r\n" + LINE * 20 + b"\r\n")
        last = CHUNKED.replace(b"Host: x\r\n", b"Host: x\r\nConnection: close\r\n")
        connection.sendall(last + FIRST + b"0\r\n" + LINE + b"\r\n")
        answers = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answers.count(b"HTTP/1.1 200 OK") == 2


def test_b2_a_trailer_is_no_header(rig: Rig) -> None:
    """A key that comes behind the body would be seen or not, by how the request was cut into pieces."""
    with serving(engine_of(rig), rig, api_keys=("key",)) as server, connect(server) as connection:
        connection.sendall(CHUNKED + FIRST + b"0\r\nAuthorization: Bearer key\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 401 ")


def test_b2_a_body_in_chunks_of_one_byte_is_a_body(server: Running) -> None:
    tiny = b"".join(b"1;a=b\r\n%c\r\n" % byte for byte in BODY + b" " * MOST_HEAD_BYTES)
    with connect(server) as connection:
        connection.sendall(CHUNKED + tiny + b"0\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 OK")


def test_b2_requests_that_come_before_an_answer_have_a_bound(rig: Rig) -> None:
    """18 bytes that cost two kilobytes each while they wait. h11 takes them one by one."""
    with serving(engine_of(rig), rig) as server:
        one = b"GET /health HTTP/1.1\r\n\r\n"
        with connect(server) as connection:
            connection.sendall(one * (MOST_WAITING // 2) + one.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            answers = b"".join(iter(lambda: connection.recv(65536), b""))
        assert answers.count(b" 200 OK") == MOST_WAITING // 2 + 1
        sent, answer = send(server, b"", one * 500, 24 * MIB)
        assert sent < 16 * MIB
        assert answer.count(b" 200 OK") <= 500


def test_b2_headers_have_a_bound_in_number(rig: Rig) -> None:
    with serving(engine_of(rig), rig) as server:
        for count, status in ((MOST_HEADERS - 1, b"200"), (MOST_HEADERS + 1, b"400")):
            with connect(server) as connection:
                connection.sendall(b"GET /health HTTP/1.1\r\n" + b"a:b\r\n" * count + b"\r\n")
                assert connection.recv(65536).split()[1] == status


@pytest.mark.parametrize("declared", [True, False])
def test_b14_a_client_that_sends_all_of_a_large_body_first_reads_413(server: Running, declared: bool) -> None:
    """B14: the connection was closed with most of the body unread, so the client got a reset in its place."""
    host, _, port = server.url.removeprefix("http://").partition(":")
    large = b" " * (9 * MIB)
    for _ in range(3):
        connection = http.client.HTTPConnection(host, int(port), timeout=30)
        body = large if declared else iter([large[:MIB]] * 9)
        connection.request("POST", "/v1/completions", body=body, encode_chunked=not declared)  # type: ignore[arg-type]
        answer = connection.getresponse()
        assert answer.status == 413
        assert json.loads(answer.read())["error"]["code"] == "request_too_large"
        connection.close()
    assert httpx.post(f"{server.url}/v1/completions", content=BODY).status_code == 200


def test_b14_a_client_that_waits_for_leave_is_told_at_once(server: Running) -> None:
    with connect(server) as connection:
        head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
        connection.sendall(head % (9 * MIB))
        assert connection.recv(65536).startswith(b"HTTP/1.1 413 ")


def test_b14_a_body_without_end_is_not_read_for_ever(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.serve.app.LEFT_OVER_BODIES", 4)
    sent, answer = send(server, CHUNKED, b"10000\r\n" + b" " * 0x10000 + b"\r\n", 64 * MIB)
    assert sent < 48 * MIB
    assert not answer or answer.startswith(b"HTTP/1.1 413 ")
