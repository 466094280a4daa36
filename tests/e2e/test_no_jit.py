"""eagle3-run compiles nothing and writes nothing: it runs where it could do neither.

The process gets an empty PATH, a home and a temporary folder that do not exist, an import hook that refuses every
compiler, and an audit hook that refuses to open a file for writing, to make or move one, or to start a process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(900)  # the first test waits for its bundle

ROOT = Path(__file__).parents[2]
NOWHERE = "/nonexistent/eagle3"

# Run by the interpreter before anything else
SITECUSTOMIZE = """
import os, sys

REFUSED = (
    "torch._inductor.compile_fx", "torch._inductor.codecache", "torch._inductor.cpp_builder", "torch._dynamo",
    "transformers", "aot", "pydantic", "rich", "yaml",
)
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod")
STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty")

def complain(what):
    os.write(2, f"REFUSED {what}\\n".encode())
    raise PermissionError(what)

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.startswith(tuple(f"{refused}." for refused in REFUSED)) or name in REFUSED:
            os.write(2, f"REFUSED import {name}\\n".encode())
            raise ImportError(f"{name} is refused")

def watch(event, arguments):
    if event == "open":
        path, _, flags = arguments
        # A number is what is open already: the process's own streams
        if flags & WRITING and path != os.devnull and not isinstance(path, int):
            complain(f"open {path} for writing")
    elif event in CHANGES or event in STARTS:
        complain(f"{event} {arguments}")

sys.meta_path.insert(0, Refuse())
sys.addaudithook(watch)
os.write(2, b"WATCHED\\n")
"""


def run_watched(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """eagle3-run in `folder`, watched; the folder holds nothing else."""
    hook = folder.parent / "hook"
    hook.mkdir(exist_ok=True)
    (hook / "sitecustomize.py").write_text(SITECUSTOMIZE)
    environment = {
        "PATH": "",
        "HOME": NOWHERE,
        "TMPDIR": NOWHERE,
        "XDG_CACHE_HOME": NOWHERE,
        "PYTHONPATH": f"{hook}{os.pathsep}{ROOT}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return subprocess.run(
        [sys.executable, "-m", "runtime.cli", *map(str, arguments)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def state(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*")}


@pytest.mark.parametrize("name", ["tiny_bundle", "smollm2_bundle"])
def test_a_bundle_runs_where_nothing_can_be_compiled_or_written(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    bundle: Path = request.getfixturevalue(name)
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt_token_ids": [5, 6, 7], "max_tokens": 5}\n{"prompt_token_ids": [9], "max_tokens": 3}\n')
    folder = tmp_path / "empty"
    folder.mkdir()
    before = state(bundle)
    done = run_watched(folder, "--bundle", bundle, "--prompts", prompts, "--ignore-eos", "--json", "--stats")
    assert done.returncode == 0, done.stderr
    assert "WATCHED" in done.stderr
    assert "REFUSED" not in done.stderr
    assert [len(json.loads(line)["token_ids"]) for line in done.stdout.splitlines()] == [5, 3]
    assert state(bundle) == before
    assert list(folder.iterdir()) == []


def test_the_chat_template_and_the_check_run_there_too(smollm2_bundle: Path, tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    done = run_watched(folder, "--bundle", smollm2_bundle, "--check", "--prompt", "Hello", "--max-tokens", 4, "--json")
    assert done.returncode == 0, done.stderr
    assert "REFUSED" not in done.stderr
    assert json.loads(done.stdout)["same"] is True


def test_the_watch_does_refuse(tmp_path: Path) -> None:
    """The tests above would pass with hooks that see nothing."""
    hook = tmp_path / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(SITECUSTOMIZE)
    attempts = ["import torch._dynamo", "import aot.config", "open('here', 'w')", "__import__('os').system('true')"]
    attempts.append("__import__('tempfile').mkdtemp(dir='.')")
    for attempt in attempts:
        script = f"try:\n    {attempt}\nexcept (ImportError, PermissionError):\n    print('refused')"
        done = subprocess.run(
            [sys.executable, "-c", script],
            cwd=tmp_path,
            env={"PYTHONPATH": f"{hook}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout == "refused\n", attempt
        assert "REFUSED" in done.stderr
