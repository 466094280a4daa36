"""B5: a prompt of megabytes is refused before it is encoded, or encoded while everybody else goes on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
import tokenizers
from tokenizers import models, pre_tokenizers

from runtime.serve import app
from runtime.serve.start import describe
from runtime.text import Tokenizer
from runtime.text.tokenizer import TokenizerInfo
from tests.runtime.loop.rig import Rig
from tests.runtime.serve.conftest import MODEL, TEMPLATE, TOKENIZER, Running, engine_of, serving, toy_tokenizer, until

LONG = "the " * 100_000


class Waiting(Tokenizer):
    """Encodes texts with a "z" only once it is let; knows nothing of how many tokens they may have."""

    def __init__(self) -> None:
        toy = toy_tokenizer()
        super().__init__(toy._backend, toy.info, TEMPLATE)
        self.leave = threading.Event()
        self.at_once, self.most, self.encoded = 0, 0, 0
        self._lock = threading.Lock()

    def least_tokens(self, text: str) -> int:
        return 0

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        if "z" not in text:
            return super().encode(text, add_special_tokens)
        with self._lock:
            self.at_once += 1
            self.encoded += 1
            self.most = max(self.most, self.at_once)
        assert self.leave.wait(30)
        with self._lock:
            self.at_once -= 1
        return [1, 2, 3]


@pytest.fixture
def tokenizer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Waiting]:
    monkeypatch.setattr(app, "LONG_BODY_BYTES", 100)
    monkeypatch.setattr(app, "HUGE_BODY_BYTES", 1000)
    tokenizer = Waiting()
    yield tokenizer
    tokenizer.leave.set()


def completion(server: Running, prompt: Any, **options: Any) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/completions", json={"prompt": prompt, "max_tokens": 2, **options}, timeout=30)


@pytest.mark.parametrize(("length", "most"), [(200, app.LONG_AT_ONCE), (2000, 1)])
def test_b5_others_go_on_while_long_prompts_are_encoded(rig: Rig, tokenizer: Waiting, length: int, most: int) -> None:
    """And no more than `most` of them at once, of both endpoints together."""
    with serving(engine_of(rig), rig, tokenizer=tokenizer) as server, ThreadPoolExecutor(8) as pool:
        chat = {"messages": [{"role": "user", "content": "z" * length}], "max_tokens": 2}
        posts = [pool.submit(completion, server, "z" * length) for _ in range(3)]
        posts += [pool.submit(httpx.post, f"{server.url}/v1/chat/completions", json=chat, timeout=30) for _ in range(3)]
        until(lambda: tokenizer.at_once == most)
        assert httpx.get(f"{server.url}/health").status_code == 200
        stream = server.client().completions.create(model=MODEL, prompt="a", max_tokens=40, stream=True, temperature=0)
        assert len(list(stream)) > 5
        assert completion(server, "the " * 12).status_code == 200
        assert tokenizer.at_once == most
        tokenizer.leave.set()
        assert {post.result(30).status_code for post in posts} == {200}
    assert tokenizer.most == most


@pytest.mark.parametrize("kind", ["text", "texts", "chat", "bad words"])
def test_b5_what_is_too_long_for_sure_is_not_encoded(rig: Rig, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def encode(self: Tokenizer, text: str, add_special_tokens: bool = True) -> list[int]:
        raise AssertionError("it was encoded")

    chat = {"messages": [{"role": "user", "content": LONG}]}
    body = {"text": {"prompt": LONG}, "texts": {"prompt": [LONG] * 2}, "chat": chat}.get(
        kind, {"prompt": [1], "bad_words": [LONG]}
    )
    with serving(engine_of(rig), rig) as server:
        monkeypatch.setattr(Tokenizer, "encode", encode)
        path = "chat/completions" if kind == "chat" else "completions"
        answer = httpx.post(f"{server.url}/v1/{path}", json=body, timeout=30)
    error = answer.json()["error"]
    assert answer.status_code == 400
    assert (kind == "bad words") == (error["code"] is None)
    assert error["param"] == {"chat": "messages", "bad words": "bad_words"}.get(kind, "prompt")
    assert error["code"] in (None, "context_length_exceeded")
    assert "at least" in error["message"]


def test_b5_the_longest_prompt_that_fits_is_taken(rig: Rig) -> None:
    """127 tokens of the longest piece, five bytes."""
    text = " the" * 127
    assert len(TOKENIZER.encode(text)) == 127
    with serving(engine_of(rig), rig) as server:
        assert completion(server, text).status_code == 200
        assert completion(server, text + " the").status_code == 400


def test_b5_encoding_lets_go_of_the_interpreter() -> None:
    """Steps of another thread while one text is encoded; with the lock held there are none but at both ends."""
    backend = tokenizers.Tokenizer(models.BPE({chr(0x61 + n): n for n in range(26)}, []))
    backend.pre_tokenizer = pre_tokenizers.Split(" ", "isolated")
    tokenizer = Tokenizer(backend, TokenizerInfo(None, None, None, add_bos=False, eos_token_ids=()))
    begun, done, steps = threading.Event(), threading.Event(), 0

    def count() -> None:
        nonlocal steps
        begun.set()
        while not done.wait(0.001):
            steps += 1

    thread = threading.Thread(target=count)
    thread.start()
    assert begun.wait(10)
    before = steps
    ids = tokenizer.encode("quick brown foxes " * 60_000)
    counted = steps - before
    done.set()
    thread.join()
    assert len(ids) == 900_000
    assert counted > 20


def test_b5_the_vocabulary_is_looked_at_before_the_first_request(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the loop it would keep everybody waiting: for seconds, with a large vocabulary."""
    tokenizer = toy_tokenizer()
    describe(rig.manifest, tokenizer)

    def late(backend: tokenizers.Tokenizer) -> Any:
        raise AssertionError("the bound was made by a request")

    monkeypatch.setattr("runtime.text.tokenizer.TokenBound", late)
    assert tokenizer.least_tokens("the " * 100) > 0


def test_b5_no_more_long_bodies_wait_than_requests_may(
    rig: Rig, tokenizer: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor do those of clients that left, which are never encoded."""
    made: list[app.Lanes] = []

    class Seen(app.Lanes):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            made.append(self)

    monkeypatch.setattr(app, "Lanes", Seen)
    with serving(engine_of(rig), rig, tokenizer=tokenizer, max_queue=1) as server, ThreadPoolExecutor(2) as pool:
        first = pool.submit(completion, server, "z" * 2000)
        until(lambda: tokenizer.at_once == 1)
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{server.url}/v1/completions", json={"prompt": "z" * 2000}, timeout=0.5)
        until(lambda: made[0]._waiting == 0)
        waits = pool.submit(completion, server, "z" * 2001)
        until(lambda: made[0]._waiting == 1)
        refused = completion(server, "z" * 2002)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "queue_full")
        tokenizer.leave.set()
        assert [first.result(30).status_code, waits.result(30).status_code] == [200, 200]
    assert tokenizer.encoded == 2
