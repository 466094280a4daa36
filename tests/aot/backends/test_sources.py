"""What decides a unit's bytes is in its key: every module that a compile worker imports, and nothing else (P3)."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from aot.backends.aoti import backend as aoti
from aot.backends.neuron import backend as neuron
from aot.backends.sources import ROOT, imported, program_digest

AOTI = imported(aoti.ENTRIES)
NEURON = imported(neuron.ENTRIES)


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of our sources. Who changes it changes it back."""
    root = tmp_path_factory.mktemp("sources")
    for package in ("aot", "runtime"):
        shutil.copytree(ROOT / package, root / package, ignore=shutil.ignore_patterns("__pycache__"))
    return root


def edited(root: Path, module: str, line: str, entries: tuple[str, ...] = aoti.ENTRIES) -> str:
    """The digest of the program when `module` ends with one more line."""
    folder = root.joinpath(*module.split("."))
    file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    before = file.read_text(encoding="utf-8")
    try:
        file.write_text(f"{before}\n{line}\n", encoding="utf-8")
        return program_digest(entries, root=root)
    finally:
        file.write_text(before, encoding="utf-8")


@pytest.mark.parametrize(
    ("entries", "module"),
    [(aoti.ENTRIES, module) for module in AOTI] + [(neuron.ENTRIES, module) for module in NEURON],
)
def test_p3_an_edit_of_any_module_that_the_worker_imports_is_a_miss(
    copied: Path, entries: tuple[str, ...], module: str
) -> None:
    before = program_digest(entries, root=copied)
    assert edited(copied, module, "CHANGED = 1", entries) != before
    assert edited(copied, module, "# a comment", entries) == before


def test_p3_the_export_and_the_rotary_table_are_in_the_key() -> None:
    """Two that no list held: what the worker exports with, and what the models take from the checkpoint's side."""
    assert {"aot.graphs.modules", "aot.graphs.units", "aot.checkpoint.rope", "aot.models.llama"} <= {*AOTI, *NEURON}
    assert set(AOTI) >= {"aot.backends.aoti.adjust", "aot.backends.aoti.packing", "aot.backends.aoti.widening_kernel"}


def test_p3_what_no_worker_imports_is_not_in_the_key() -> None:
    for module in ("aot.verify.scripted", "aot.cli", "aot.build.run", "runtime.cli", "aot.backends.aoti.backend"):
        assert module not in AOTI
    assert not [
        module for module in (*AOTI, *NEURON) if module.startswith(("aot.verify", "aot.config", "runtime.loop"))
    ]


@pytest.mark.parametrize(
    "line",
    [
        "import aot.models.fresh",
        "from aot.models import fresh",
        "from aot.models.fresh import VALUE",
        "def later():\n    from aot.models.fresh import VALUE",
        "def later():\n    from . import fresh",
    ],
)
def test_p3_a_new_import_brings_its_module_into_the_key(copied: Path, line: str) -> None:
    fresh = copied / "aot" / "models" / "fresh.py"
    try:
        digests = set()
        for value in (1, 2):
            fresh.write_text(f"VALUE = {value}\n", encoding="utf-8")
            digests.add(edited(copied, "aot.models.llama", line))
        assert len(digests) == 2
    finally:
        fresh.unlink()


def test_an_import_for_type_checkers_brings_nothing(copied: Path) -> None:
    fresh = copied / "aot" / "models" / "fresh.py"
    line = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from aot.models import fresh"
    try:
        digests = set()
        for value in (1, 2):
            fresh.write_text(f"VALUE = {value}\n", encoding="utf-8")
            digests.add(edited(copied, "aot.models.llama", line))
        assert len(digests) == 1
    finally:
        fresh.unlink()


# A worker up to the compiler, for which something stands that ends it
WORKER = """
import sys
import aot.backends.aoti.preload
from aot.backends.aoti import worker
import torch._inductor

def ends(*_, **__):
    raise SystemExit(0)

torch._inductor.aoti_compile_and_package = ends
{job}
try:
    worker.compile_unit(job, {out!r})
except SystemExit:
    print(*sorted(name for name in sys.modules if name.partition(".")[0] in ("aot", "runtime")))
"""
JOB = """
from pathlib import Path
from aot.backends.aoti.backend import AotiBackend
from aot.backends.aoti.toolchain import Toolchain
from aot.build.backends import backend_and_cache
from aot.build.models import read_models
from aot.build.plan import make_plan
from aot.config import load_config
config = load_config(Path("configs/tiny.yaml"), ())
models = read_models(config, weights=False)
backend, cache = backend_and_cache(config, models)
plan = make_plan(config, config.base, models, backend, cache)
import json
print(json.dumps(next(backend.job(unit.spec) for unit in plan.units if unit.spec.kind == "target_layer")))
"""


def test_p3_a_workers_process_holds_no_module_that_the_key_lacks(tmp_path: Path) -> None:
    """The list is read from sources. This is the same question to Python itself, up to the call of the compiler."""

    def run(script: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False, timeout=240
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()[-1]

    held = run(WORKER.format(job=f"import json\njob = json.loads({run(JOB)!r})", out=str(tmp_path)))
    assert "aot.graphs.modules" in held.split()
    assert set(held.split()) - set(AOTI) == set()
