"""The stand-in compiler on the PATH, and a cache of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from aot.backends.neuron.compiler import Compiler, find
from aot.cache import Cache
from tests.aot.backends.neuron import stand_in

Install = Callable[..., Compiler]


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one folder on the PATH, empty at first."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.fixture
def compiler(tools: Path) -> Install:
    """`compiler(exits=[70])`: the stand-in with that behaviour, found on the PATH."""

    def install(version: str = stand_in.VERSION, **behaviour: object) -> Compiler:
        stand_in.install(tools, version=version, behaviour=stand_in.Behaviour(**behaviour))  # type: ignore[arg-type]
        found = find()
        assert found is not None
        return found

    return install


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")
