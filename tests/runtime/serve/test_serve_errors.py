"""What a client is told when something is wrong with its request: status, OpenAI's error object, one sentence."""

from __future__ import annotations

import json
import socket
from typing import Any

import httpx
import openai
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtime.serve.chat import read_chat
from runtime.serve.completions import read_completion
from runtime.serve.errors import ApiError
from runtime.serve.fields import parse_body
from tests.runtime.loop.rig import Rig
from tests.runtime.serve.conftest import MODEL, Running, engine_of, serving


def error_of(answer: httpx.Response) -> dict[str, Any]:
    """The error object of an answer, which has OpenAI's four keys and tells nothing of our code."""
    assert answer.headers["content-type"] == "application/json"
    error: dict[str, Any] = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert "Traceback" not in error["message"]
    assert ".py" not in error["message"]
    return error


@pytest.fixture(scope="module")
def shared() -> Any:
    """One server for requests that leave nothing behind."""
    from tests.runtime.loop.rig import make_rig
    from tests.runtime.serve.conftest import SHAPE

    rig = make_rig(SHAPE)
    with serving(engine_of(rig), rig, names=("toy", "other/name"), max_body=20_000) as running:
        yield running


def post(server: Running, body: Any, path: str = "/v1/completions", **options: Any) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return httpx.post(f"{server.url}{path}", content=content, **options)


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        (b"", None, "not JSON"),
        (b"{", None, "not JSON"),
        (b"\xff\xfe", None, "not JSON"),
        (b"[1]", None, "found a list"),
        (b"[" * 5000, None, "not JSON"),
        ({}, "prompt", "missing"),
        ({"prompt": None}, "prompt", "missing"),
        ({"prompt": []}, "prompt", "list of token ids"),
        ({"prompt": {}}, "prompt", "list of token ids"),
        ({"prompt": ["a", 1]}, "prompt", "list of token ids"),
        ({"prompt": [[1], [2.5]]}, "prompt", "list of token ids"),
        ({"prompt": [1, True]}, "prompt", "list of token ids"),
        ({"prompt": [[]]}, "prompt", "empty"),
        ({"prompt": ""}, "prompt", "empty"),
        ({"prompt": [64]}, "prompt", "0 to 63"),
        ({"prompt": [1] * 128}, "prompt", "127 tokens"),
        ({"prompt": "\ud800"}, "prompt", "Unicode"),
        ({"prompt": [1], "max_tokens": 0}, "max_tokens", "at least 1"),
        ({"prompt": [1], "max_tokens": 1.5}, "max_tokens", "whole number"),
        ({"prompt": [1], "max_tokens": True}, "max_tokens", "whole number"),
        ({"prompt": [1], "temperature": "hot"}, "temperature", "a number"),
        ({"prompt": [1], "temperature": float("nan")}, "temperature", "at least 0"),
        ({"prompt": [1], "top_p": 0}, "top_p", "above 0"),
        ({"prompt": [1], "top_k": -2}, "top_k", "-1, 0"),
        ({"prompt": [1], "min_p": 2}, "min_p", "0 to 1"),
        ({"prompt": [1], "seed": "x"}, "seed", "whole number"),
        ({"prompt": [1], "stop": 3}, "stop", "text"),
        ({"prompt": [1], "stop": ["a"] * 257}, "stop", "at most 256"),
        ({"prompt": [1], "stop": "a" * 16385}, "stop", "16384 characters"),
        ({"prompt": [1], "stop": ["b", "a" * 16384]}, "stop", "16384 characters"),
        ({"prompt": [1], "bad_words": ["a"] * 2049}, "bad_words", "at most 2048"),
        ({"prompt": [1], "bad_words": [" "]}, "bad_words", "words"),
        ({"prompt": [1], "logit_bias": {"a": 1}}, "logit_bias", "token ids"),
        ({"prompt": [1], "logit_bias": {"1": 101}}, "logit_bias", "100"),
        ({"prompt": [1], "logprobs": 21}, "logprobs", "0 to 20"),
        ({"prompt": [1], "logprobs": True}, "logprobs", "whole number"),
        ({"prompt": [1], "stream": "yes"}, "stream", "true or false"),
        ({"prompt": [1], "stream_options": {"include_usage": True}}, "stream_options", "stream"),
        ({"prompt": [1], "stream": True, "stream_options": 3}, "stream_options", "object"),
        ({"prompt": [1], "echo": True}, "echo", "not supported"),
        ({"prompt": [1], "suffix": "x"}, "suffix", "not supported"),
        ({"prompt": [1], "best_of": 2}, "best_of", "best_of"),
        ({"prompt": [1], "n": 2}, "n", "more than one answer"),
        ({"prompt": [1], "prompt_logprobs": 1}, "prompt_logprobs", "prompt_logprobs"),
        ({"prompt": [1], "model": 3}, "model", "a string"),
    ],
)
def test_a_bad_request_is_400_and_names_the_parameter(shared: Running, body: Any, param: Any, words: str) -> None:
    answer = post(shared, body)
    error = error_of(answer)
    assert (answer.status_code, error["type"], error["param"]) == (400, "invalid_request_error", param)
    assert words in error["message"]


