"""HTTP: one hostile exchange with a server of its own, behind which a well-behaved client must get its usual answer."""

from __future__ import annotations

import json
import random
import socket
import sys
from pathlib import Path
from typing import Any

from tests.fuzz.mutations import spoil_bytes, spoil_json, spoil_text

COMPLETION = {
    "model": "toy",
    "prompt": "the land",
    "max_tokens": 5,
    "temperature": 0.0,
    "top_p": 0.9,
    "n": 1,
    "stop": ["zz", "xyz"],
    "seed": 3,
    "logprobs": 2,
    "logit_bias": {"5": -1.0},
    "stream": True,
    "stream_options": {"include_usage": True},
    "presence_penalty": 0.0,
    "frequency_penalty": 0.5,
    "min_tokens": 1,
    "stop_token_ids": [9],
    "bad_words": ["a"],
    "allowed_token_ids": [1, 2, 3, 4, 5],
}
CHAT = {
    "model": "toy",
    "messages": [
        {"role": "user", "content": "the land"},
        {"role": "assistant", "content": [{"type": "text", "text": "a"}]},
    ],
    "max_completion_tokens": 5,
    "temperature": 0,
    "stream": True,
    "stop": "zz",
    "logprobs": True,
    "top_logprobs": 3,
    "user": "x",
}
ALWAYS = ("model", "prompt", "messages")
_ODD = ("chunked", "length", "method", "header", "bytes", "path", "many", "trailer")
FRAMINGS = ("plain", "plain", "plain", *_ODD)
# Seconds after which a client that has sent all it has closes its half
PATIENCE = 2.0
GOOD = {"model": "toy", "prompt": "the cat", "max_tokens": 8, "temperature": 0}


class Http:
    """Bodies, headers and framing changed; the server is the real one over the toy engine, on a loopback socket."""

    seconds = 40.0

    def prepare(self, folder: Path) -> None:
        """Nothing: each server and each request is made where it is used."""

    def load(self) -> None:
        from tests.runtime.loop.rig import make_rig
        from tests.runtime.serve.conftest import SHAPE

        self._rig = make_rig(SHAPE)

    def copy(self, pristine: Path, folder: Path) -> None:
        (folder / "request").write_bytes(
            framed(random.Random(0), "/v1/completions", json.dumps(GOOD).encode(), "plain")[0]
        )

    def spoil(self, rng: random.Random, folder: Path) -> str:
        path, body = rng.choice((("/v1/completions", COMPLETION), ("/v1/chat/completions", CHAT)))
        # Few fields, so that what is changed is not always refused for another one's sake
        kept = {name: value for name, value in body.items() if name in ALWAYS or rng.random() < 0.4}
        changed: dict[str, Any] = json.loads(json.dumps(kept))
        what = "the same"
        if rng.random() < 0.7:
            what = spoil_json(rng, changed)
        text = json.dumps(changed)
        if rng.random() < 0.15:
            text, more = spoil_text(rng, text)
            what += f"; {more}"
        request, framing = framed(rng, path, text.encode("utf-8", "surrogatepass"), rng.choice(FRAMINGS))
        (folder / "request").write_bytes(request)
        return f"{path}: {what}; {framing}"

    def run(self, folder: Path) -> int:
        from tests.runtime.serve.conftest import engine_of, serving

        with serving(engine_of(self._rig), self._rig) as running:
            host, port = running.url.removeprefix("http://").split(":")
            answer = exchange((host, int(port)), (folder / "request").read_bytes(), 10.0)
            print(post((host, int(port)), "/v1/completions", GOOD))
        status = answer.partition(b" ")[2][:3]
        if status.startswith(b"5"):
            raise RuntimeError(f"the server answered {answer[:300]!r}")
        if status.startswith(b"2") and b'"error"' not in answer:
            return 0
        print("error: refused", file=sys.stderr)
        return 2

    def answer(self, out: str) -> str:
        return out


def framed(rng: random.Random, path: str, body: bytes, way: str) -> tuple[bytes, str]:
    """The bytes of a request framed in one of FRAMINGS, all but the first of them odd; says how."""
    head = [f"POST {path} HTTP/1.1", "Host: x", "Content-Type: application/json", "Connection: close"]
    if way in ("chunked", "trailer"):
        cut = rng.randrange(len(body) + 1)
        size = rng.choice(("%x", "%X", "0%x", "%x;ext=1")) if way == "chunked" else "%x"
        parts = [
            size.replace("%x", format(len(p), "x")).replace("%X", format(len(p), "X")).encode() + b"\r\n" + p + b"\r\n"
            for p in (body[:cut], body[cut:])
            if p
        ]
        tail = b"0\r\n" + (b"X-a: b\r\n" * rng.choice((1, 50, 20_000)) if way == "trailer" else b"") + b"\r\n"
        return "\r\n".join([*head, "Transfer-Encoding: chunked", "", ""]).encode() + b"".join(parts) + tail, way
    length: object = len(body)
    if way == "length":
        length = rng.choice((0, 1, len(body) - 1, len(body) + 10, -1, "x", 10**30, ""))
    if way == "method":
        head[0] = head[0].replace("POST", rng.choice(("GET", "PUT", "DELETE", "OPTIONS", "HEAD", "x", "")))
    if way == "header":
        name, value = (
            rng.choice(("X-a", "Content-Type", "Content-Encoding", "Expect", "Host", "Upgrade", "Transfer-Encoding")),
            rng.choice(("", "x" * 9000, "gzip", "100-continue", "websocket", "text/plain", "é")),
        )
        head.append(f"{name}: {value}")
    if way == "path":
        head[0] = head[0].replace(
            path,
            rng.choice(
                ("/", "/v1", "//v1/models", "/v1/models/../x", "/%00", "/health", "/metrics", "*", "/" + "x" * 9000)
            ),
        )
    if way == "many":
        head += [f"X-{number}: y" for number in range(rng.choice((50, 500, 5000)))]
    made = "\r\n".join([*head, f"Content-Length: {length}", "", ""]).encode() + body
    return spoil_bytes(rng, made) if way == "bytes" else (made, way)


def exchange(address: tuple[str, int], data: bytes, seconds: float, patience: float = PATIENCE) -> bytes:
    """Send `data` and read until the server is done; where it waits for more, say that no more comes."""
    got = b""
    with socket.create_connection(address, timeout=seconds) as one:
        try:
            one.sendall(data)
            one.settimeout(patience)
            for _ in range(2):
                try:
                    while part := one.recv(65536):
                        got += part
                    break
                except TimeoutError:
                    one.shutdown(socket.SHUT_WR)
                    one.settimeout(seconds)
        except OSError:  # the server ended the connection, as it may, or did not
            pass
    return got


def post(address: tuple[str, int], path: str, body: dict[str, Any]) -> str:
    """The text of a completion."""
    data, _ = framed(random.Random(0), path, json.dumps(body).encode(), "plain")
    answer = exchange(address, data, 20.0, patience=20.0)
    _, _, payload = answer.partition(b"\r\n\r\n")
    try:
        return repr(json.loads(payload)["choices"][0]["text"])
    except (ValueError, KeyError, IndexError):
        return f"no answer: {answer[:200]!r}"
