"""N1, N2: a request that ends with an error gets OpenAI's error object; the server and all others go on."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tokenizers import decoders

from runtime.engine import Engine, _watches
from runtime.fused import draft_proposer
from runtime.text.stop import StopStrings
from tests.runtime.loop.poison import BAD, poisoned, without
from tests.runtime.loop.rig import Rig, make_rig
from tests.runtime.serve.conftest import (
    EOS,
    SHAPE,
    Running,
    Slow,
    engine_of,
    parse_events,
    serving,
    toy_tokenizer,
    until,
)
from tests.runtime.serve.test_serve_metrics import scrape

GOOD, DAMAGED = without(BAD, 6, 1), (*without(BAD, 5, 2), BAD, 3)


@pytest.fixture(scope="module")
def damaged() -> Rig:
    return poisoned(SHAPE)


@pytest.fixture
def shared(damaged: Rig) -> Iterator[Running]:
    with serving(Slow(engine_of(damaged)), damaged) as running:
        yield running


def ask(server: Running, prompt: Any, **body: Any) -> httpx.Response:
    asked = {"prompt": prompt, "max_tokens": 8, "temperature": 0, **body}
    return httpx.post(f"{server.url}/v1/completions", json=asked, timeout=30)


def text_of(server: Running) -> list[int]:
    answer = ask(server, list(GOOD), return_token_ids=True)
    assert answer.status_code == 200
    ids: list[int] = answer.json()["choices"][0]["token_ids"]
    return ids


def test_n1_an_error_object_for_the_request_alone(shared: Running) -> None:
    expected = make_rig(SHAPE).plain(GOOD, 8)
    assert text_of(shared) == expected
    answer = ask(shared, list(DAMAGED))
    assert (answer.status_code, answer.headers["x-should-retry"]) == (500, "false")
    error = answer.json()["error"]
    assert (error["type"], error["code"], error["param"]) == ("server_error", "logits_not_finite", None)
    assert "finite" in error["message"]
    assert text_of(shared) == expected
    assert httpx.get(f"{shared.url}/health").status_code == 200
    samples = scrape(shared)
    ended = {
        reason: samples[f"vllm:request_success_total{{finished_reason={reason}}}"] for reason in ("error", "length")
    }
    assert ended == {"error": 1, "length": 2}
    until(lambda: not shared.engine.has_unfinished() and shared.driver.unfinished == 0)
    assert shared.engine.blocks.num_free == shared.engine.blocks.num_blocks - 1


def test_n1_a_stream_has_an_error_event_and_then_ends(shared: Running) -> None:
    answer = ask(shared, list(DAMAGED), stream=True)
    assert answer.status_code == 200
    *_, last = parse_events(answer.text)
    assert last["error"]["code"] == "logits_not_finite"
    assert "[DONE]" not in answer.text


def test_n1_a_stream_gives_what_came_before_the_error() -> None:
    """The damaged token is one that the target chooses: its text is sent, the row behind it gives none."""
    sound = make_rig(SHAPE)
    text = sound.plain(GOOD, 8)
    at = next(place for place in range(2, 8) if text[place] not in (*text[:place], *GOOD))
    rig = poisoned(SHAPE, text[at])
    with serving(engine_of(rig), rig) as server:
        answer = ask(server, list(GOOD), stream=True, return_token_ids=True)
        *chunks, last = parse_events(answer.text)
        assert last["error"]["code"] == "logits_not_finite"
        ids = [token for chunk in chunks for choice in chunk["choices"] for token in choice["token_ids"]]
        assert ids == text[: at + 1]
        assert all(choice["finish_reason"] is None for chunk in chunks for choice in chunk["choices"])
        assert ask(server, list(GOOD)).json()["error"]["code"] == "logits_not_finite"


def test_n1_a_batch_on_the_server(shared: Running) -> None:
    expected = make_rig(SHAPE).plain(GOOD, 8)
    slow = shared.engine
    slow.hold()
    import concurrent.futures

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        bad = pool.submit(ask, shared, list(DAMAGED))
        good = [pool.submit(text_of, shared) for _ in range(3)]
        until(lambda: shared.driver.unfinished == 4)
        slow.release()
        assert bad.result().status_code == 500
        assert [each.result() for each in good] == [expected] * 3


@pytest.mark.parametrize("stream", [False, True])
def test_n2_stop_strings_that_fail_are_one_request_s(
    stream: bool, rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    push = StopStrings.push

    def broken(self: StopStrings, ids: Any) -> Any:
        if any(pattern.text == "zz" for pattern in self._patterns):
            raise UnicodeError("no text of this")
        return push(self, ids)

    monkeypatch.setattr(StopStrings, "push", broken)
    with serving(engine_of(rig), rig) as server, caplog.at_level(logging.ERROR, "eagle3.serve"):
        answer = ask(server, list(GOOD), stop="zz", stream=stream)
        error = parse_events(answer.text)[-1]["error"] if stream else answer.json()["error"]
        assert (answer.status_code, error["type"]) == (200 if stream else 500, "server_error")
        assert "no text" not in json.dumps(error)
        assert ask(server, list(GOOD), stop="yy").status_code == 200
        assert httpx.get(f"{server.url}/health").status_code == 200
    assert any("no text of this" in record.getMessage() for record in caplog.records)


def test_n2_a_request_that_cannot_be_taken_is_refused_alone(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    init = StopStrings.__init__

    def broken(self: StopStrings, tokenizer: Any, stop: tuple[str, ...] = (), *rest: Any, **options: Any) -> None:
        if "zz" in stop:
            raise MemoryError
        init(self, tokenizer, stop, *rest, **options)

    with serving(engine_of(rig), rig) as server:
        monkeypatch.setattr(StopStrings, "__init__", broken)
        assert ask(server, list(GOOD), stop="zz").status_code == 500
        assert ask(server, list(GOOD), stop="yy").status_code == 200


def test_n2_a_tokenizer_that_panics_fails_one_request(rig: Rig) -> None:
    """Where an answer begins with a special token there is no text yet, and this decoder takes its last character."""
    tokenizer = toy_tokenizer()
    tokenizer._backend.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 0, 1)])
    graphs = rig.graphs()
    engine = Engine(graphs, draft_proposer(graphs), watches=_watches(tokenizer))
    first = {"ignore_eos": True, "logit_bias": {str(EOS): 100}}
    with serving(engine, rig, tokenizer=tokenizer) as server:
        assert ask(server, list(GOOD), stop="zz", **first).status_code == 500
        assert ask(server, list(GOOD)).status_code == 200
        assert httpx.get(f"{server.url}/health").status_code == 200


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_n2_whatever_ends_the_engine_s_thread_is_told(rig: Rig) -> None:
    class Ending(Slow):
        def step(self) -> Any:
            raise SystemExit("not an Exception")

    with serving(Ending(engine_of(rig)), rig) as server:
        assert ask(server, list(GOOD)).status_code == 500
        assert httpx.get(f"{server.url}/health").status_code == 503