@pytest.mark.parametrize("key", ["prompt", "messages", "stop", "max_tokens", "logit_bias", "tools", "nobody_knows"])
def test_json_at_the_limit_of_nesting_meets_no_defect(shared: Running, key: str) -> None:
    """What can just be read could not be written into the error's sentence."""
    read = 0
    for depth in range(850, 1000):
        body = b'{"max_tokens": 1, "%s": %s1%s}' % (key.encode(), b"[" * depth, b"]" * depth)
        for reader in (read_completion, read_chat):
            with pytest.raises(ApiError) as caught:
                reader(parse_body(body), shared.served)
            assert caught.value.status == 400
            read += "not JSON" not in caught.value.message
    # Both sides of the limit were met
    assert 0 < read < 300


def test_a_wrong_value_is_not_sent_back_whole(shared: Running) -> None:
    for name, value in (
        ("top_k", -(10**4000)),
        ("logit_bias", {str(i): 101 for i in range(1000)}),
        ("stop", [0] * 999),
    ):
        answer = post(shared, {"prompt": [1], name: value})
        assert answer.status_code == 400
        assert error_of(answer)["param"] == name
        assert len(answer.content) < 500


def test_a_prompt_that_is_too_long_has_openais_code(shared: Running) -> None:
    assert error_of(post(shared, {"prompt": [1] * 200}))["code"] == "context_length_exceeded"


@given(
    body=st.dictionaries(
        st.sampled_from(
            ["prompt", "messages", "stream", "stop", "logit_bias", "temperature", "n", "model", "logprobs"]
        ),
        st.recursive(
            st.none() | st.booleans() | st.integers(-3, 70) | st.floats(allow_nan=False) | st.text(max_size=3),
            lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
            max_leaves=4,
        ),
    )
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_body_meets_a_defect(shared: Running, body: dict[str, Any]) -> None:
    for path in ("/v1/completions", "/v1/chat/completions"):
        answer = post(shared, {**body, "max_tokens": 1}, path)
        assert answer.status_code in (200, 400, 404), answer.text
        if answer.status_code != 200:
            error_of(answer)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/completions", 405),
        ("POST", "/v1/models", 405),
        ("GET", "/", 404),
        ("GET", "/v1/nothing", 404),
        ("POST", "/v1/embeddings", 404),
        ("GET", "/v1/models/nobody", 404),
        ("POST", "/v1/completions/", 404),
        ("GET", "/health/", 404),
    ],
)
def test_paths_and_methods_that_are_not_there(shared: Running, method: str, path: str, status: int) -> None:
    answer = httpx.request(method, f"{shared.url}{path}")
    assert answer.status_code == status
    assert error_of(answer)["code"] is not None


