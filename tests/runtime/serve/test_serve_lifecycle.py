"""A request's life beside its answer: waiting, leaving early, running out of time, and the end of engine or server."""

from __future__ import annotations

import json
import logging
import socket
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest

from tests.runtime.loop.rig import Rig
from tests.runtime.serve.conftest import MODEL, Running, Slow, engine_of, parse_events, serving, until


def ask(server: Running, **options: Any) -> Any:
    settings: dict[str, Any] = {"model": MODEL, "prompt": "hello", "max_tokens": 4, "temperature": 0}
    return server.client().completions.create(**(settings | options))


@pytest.fixture
def pool() -> Any:
    with ThreadPoolExecutor(16) as threads:
        yield threads


def free_blocks(server: Running) -> int:
    return int(server.engine.blocks.num_free)


def test_requests_beyond_the_queue_get_503_and_the_others_their_answers(rig: Rig, pool: Any) -> None:
    slow = Slow(engine_of(rig))
    with serving(slow, rig, max_queue=2) as server:
        slow.hold()
        waiting = [pool.submit(ask, server) for _ in range(6)]
        until(lambda: server.driver.unfinished == 6)
        answer = httpx.post(f"{server.url}/v1/completions", json={"prompt": "hello"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "queue_full")
        assert int(answer.headers["retry-after"]) > 0
        slow.release()
        assert {future.result(30).choices[0].text for future in waiting} == {ask(server).choices[0].text}


def test_a_list_of_prompts_is_queued_whole_or_not_at_all(rig: Rig, pool: Any) -> None:
    slow = Slow(engine_of(rig))
    with serving(slow, rig, max_queue=1) as server:
        assert len(ask(server, prompt=["a"] * 5).choices) == 5
        slow.hold()
        first = pool.submit(ask, server)
        until(lambda: server.driver.unfinished == 1)
        with pytest.raises(openai.InternalServerError) as error:
            ask(server, prompt=["a"] * 5)
        assert error.value.status_code == 503
        assert server.driver.unfinished == 1
        slow.release()
        first.result(30)


def test_more_prompts_than_the_server_ever_takes_are_a_mistake_of_the_client(rig: Rig) -> None:
    """503 would have it try again, and again."""
    with serving(engine_of(rig), rig, max_queue=0) as server:
        with pytest.raises(openai.BadRequestError, match="expected at most 4 prompts at once") as error:
            ask(server, prompt=["a"] * 5)
        assert error.value.param == "prompt"
        assert server.driver.unfinished == 0


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_frees_its_blocks(server: Running, stream: bool, waits: bool) -> None:
    """Both while a request runs and while it waits for others."""
    everything = free_blocks(server)
    host, _, port = server.url.removeprefix("http://").partition(":")
    prompt = ["a", "b", "c", "d", "e"] if waits else "hello"
    body = json.dumps({"prompt": prompt, "max_tokens": 5000, "temperature": 0, "stream": stream})
    request = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    server.engine.hold()
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(request.encode())
        until(lambda: server.driver.unfinished == (5 if waits else 1))
    until(lambda: server.driver.unfinished == 0)
    server.engine.release()
    until(lambda: not server.engine.has_unfinished() and free_blocks(server) == everything)
    assert ask(server).choices[0].finish_reason == "length"


def test_a_stream_that_is_closed_midway_aborts_its_request(server: Running) -> None:
    everything = free_blocks(server)
    stream = ask(server, max_tokens=5000, stream=True)
    assert next(iter(stream)).choices
    server.engine.hold()
    stream.close()
    until(lambda: server.driver.unfinished == 0)
    server.engine.release()
    until(lambda: free_blocks(server) == everything)


def test_other_requests_go_on_when_one_is_aborted(server: Running, pool: Any) -> None:
    alone = ask(server, max_tokens=60).choices[0].text
    server.engine.hold()
    stream = pool.submit(lambda: list(ask(server, max_tokens=60, stream=True)))
    until(lambda: server.driver.unfinished == 1)
    host, _, port = server.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as connection:
        body = '{"prompt": "bye", "max_tokens": 90}'
        connection.sendall(
            f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        until(lambda: server.driver.unfinished == 2)
    until(lambda: server.driver.unfinished == 1)
    server.engine.release()
    assert "".join(chunk.choices[0].text for chunk in stream.result(30)) == alone


def test_a_request_that_takes_too_long_is_ended_with_504(rig: Rig) -> None:
    slow = Slow(engine_of(rig))
    with serving(slow, rig, request_timeout=0.3) as server:
        slow.hold()
        answer = httpx.post(f"{server.url}/v1/completions", json={"prompt": "hello"}, timeout=20)
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "request_timeout")
        assert answer.headers["x-should-retry"] == "false"
        slow.release()
        until(lambda: not server.engine.has_unfinished())


def test_a_stream_that_runs_out_of_time_ends_with_an_error_event(rig: Rig) -> None:
    slow = Slow(engine_of(rig))
    with serving(slow, rig, request_timeout=3.0) as server:
        with httpx.stream(
            "POST",
            f"{server.url}/v1/completions",
            json={"prompt": "hello", "stream": True, "max_tokens": 5000, "temperature": 0},
            timeout=20,
        ) as answer:
            assert answer.status_code == 200
            parts = answer.iter_text()
            first = next(parts)
            slow.hold()
            events = parse_events(first + "".join(parts))
        slow.release()
        assert events[-1]["error"]["code"] == "request_timeout"
        assert "[DONE]" not in events


class Breaking:
    """An engine that fails in the step after `broken` was set."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.broken = threading.Event()

    def step(self) -> Any:
        if self.broken.is_set():
            raise RuntimeError("the pool\nhas sprung a leak")
        return self._engine.step()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def test_an_engine_that_fails_fails_all_requests_and_says_why_in_the_log(
    rig: Rig, pool: Any, caplog: pytest.LogCaptureFixture
) -> None:
    breaking = Breaking(engine_of(rig))
    slow = Slow(breaking)
    with caplog.at_level(logging.ERROR, "eagle3.serve"), serving(slow, rig) as server:
        assert ask(server).choices
        slow.hold()
        url = f"{server.url}/v1/completions"
        posts: list[Future[httpx.Response]] = [
            pool.submit(httpx.post, url, json={"prompt": "a", "stream": stream}, timeout=20)
            for stream in (False, False, True)
        ]
        until(lambda: server.driver.unfinished == 3)
        breaking.broken.set()
        slow.release()
        answers = [post.result(20) for post in posts]
        assert [answer.status_code for answer in answers[:2]] == [500, 500]
        # The stream may have begun
        assert answers[2].status_code == 500 or parse_events(answers[2].text)[-1]["error"]["type"] == "server_error"
        assert not any("leak" in answer.text or "Traceback" in answer.text for answer in answers)
        until(lambda: server.driver.failed)
        health = httpx.get(f"{server.url}/health")
        assert (health.status_code, health.json()) == (503, {"status": "engine failed"})
        later = httpx.post(url, json={"prompt": "a"})
        assert (later.status_code, later.json()["error"]["code"]) == (503, "engine_failed")
        assert httpx.get(f"{server.url}/metrics").status_code == 200
    lines = [record.getMessage() for record in caplog.records]
    assert lines == ["The engine failed, and every request with it: RuntimeError: the pool has sprung a leak."]


def test_a_shutdown_finishes_what_runs_and_takes_nothing_new(rig: Rig, pool: Any) -> None:
    slow = Slow(engine_of(rig))
    with serving(slow, rig, shutdown_timeout=30) as server:
        alone = ask(server, max_tokens=30).choices[0].text
        kept = httpx.Client()
        assert kept.get(f"{server.url}/health").status_code == 200
        slow.hold()
        whole = pool.submit(ask, server, max_tokens=30)
        stream = pool.submit(lambda: list(ask(server, max_tokens=30, stream=True)))
        until(lambda: server.driver.unfinished == 2)
        server.stop()
        until(lambda: server.driver.stopping)

        def refused() -> bool:
            try:
                return httpx.post(f"{server.url}/v1/completions", json={"prompt": "a"}).status_code == 503
            except httpx.TransportError:
                return True

        until(refused)
        slow.release()
        assert whole.result(30).choices[0].text == alone
        assert "".join(chunk.choices[0].text for chunk in stream.result(30)) == alone
        server.thread.join(20)
        assert not server.thread.is_alive()
        kept.close()


def test_a_shutdown_ends_what_does_not_end_in_time(rig: Rig, pool: Any) -> None:
    slow = Slow(engine_of(rig))
    with serving(slow, rig, shutdown_timeout=0.2) as server:
        slow.hold()
        post = pool.submit(httpx.post, f"{server.url}/v1/completions", json={"prompt": "a"}, timeout=30)
        until(lambda: server.driver.unfinished == 1)
        server.stop()
        answer = post.result(30)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "shutting_down")
        slow.release()
        server.thread.join(20)
        assert not server.thread.is_alive()


def test_an_idle_server_takes_no_steps(server: Running) -> None:
    ask(server)
    until(lambda: not server.engine.has_unfinished())
    steps = server.engine.steps
    assert not threading.Event().wait(0.2)
    assert server.engine.steps == steps
