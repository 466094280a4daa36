"""Many requests at once: none is lost, and each greedy answer is the one that it gets alone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bench.http_stream import LostError
from bench.load import Kind, load
from bench.server_overhead import server as served
from runtime.bundle.errors import UsageError
from tests.runtime.loop.rig import Rig
from tests.runtime.serve.conftest import TOKENIZER, Scripted, engine_of, serving

PROMPTS = ("hello", "are you there?", "the cat", "an 😀 é", "1234")


def test_500_requests_at_concurrency_16(rig: Rig) -> None:
    kinds = [Kind(prompt, length) for length in (1, 3, 5) for prompt in PROMPTS]
    engine = engine_of(rig)
    with serving(engine, rig) as server:
        everything = engine.blocks.num_free
        result = asyncio.run(load(server.url, kinds, 500, 16))
        assert (result.lost, result.wrong) == ([], [])
        assert result.tokens == sum(kinds[number % len(kinds)].max_tokens for number in range(500))
        # Batched: far fewer passes than tokens
        assert engine.steps < 15 * 5 + 500 + result.tokens / 2
        assert (engine.blocks.num_free, server.driver.unfinished) == (everything, 0)
    assert len(result.first) >= 200


def test_the_load_script_sees_what_is_lost_and_what_is_wrong(rig: Rig) -> None:
    """The script can fail: answers that change are found, and so are requests that are refused."""

    class Changing(Scripted):
        def add_request(self, request: object) -> None:
            self._ids = [*self._ids[1:], self._ids[0]]
            super().add_request(request)

    class Refusing(Scripted):
        taken = 0

        def add_request(self, request: object) -> None:
            self.taken += 1
            # One alone, then three of six
            if self.taken > 4:
                raise UsageError("There is room for no more requests")
            super().add_request(request)

    kinds = [Kind("hello", 4)]
    with serving(Changing(TOKENIZER.encode("abcd")), rig) as server:
        assert len(asyncio.run(load(server.url, kinds, 6, 2)).wrong) >= 4
    with serving(Scripted(TOKENIZER.encode("abcd")), rig) as server:
        result = asyncio.run(load(server.url, kinds, 6, 2))
        assert (result.lost, result.wrong) == ([], [])
    with serving(Refusing(TOKENIZER.encode("abcd")), rig) as server:
        lost = asyncio.run(load(server.url, kinds, 6, 2)).lost
    assert len(lost) == 3
    assert all("400" in sentence and "no more" in sentence for sentence in lost)
    with (
        serving(Scripted(TOKENIZER.encode("abcd")), rig, api_keys=("k",)) as server,
        pytest.raises(LostError, match="401"),
    ):
        asyncio.run(load(server.url, kinds, 6, 2))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_real_bundle_under_load(smollm2_bundle: Path) -> None:
    kinds = [Kind(prompt, length) for length in (8, 24) for prompt in ("The capital of France is", "def f(n):", "One")]
    with served(smollm2_bundle) as (url, _):
        result = asyncio.run(load(url, kinds, 60, 16))
    assert (result.lost, result.wrong) == ([], [])
    assert result.tokens > 60
