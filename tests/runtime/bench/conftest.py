"""The toy pair of the loop's tests behind the real command line, in place of a compiled bundle."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from runtime import commands
from runtime.cli import main
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


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    """Four prompts: two of kind a, one of kind b, one of none."""
    lines: list[dict[str, Any]] = [
        {"id": "a1", "kind": "a", "prompt_token_ids": [1, 2, 3]},
        {"id": "a2", "kind": "a", "prompt_token_ids": [4, 5, 6, 7]},
        {"id": "b1", "kind": "b", "prompt_token_ids": [8, 9]},
        {"prompt_token_ids": [10, 11, 12], "max_tokens": 5},
    ]
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


@dataclass
class Result:
    code: int
    out: str
    err: str


@pytest.fixture
def bench(capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """`bench(*arguments)`: eagle3-run bench in this process."""

    def run(*arguments: object) -> Result:
        code = main(["bench", *map(str, arguments)])
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return run
