"""The worker that lowers: torch and torch-xla are all it needs; it repeats its bytes and ends with its parent."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aot.backends.neuron.chain import ChainSpec
from aot.backends.neuron.environment import worker_environment
from aot.build.workers import Workers
from runtime.bundle.record import to_json
from tests.aot.backends.neuron.lowered import chains
from tests.runtime.loop.rig import Shape, make_rig

pytestmark = pytest.mark.neuron

# A Python starts with this: whatever the worker imports of these fails
BLOCK = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked}:
            raise ImportError(f"{{name}} is not to be imported by a worker")

sys.meta_path.insert(0, Blocked())
"""
# What torch-xla imports itself (yaml) it has
BLOCKED = ("pydantic", "transformers", "safetensors", "tokenizers", "jinja2", "click", "jax", "jaxlib", "gguf")


def job(folder: Path) -> Path:
    """One graph of a toy, with a smaller one as its check, as the build hands it to a worker."""
    folder.mkdir(parents=True, exist_ok=True)
    shape = Shape(num_seqs=(1,), context_tokens=(32,), layers=3)
    specs = chains(make_rig(shape).geometry)
    spec: ChainSpec = dataclasses.replace(specs["target_verify.r1.c32"], check=specs["draft_recurrent.r1.c32"])
    (folder / "job.json").write_text(json.dumps(to_json(spec)), encoding="utf-8")
    return folder / "job.json"


def work(folder: Path, **environment: str) -> int:
    argv = [sys.executable, "-m", "aot.backends.neuron.worker", str(job(folder)), str(folder)]
    code, peak = Workers().command(argv, folder / "log.txt", {**worker_environment(folder / "packages"), **environment})
    assert peak > 1 << 20
    return code


def test_it_imports_torch_torch_xla_and_the_standard_library_alone(tmp_path: Path) -> None:
    hook = tmp_path / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(BLOCK.format(blocked=BLOCKED), encoding="utf-8")
    path = f"{hook}:{worker_environment(tmp_path / 'packages')['PYTHONPATH']}"
    log = tmp_path / "job" / "log.txt"
    assert work(tmp_path / "job", PYTHONPATH=path) == 0, log.read_text()
    probe = [sys.executable, "-c", "import pydantic"]
    refused = subprocess.run(probe, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert "pydantic is not to be imported by a worker" in refused.stderr


def test_two_processes_in_two_folders_write_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From another folder, and with variables that would change what torch-xla does."""
    from aot.backends.neuron.backend import read_raw
    from runtime.bundle.record import from_json

    first, second = tmp_path / "first", tmp_path / "another folder" / "second"
    assert work(first) == 0
    second.mkdir(parents=True)
    monkeypatch.chdir(second)
    monkeypatch.setenv("XLA_FLAGS", "--xla_no_such_flag")
    monkeypatch.setenv("XLA_USE_BF16", "1")
    monkeypatch.setenv("XLA_HLO_DEBUG", "1")
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    assert work(second) == 0
    spec = from_json(ChainSpec, json.loads((first / "job.json").read_text(encoding="utf-8")), "job")
    assert spec.check is not None
    for name, wanted in (("raw", spec), ("check", spec.check)):
        assert (first / f"{name}.json").read_bytes() == (second / f"{name}.json").read_bytes()
        made = [read_raw(folder / f"{name}.hlo", folder / f"{name}.json", wanted).data for folder in (first, second)]
        assert made[0] == made[1]
        assert str(tmp_path).encode() not in made[0]
    log = (first / "log.txt").read_text(encoding="utf-8")
    assert f"raw: {len(spec.calls)} calls" in log
    assert f"check: {len(spec.check.calls)} calls" in log


def test_a_failure_is_an_exit_code_and_a_log(tmp_path: Path) -> None:
    file = job(tmp_path)
    data = json.loads(file.read_text(encoding="utf-8"))
    data["units"][0]["arguments"]["colour"] = 3
    file.write_text(json.dumps(data), encoding="utf-8")
    argv = [sys.executable, "-m", "aot.backends.neuron.worker", str(file), str(tmp_path)]
    code, _ = Workers().command(argv, tmp_path / "log.txt", worker_environment(tmp_path / "packages"))
    assert code == 1
    assert "Traceback" in (tmp_path / "log.txt").read_text(encoding="utf-8")
    assert not (tmp_path / "raw.hlo").exists()


PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", '''
import os, threading, time
from aot.backends.neuron.worker import _end_with_build
threading.Thread(target=_end_with_build, daemon=True).start()
print(os.getpid(), flush=True)
time.sleep(60)
'''], stdin=subprocess.PIPE, start_new_session=True)
time.sleep(60)
"""


def test_it_ends_when_the_build_is_killed(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True, env=worker_environment(tmp_path)
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert alive(child)
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 10
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not alive(child)
    parent.stdout.close()


def alive(process: int) -> bool:
    """Whether it runs; one that has ended and waits to be collected does not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
