"""A Neuron build that fails, is interrupted or killed: what is said, what is left, and how the next one goes on.

With the stand-in compiler on the PATH from the start, one command lowers, checks and compiles.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runtime.bundle.open import read_manifest
from tests.aot.backends.neuron import stand_in

pytestmark = [
    pytest.mark.neuron,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are looked up in /proc"),
]

ROOT = Path(__file__).parents[2]
GRAPHS = 4
CONFIG = """
name: tiny-neuron
model_config: {configs}/tiny/target.json
draft_config: {configs}/tiny/draft.json
random_weights: {{seed: 0}}
dtype: float32
max_model_len: 32
max_num_seqs: 1
block_size: 8
draft_fused: true
speculative_config: {{method: eagle3, num_speculative_tokens: 2}}
additional_config: {{neuron_config: {{on_device_sampling_config: {{all_greedy: true}}}}}}
backend: {{name: neuron, target: trn2, lnc: 2}}
buckets: {{prefill_tokens: [16], num_seqs: [1], context_tokens: [32]}}
"""
FAILING = "target_verify.r1.c32"


class Place:
    """A folder with a configuration, a stand-in compiler, a cache that only this test's builds use, and the output."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.config, self.tools, self.cache = folder / "tiny.yaml", folder / "bin", cache
        self.output = folder / "out" / "tiny"
        self.config.write_text(CONFIG.format(configs=ROOT / "configs"), encoding="utf-8")

    def compiler(self, **behaviour: Any) -> None:
        stand_in.install(self.tools, behaviour=stand_in.Behaviour(**behaviour))

    def starts(self) -> int:
        return sum(call["event"] == "start" for call in stand_in.calls(self.tools))

    def start(self, *options: str) -> subprocess.Popen[str]:
        path = os.pathsep.join((str(self.tools), os.environ["PATH"]))
        environment = {**os.environ, "EAGLE3_CACHE": str(self.cache), "PYTHONPATH": str(ROOT), "PATH": path}
        arguments = ["--config", str(self.config), "--output", str(self.output), "--jobs", "1", *options]
        return subprocess.Popen(
            [sys.executable, "-m", "aot.cli", *arguments],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def build(self, *options: str) -> tuple[int, dict[str, Any]]:
        """A build to its end; its exit code and what --json printed."""
        process = self.start("--json", *options)
        out, err = process.communicate(timeout=600)
        assert err == ""
        facts: dict[str, Any] = json.loads(out)
        return process.returncode, facts

    def processes(self) -> list[str]:
        """Live processes that know this test's cache: builds, workers, compilers."""
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit() and int(folder.name) != os.getpid():
                try:
                    text = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
                except OSError:
                    continue
                if str(self.cache).encode() in text:
                    found.append(f"{folder.name}: {text[:120]!r}")
        return found

    def nothing_half_made(self) -> bool:
        staging = self.cache / "staging"
        return not self.output.exists() and (not staging.exists() or list(staging.iterdir()) == [])


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache in which every graph is lowered, none compiled."""
    place = Place(tmp_path_factory.mktemp("warm"), tmp_path_factory.mktemp("warm-cache"))
    place.compiler(exits=[1] * GRAPHS)
    code, _ = place.build()
    assert code == 6
    assert list((place.cache / "neffs").iterdir()) == []
    return place.cache / "units"


@pytest.fixture
def place(warm: Path, tmp_path: Path) -> Place:
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "units").symlink_to(warm, target_is_directory=True)
    return Place(tmp_path, cache)


def wait_until(holds: Callable[[], bool], seconds: float = 300) -> None:
    limit = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < limit, "waited in vain"
        time.sleep(0.05)


def test_one_command_ends_ready_and_the_next_changes_nothing(place: Place) -> None:
    place.compiler(match=FAILING, exits=[70, 70])
    code, facts = place.build()
    assert code == 0, facts
    assert (facts["state"], facts["compiled"], facts["neffs_compiled"]) == ("ready", 0, GRAPHS)
    assert (facts["compiler"], facts["stand_in"]) == (stand_in.VERSION, True)
    record = json.loads((place.output / "build.json").read_text())
    attempts = {neff["name"]: neff["attempts"] for neff in record["neffs"]}
    assert attempts == {unit.name: 1 for unit in read_manifest(place.output).units} | {FAILING: 3}
    assert all(neff["seconds"] > 0 for neff in record["neffs"])
    code, again = place.build()
    assert (code, again["unchanged"], again["bundle_id"]) == (0, True, facts["bundle_id"])
    assert (again["compiler"], again["neffs_compiled"]) == (stand_in.VERSION, 0)


def test_frozen_wants_the_neffs_too(place: Place) -> None:
    place.compiler()
    code, error = place.build("--frozen")
    assert (code, error["error"]) == (7, "CacheMissError")
    assert error["message"].startswith("The cache lacks NEFFs and --frozen forbids compiling")
    assert FAILING in error["message"]
    assert place.starts() == 0
    assert place.nothing_half_made()
    assert place.build()[0] == 0
    place.output.rename(place.output.with_name("first"))
    code, facts = place.build("--frozen")
    assert (code, facts["state"], facts["neffs_compiled"]) == (0, "ready", 0)
    assert place.starts() == GRAPHS


def test_a_graph_that_fails_is_named_with_its_log_and_the_others_are_kept(place: Place) -> None:
    place.compiler(match=FAILING, exits=[1], says="[ERROR] [NCC_EVRF009] too large")
    code, error = place.build()
    assert (code, error["error"]) == (6, "ErrorGroup")
    (problem,) = error["problems"]
    assert problem["message"] == f"Graph {FAILING} failed to compile: expected exit code 0, found exit code 1."
    assert problem["repair"].startswith("NCC_EVRF009: ")
    log = place.output.with_name("tiny.logs") / f"{FAILING}.log"
    assert str(log) in problem["repair"]
    assert "too large" in log.read_text()
    assert place.nothing_half_made()
    code, facts = place.build()
    assert (code, facts["state"], facts["neffs_compiled"]) == (0, "ready", 1)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_build_that_ends_while_a_neff_compiles_leaves_nothing_running(place: Place, how: signal.Signals) -> None:
    place.compiler(match=FAILING, hangs=True)
    process = place.start()
    wait_until(lambda: process.poll() is not None or (place.tools / "hanging.pid").exists())
    assert process.poll() is None, process.communicate()
    process.send_signal(how)
    wait_until(lambda: place.processes() == [], 10)
    _, err = process.communicate(timeout=10)
    assert process.returncode == (130 if how == signal.SIGINT else -signal.SIGKILL)
    assert "Traceback" not in err
    assert not place.output.exists()
    if how == signal.SIGINT:
        assert err.endswith("Interrupted; what compiled is in the cache and the next build goes on from there\n")
        assert place.nothing_half_made()
    kept = len(list((place.cache / "neffs").iterdir())) if (place.cache / "neffs").exists() else 0
    place.compiler()
    code, facts = place.build()
    assert (code, facts["state"], facts["neffs_compiled"]) == (0, "ready", GRAPHS - kept)
    assert sorted(file.name for file in place.output.parent.iterdir()) == ["tiny", "tiny.logs"]
    assert list((place.cache / "staging").iterdir()) == []


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_build_that_ends_while_graphs_are_lowered_leaves_nothing_running(tmp_path: Path, how: signal.Signals) -> None:
    place = Place(tmp_path, tmp_path / "cache")
    place.compiler()
    process = place.start()
    units = place.cache / "units"
    wait_until(lambda: process.poll() is not None or (units.exists() and len(list(units.iterdir())) == 1))
    wait_until(lambda: process.poll() is not None or any((place.cache / "staging").glob("*/job.json")))
    assert process.poll() is None, process.communicate()
    process.send_signal(how)
    wait_until(lambda: place.processes() == [], 10)
    process.communicate(timeout=10)
    assert process.returncode == (130 if how == signal.SIGINT else -signal.SIGKILL)
    assert not place.output.exists()
    assert (how == signal.SIGKILL) or place.nothing_half_made()
    kept = len(list(units.iterdir()))
    code, facts = place.build()
    assert (code, facts["state"], facts["compiled"]) == (0, "ready", GRAPHS - kept)
    assert list((place.cache / "staging").iterdir()) == []