def test_an_unknown_model_is_404(shared: Running) -> None:
    with pytest.raises(openai.NotFoundError) as error:
        shared.client().completions.create(model="gpt-4", prompt="hello")
    assert (error.value.code, error.value.param) == ("model_not_found", "model")
    assert "'toy'" in error.value.message


def test_models_are_listed_under_every_name_and_answer_to_it(shared: Running) -> None:
    client = shared.client()
    assert [model.id for model in client.models.list()] == ["toy", "other/name"]
    assert client.models.retrieve("other/name").id == "other/name"
    answer = client.completions.create(model="other/name", prompt="hello", max_tokens=1)
    assert answer.model == "toy"
    assert post(shared, {"prompt": "hello", "max_tokens": 1}).json()["model"] == "toy"


def test_a_large_body_is_413_whether_it_says_so_or_not(shared: Running) -> None:
    large = json.dumps({"prompt": "a" * 30_000}).encode()
    assert post(shared, large).status_code == 413
    error = error_of(httpx.post(f"{shared.url}/v1/completions", content=iter([large[:15_000], large[15_000:]])))
    assert error["code"] == "request_too_large"
    assert post(shared, {"prompt": "hello", "max_tokens": 1}).status_code == 200


def test_a_long_body_is_read_beside_the_loop(shared: Running) -> None:
    body = {"prompt": "hello", "max_tokens": 1, "user": "u" * 18_000}
    assert post(shared, body).status_code == 200
    assert post(shared, {**body, "top_p": 7}).status_code == 400


def test_health_and_version(shared: Running) -> None:
    assert httpx.get(f"{shared.url}/health").json() == {"status": "ok"}
    assert set(httpx.get(f"{shared.url}/version").json()) == {"version", "bundle"}


def test_api_keys_guard_v1_and_nothing_else(rig: Rig) -> None:
    with serving(engine_of(rig), rig, api_keys=("first", "second")) as server:
        for key in ("first", "second"):
            assert server.client(api_key=key).completions.create(model=MODEL, prompt="a", max_tokens=1).choices
        for key in ("third", "firs", "first2", "first second"):
            with pytest.raises(openai.AuthenticationError) as error:
                server.client(api_key=key).models.list()
            assert (error.value.code, error.value.status_code) == ("invalid_api_key", 401)
        without = httpx.get(f"{server.url}/v1/models")
        assert (without.status_code, without.headers["www-authenticate"]) == (401, "Bearer")
        assert httpx.get(f"{server.url}/v1/models", headers={"Authorization": "first"}).status_code == 401
        assert httpx.get(f"{server.url}//v1/models").status_code in (401, 404)
        for path in ("/health", "/metrics", "/version"):
            assert httpx.get(f"{server.url}{path}").status_code == 200


def test_what_is_no_http_ends_its_connection_alone(shared: Running) -> None:
    host, _, port = shared.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(b"\x16\x03\x01 nonsense\r\n\r\n")
        assert b"400" in connection.recv(1000)
    assert httpx.get(f"{shared.url}/health").status_code == 200


def test_headers_without_end_are_cut_off(shared: Running) -> None:
    """A client that sends header after header would else fill the memory; large bodies sent in a row are none."""
    host, _, port = shared.url.removeprefix("http://").partition(":")
    answer = b""
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nX-Long: ")
        try:
            for _ in range(1000):
                connection.sendall(b"a" * 20_000)
            answer = connection.recv(1000)
        except (BrokenPipeError, ConnectionResetError):
            answer = b" 400 "
    assert b" 400 " in answer
    body = json.dumps({"prompt": [1], "max_tokens": 1, "user": "u" * 19_000}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n" % len(body)
    several = (head + b"\r\n" + body) * 9 + head + b"Connection: close\r\n\r\n" + body
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(several)
        parts = list(iter(lambda: connection.recv(65536), b""))
    assert b"".join(parts).count(b"HTTP/1.1 200 OK") == 10
