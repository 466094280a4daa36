"""The stand-in for libnrt, built once and new for each test, in the place where the runtime looks for the real one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runtime.backends.nrt.backend import NrtBackend
from runtime.backends.nrt.library import VARIABLE, Library
from runtime.bundle.open import Bundle
from runtime.weights import Weights
from tests.runtime.backends.nrt.stand_in import StandIn, compile_stand_in

NEURON_VARIABLES = (
    "NEURON_RT_VISIBLE_CORES",
    "NEURON_RT_NUM_CORES",
    "NEURON_LOGICAL_NC_CONFIG",
    "NEURON_RT_ALLOW_LEGACY_NEFF",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(60))


@pytest.fixture(scope="session")
def stand_in_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_stand_in(tmp_path_factory.mktemp("stand-in-nrt"))


@pytest.fixture
def stand_in(stand_in_library: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    monkeypatch.setenv(VARIABLE, str(stand_in_library))
    for name in NEURON_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    # A test in which a rank hangs leaves the process's runtime in use
    monkeypatch.setattr(Library, "_users", 0)
    made = StandIn(stand_in_library)
    yield made
    assert made.errors == []


@pytest.fixture
def backend(stand_in: StandIn) -> Iterator[Callable[[Bundle], NrtBackend]]:
    """`backend(bundle)`: the bundle's backend over the stand-in, closed when the test ends."""
    made: list[NrtBackend] = []

    def open_backend(bundle: Bundle) -> NrtBackend:
        made.append(NrtBackend(bundle, Weights(bundle)))
        return made[-1]

    yield open_backend
    for one in made:
        one.close()
