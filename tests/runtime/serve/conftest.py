"""The server as its clients meet it: the toy rig's engine behind a real socket, its loop in a thread of its own."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import openai
import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from runtime.blocks import BlockManager
from runtime.engine import Engine
from runtime.fused import draft_proposer
from runtime.graphs import GraphSet
from runtime.proposer import Proposer
from runtime.request import Request, RequestOutput, SpecDecodeStats, StepOutput, Timing
from runtime.serve.driver import Driver
from runtime.serve.generation import Served
from runtime.serve.server import Address, bind, run, url_of
from runtime.serve.start import assemble, describe
from runtime.text import Tokenizer
from runtime.text.stop import StopStrings
from runtime.text.tokenizer import TokenizerInfo
from tests.runtime.loop.rig import Rig, Shape, make_rig

EOS = 0
TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}"
    "{{ m.role[0] }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}a:{% endif %}"
)


def toy_tokenizer(template: str | None = TEMPLATE) -> Tokenizer:
    """64 byte-level tokens: an end, letters, signs, the bytes of an emoji and of "é", and a few words."""
    letters = [*"abcdefghijklmnopqrstuvwxyz", "Ġ", "Ċ", *".,:!?-", *"0123456789"]
    pieces = ["ð", "Ł", "ĺ", "Ģ", "Ã", "©"]  # F0 9F 98 80 is an emoji, C3 A9 is é
    merges = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("a", "n"), ("an", "d"), ("Ġ", "and"), ("i", "n"), ("in", "g")]
    merges += [("o", "u"), ("e", "r"), ("l", "l"), ("Ġ", "a"), ("Ġ", "s"), ("s", "t"), ("r", "e"), ("Ã", "©")]
    names = ["<eos>", *letters, *pieces, *(a + b for a, b in merges)]
    names = names[:64]
    vocab = {name: index for index, name in enumerate(names)}
    kept = [(a, b) for a, b in merges if a + b in vocab and a in vocab and b in vocab]
    backend = tokenizers.Tokenizer(models.BPE(vocab, kept))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken("<eos>", special=True)])
    info = TokenizerInfo(bos_token=None, eos_token="<eos>", pad_token=None, add_bos=False, eos_token_ids=(EOS,))
    return Tokenizer(backend, info, template)


TOKENIZER = toy_tokenizer()
MODEL = "toy"


@dataclass
class Running:
    """A server that runs, and what a test may want to look at behind it."""

    url: str
    engine: Any
    driver: Driver
    served: Served
    stop: Callable[[], None]
    thread: threading.Thread

    def client(self, **options: Any) -> openai.OpenAI:
        settings: dict[str, Any] = {"api_key": "none", "max_retries": 0, "timeout": 30.0} | options
        return openai.OpenAI(base_url=f"{self.url}/v1", **settings)


@contextmanager
def serving(
    engine: Any,
    rig: Rig,
    *,
    tokenizer: Tokenizer = TOKENIZER,
    names: tuple[str, ...] = (),
    shutdown_timeout: float = 5.0,
    **options: Any,
) -> Iterator[Running]:
    """Serve `engine` on a free port until the block is left."""
    served = describe(rig.manifest, tokenizer, names)
    driver, app = assemble(engine, served, max_running=rig.shape.max_num_seqs, **options)
    bound = bind(Address("127.0.0.1", 0))
    loop_ready, state = threading.Event(), {}

    async def main() -> None:
        state["loop"], stop, ready = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        state["stop"] = stop
        task = asyncio.ensure_future(run(app, driver, bound, shutdown_timeout=shutdown_timeout, stop=stop, ready=ready))
        await asyncio.wait({task, asyncio.ensure_future(ready.wait())}, return_when=asyncio.FIRST_COMPLETED)
        loop_ready.set()
        await task

    url = url_of(bound)
    thread = threading.Thread(target=lambda: asyncio.run(main()), name="server", daemon=True)
    thread.start()
    assert loop_ready.wait(10)

    def stop() -> None:
        if thread.is_alive():
            state["loop"].call_soon_threadsafe(state["stop"].set)

    try:
        yield Running(url, engine, driver, served, stop, thread)
    finally:
        if isinstance(engine, Slow):
            engine.release()
        stop()
        thread.join(20)
        assert not thread.is_alive(), "the server did not end"


def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait for `condition`; fails where it does not come."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.005)


class Slow:
    """An engine whose steps wait for a permit while it is held, so that a test sees a request under way."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._free = threading.Event()
        self._free.set()

    def hold(self) -> None:
        self._free.clear()

    def release(self) -> None:
        self._free.set()

    def step(self) -> Any:
        assert self._free.wait(30)
        return self._engine.step()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


class Scripted:
    """An engine that answers every request with the same ids, one a step."""

    def __init__(self, ids: list[int]) -> None:
        self._ids = ids
        self._left: dict[str, tuple[Request, list[int]]] = {}
        self._outputs: list[RequestOutput] = []
        self.blocks, self.totals, self.num_preemptions = BlockManager(8, 4), SpecDecodeStats(), 0

    @property
    def running(self) -> list[Any]:
        return list(self._left)

    def add_request(self, request: Any) -> None:
        self._left[request.request_id] = (request, list(self._ids))

    def abort(self, request_id: str) -> None:
        self._left.pop(request_id, None)

    def has_unfinished(self) -> bool:
        return bool(self._left)

    def take_finished(self) -> list[Any]:
        outputs, self._outputs = self._outputs, []
        return outputs

    def step(self) -> list[Any]:
        steps = []
        for name, (request, left) in list(self._left.items()):
            token = left.pop(0)
            finish = None if left else "length"
            steps.append(StepOutput(name, (token,), finish))
            if finish:
                del self._left[name]
                ids = tuple(self._ids)
                prompt = request.prompt_token_ids
                self._outputs.append(RequestOutput(name, prompt, ids, finish, Timing(), SpecDecodeStats()))
        return steps


# This seed's answers are varied, and hold halves of characters
SHAPE = Shape(greedy_only=False, max_model_len=128, context_tokens=(64, 128), num_seqs=(1, 4), seed=7)


def engine_of(
    rig: Rig,
    proposer: Callable[[GraphSet], Proposer] = draft_proposer,
    *,
    kv_blocks: int | None = None,
    **options: Any,
) -> Engine:
    """The loop over fresh pools, which knows this server's tokenizer, as `Engine.load` would make it."""
    graphs = rig.graphs(kv_blocks)

    def watch(request: Request) -> StopStrings:
        params = request.sampling
        return StopStrings(
            TOKENIZER, params.stop, skip=params.min_tokens, skip_special_tokens=params.skip_special_tokens
        )

    return Engine(graphs, proposer(graphs), watches=watch, **options)


@pytest.fixture(scope="session")
def rig() -> Rig:
    return make_rig(SHAPE)


@pytest.fixture
def server(rig: Rig) -> Iterator[Running]:
    """A server over a fresh engine of the toy, whose steps a test can hold."""
    with serving(Slow(engine_of(rig)), rig) as running:
        yield running


@pytest.fixture
def client(server: Running) -> openai.OpenAI:
    return server.client()


def parse_events(body: str) -> list[Any]:
    """The JSON objects of a stream of events, [DONE] as a string."""
    lines = [line.removeprefix("data: ") for line in body.split("\n") if line]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]
