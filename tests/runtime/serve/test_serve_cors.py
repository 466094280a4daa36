"""S2: web pages of the origins that were named may use the server from a browser, and no others."""

from __future__ import annotations

import httpx
import pytest
from click.testing import CliRunner

from runtime.bundle.errors import UsageError
from runtime.serve.command import serve
from runtime.serve.cors import Cors, read_list
from tests.runtime.loop.rig import Rig
from tests.runtime.serve.conftest import engine_of, serving

PAGE = "https://page.example"
ASKS = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}


def preflight(url: str, origin: str = PAGE) -> httpx.Response:
    return httpx.options(f"{url}/v1/chat/completions", headers={"Origin": origin, **ASKS})


@pytest.mark.parametrize("allowed", ["*", PAGE])
def test_s2_a_preflight_is_answered_and_needs_no_key(rig: Rig, allowed: str) -> None:
    with serving(engine_of(rig), rig, api_keys=("key",), cors=Cors((allowed,))) as server:
        answer = preflight(server.url)
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == allowed
        assert "POST" in answer.headers["access-control-allow-methods"]
        assert answer.headers["access-control-allow-headers"] == "authorization,content-type"
        headers = {"Origin": PAGE, "Authorization": "Bearer key"}
        body = {"prompt": "a", "max_tokens": 3, "stream": True}
        real = httpx.post(f"{server.url}/v1/completions", json=body, headers=headers)
        assert (real.status_code, real.headers["access-control-allow-origin"]) == (200, allowed)
        assert real.text.endswith("data: [DONE]\n\n")
        # Errors too, or the page cannot tell why
        wrong = httpx.post(f"{server.url}/v1/completions", json=body, headers={"Origin": PAGE})
        assert (wrong.status_code, wrong.headers["access-control-allow-origin"]) == (401, allowed)


def test_s2_other_origins_and_methods_are_not_allowed(rig: Rig) -> None:
    with serving(engine_of(rig), rig, cors=Cors((PAGE,), methods=("GET",), headers=("x-one",))) as server:
        assert preflight(server.url).status_code == 400
        assert preflight(server.url, "https://other.example").status_code == 400
        other = httpx.get(f"{server.url}/health", headers={"Origin": "https://other.example"})
        assert "access-control-allow-origin" not in other.headers


def test_s2_without_an_origin_there_is_no_cors(rig: Rig) -> None:
    with serving(engine_of(rig), rig) as server:
        assert preflight(server.url).status_code == 405
        answer = httpx.get(f"{server.url}/health", headers={"Origin": PAGE})
        assert not any(name.startswith("access-control") for name in answer.headers)


def test_s2_credentials_name_the_origin(rig: Rig) -> None:
    with serving(engine_of(rig), rig, cors=Cors(("*",), credentials=True)) as server:
        answer = preflight(server.url)
        assert answer.headers["access-control-allow-credentials"] == "true"
        assert answer.headers["access-control-allow-origin"] == PAGE


def test_s2_lists_are_given_as_vllm_takes_them_or_one_by_one() -> None:
    assert read_list("--allowed-origins", ('["*"]',)) == ("*",)
    assert read_list("--allowed-origins", (PAGE, "http://localhost:3000")) == (PAGE, "http://localhost:3000")
    for bad in ("[1]", "[", "", "a b", "é", "[[]]", "a\r\nb"):
        with pytest.raises(UsageError) as error:
            read_list("--allowed-origins", (bad,))
        assert "--allowed-origins" in error.value.sentence()


def test_s2_options_without_an_origin_are_refused() -> None:
    result = CliRunner().invoke(serve, ["--bundle", "none", "--allow-credentials"])
    assert isinstance(result.exception, UsageError)
    assert "--allowed-origins" in result.exception.sentence()
