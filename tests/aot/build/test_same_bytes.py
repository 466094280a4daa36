"""Two cold builds of one configuration on one machine make one bundle, byte for byte (T3)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
# The one file that tells of the build and not of the bundle
APART = "build.json"


def cold_build(folder: Path, jobs: int, **environment: str) -> dict[str, Any]:
    """Build the tiny pair; checkout, output and cache lie in `folder`, temporary files in a folder of their own."""
    for part in ("aot", "runtime", "configs"):
        shutil.copytree(ROOT / part, folder / "checkout" / part, ignore=shutil.ignore_patterns("__pycache__"))
    # Short: the compile workers' server listens at a socket in it, whose path may have about a hundred characters
    temporary = tempfile.mkdtemp()
    places = {"EAGLE3_CACHE": str(folder / "cache"), "TMPDIR": temporary, "PYTHONPATH": ""}
    command = [sys.executable, "-m", "aot.cli", "--config", "configs/tiny.yaml", "--output", str(folder / "bundle")]
    smaller = ["--set", "max_num_seqs=1", "--set", "buckets.num_seqs=[1]"]  # nine units in place of fourteen
    done = subprocess.run(
        [*command, *smaller, "--jobs", str(jobs), "--json"],
        cwd=folder / "checkout",
        env={**os.environ, **places, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=3000,
    )
    shutil.rmtree(temporary, ignore_errors=True)
    assert done.returncode == 0, done.stdout + done.stderr
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


def files(bundle: Path) -> dict[str, bytes]:
    paths = [path for path in bundle.rglob("*") if path.is_file() and path.name != APART]
    return {path.relative_to(bundle).as_posix(): path.read_bytes() for path in paths}


@pytest.mark.slow
@pytest.mark.timeout(6000)
def test_t3_two_cold_builds_make_the_same_bytes_and_one_id(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "another" / "folder"
    one = cold_build(first, 1, PYTHONHASHSEED="1", OMP_NUM_THREADS="1")
    other = cold_build(second, 2, PYTHONHASHSEED="2")
    assert one["compiled"] == other["compiled"] > 0
    assert one["bundle_id"] == other["bundle_id"]
    here, there = files(first / "bundle"), files(second / "bundle")
    assert sorted(here) == sorted(there)
    assert [name for name in here if here[name] != there[name]] == []
