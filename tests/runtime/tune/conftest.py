"""The toy pair behind `eagle3-run tune`, and a clock that only compiled passes move."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

from runtime import commands
from runtime.bundle.manifest import Graph
from runtime.cli import main
from runtime.graph import LoadedGraph
from tests.runtime.loop.rig import Rig, Shape, make_rig


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Operations this small lose more to waking a second thread than they win."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Rig]:
    """`toy(shape)`: from now on every bundle that is opened is the toy of that shape, run by eager PyTorch."""

    def install(shape: Shape = Shape()) -> Rig:  # noqa: B008 - frozen
        rig = make_rig(shape)
        monkeypatch.setattr("runtime.graphs.backend_for", lambda bundle, weights, device=None: rig.backend)
        monkeypatch.setattr(commands, "open_bundle", lambda path, device=None: rig.bundle)
        return rig

    return install


Cost = Callable[[Graph], float]


@pytest.fixture
def scripted_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[Cost], None]:
    """`scripted_clock(cost)`: time stands still but for the passes, each of which takes `cost(graph)` seconds."""

    def install(cost: Cost) -> None:
        now = [100.0]
        inner: Callable[[LoadedGraph, Mapping[str, Tensor]], list[Tensor]] = LoadedGraph.__call__

        def run(graph: LoadedGraph, inputs: Mapping[str, Tensor]) -> list[Tensor]:
            before = graph.seconds
            made = inner(graph, inputs)
            now[0] += cost(graph.spec)
            graph.seconds = before + cost(graph.spec)
            return made

        monkeypatch.setattr(LoadedGraph, "__call__", run)
        monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    return install


@dataclass
class Result:
    code: int
    out: str
    err: str


@pytest.fixture
def tune(capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """`tune(*arguments)`: eagle3-run tune in this process."""

    def run(*arguments: object) -> Result:
        code = main(["tune", *map(str, arguments)])
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return run


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    """Three prompts of ids, one with a name."""
    file = tmp_path / "prompts.jsonl"
    file.write_text(
        '{"id": "first", "prompt_token_ids": [1, 2, 3]}\n'
        '{"prompt_token_ids": [4, 5, 6, 7]}\n'
        '{"prompt_token_ids": [8, 9], "max_tokens": 5}\n'
    )
    return file
