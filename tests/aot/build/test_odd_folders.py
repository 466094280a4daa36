"""Folders with a space and an apostrophe in their names: a unit compiles in them as it does elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

COMPILE = """
import sys
from pathlib import Path

from aot.backends.aoti.backend import AotiBackend
from aot.build.models import read_models
from aot.build.workers import Workers
from aot.config import load_config
from aot.graphs.geometry import geometry
from aot.graphs.table import graph_table

if __name__ == "__main__":
    config = load_config(Path("configs/tiny.yaml"), ("dtype=bfloat16",))
    models = read_models(config)
    units = graph_table(geometry(config, models.target, models.draft)).units
    spec = next(unit for unit in units if unit.name == "target_embed.t4")
    # The cache relative to the current folder, as EAGLE3_CACHE may be
    out, cache = Path(sys.argv[1]), Path(sys.argv[2])
    out.mkdir()
    sys.exit(AotiBackend.detect("auto", "bfloat16").compile(spec, out, Workers(), cache))
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_m1_cache_environment_checkout_and_tmpdir_may_have_a_space_and_an_apostrophe(tmp_path: Path) -> None:
    odd = tmp_path / "it's a folder"
    temporary = odd / "tmp dir"
    temporary.mkdir(parents=True)
    (odd / "env").symlink_to(sys.prefix, target_is_directory=True)
    (odd / "tree").symlink_to(ROOT, target_is_directory=True)
    (odd / "main.py").write_text(COMPILE)
    done = subprocess.run(
        [str(odd / "env/bin/python"), str(odd / "main.py"), str(odd / "out"), os.path.relpath(odd / "cache", ROOT)],
        cwd=odd / "tree",
        env={**os.environ, "PYTHONPATH": str(odd / "tree"), "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
    )
    log = odd / "out" / "log.txt"
    assert done.returncode == 0, done.stderr + (log.read_text() if log.is_file() else "")
    assert (odd / "out" / "unit.so").is_file()
    assert (odd / "out" / "unit.json").is_file()
