"""eagle3-build at the command line: what it prints, what it exits with, and what a second build does."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(900)  # the first test waits for the bundle

Console = Callable[..., Any]
FACTORS = ("caches", "compiler", "flags", "program", "target", "threads", "torch", "unit")


@pytest.fixture
def bundle(tiny_bundle: Path, tmp_path: Path) -> Path:
    """A copy of the tiny bundle, for a build to find at its output."""
    return Path(shutil.copytree(tiny_bundle, tmp_path / "tiny"))


@pytest.fixture
def plan(console: Console, tiny_config: Path) -> Callable[..., dict[str, Any]]:
    def run(*overrides: str) -> dict[str, Any]:
        settings = [word for override in overrides for word in ("--set", override)]
        done = console("aot.cli", "plan", "--config", tiny_config, "--json", *settings)
        assert done.returncode == 0, done.stderr
        made: dict[str, Any] = json.loads(done.stdout)
        return made

    return run


def keys(plan: dict[str, Any]) -> dict[str, str]:
    return {unit["name"]: unit["key"] for unit in plan["units"]}


def test_a_second_build_compiles_nothing_and_imports_no_torch(
    console: Console, tiny_config: Path, bundle: Path
) -> None:
    before = {file: file.stat().st_mtime_ns for file in bundle.rglob("*")}
    done = console("aot.cli", "--config", tiny_config, "--output", bundle, "--json", flags=("-X", "importtime"))
    facts = json.loads(done.stdout)
    assert (facts["unchanged"], facts["compiled"], facts["cached"]) == (True, 0, 14)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "runtime.bundle.manifest" in imported
    assert not [name for name in imported if name.partition(".")[0] in ("torch", "transformers", "numpy")]
    assert {file: file.stat().st_mtime_ns for file in bundle.rglob("*")} == before


def test_an_unchanged_build_says_so(console: Console, tiny_config: Path, bundle: Path) -> None:
    done = console("aot.cli", "--config", tiny_config, "--output", bundle)
    assert done.returncode == 0
    assert done.stdout == f"{bundle}\n"
    assert done.stderr.startswith(f"Nothing changed since {bundle} was built, checked in ")


def test_json_says_what_a_build_made(console: Console, tiny_config: Path, bundle: Path) -> None:
    manifest = json.loads((bundle / "manifest.json").read_text())
    done = console("aot.cli", "--config", tiny_config, "--output", bundle, "--json")
    facts = json.loads(done.stdout)
    assert done.stderr == ""
    assert facts | {"seconds": 0} == {
        "bundle": str(bundle),
        "bundle_id": manifest["bundle_id"],
        "state": "ready",
        "graphs": 16,
        "compiled": 0,
        "cached": 14,
        "seconds": 0,
        "unchanged": True,
        "size_bytes": sum(entry["size"] for entry in manifest["files"].values()),
        "lossless": "exact",
    }


def test_quiet_prints_the_folder_and_nothing_else(
    console: Console, tiny_config: Path, tiny_bundle: Path, tmp_path: Path
) -> None:
    output = tmp_path / "new"
    done = console("aot.cli", "--config", tiny_config, "--output", output, "-q")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{output}\n", "")
    again = json.loads((output / "manifest.json").read_text())
    assert again["bundle_id"] == json.loads((tiny_bundle / "manifest.json").read_text())["bundle_id"]
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


@pytest.mark.parametrize("damage", ["a missing unit", "a changed byte", "no manifest"])
def test_a_damaged_bundle_is_built_again_from_the_cache(
    console: Console, tiny_config: Path, bundle: Path, tiny_bundle: Path, damage: str
) -> None:
    unit = bundle / "graphs" / "target_embed.t4" / "unit.so"
    if damage == "a missing unit":
        unit.unlink()
    elif damage == "a changed byte":
        data = bytearray(unit.read_bytes())
        data[len(data) // 2] ^= 1
        unit.write_bytes(data)
    else:
        shutil.rmtree(bundle)
        bundle.mkdir()
    done = console("aot.cli", "--config", tiny_config, "--output", bundle, "--frozen", "--json")
    facts = json.loads(done.stdout)
    assert (facts["unchanged"], facts["compiled"]) == (False, 0)
    assert unit.read_bytes() == (tiny_bundle / "graphs" / "target_embed.t4" / "unit.so").read_bytes()


def test_the_plan_of_a_built_bundle_hits_everywhere(
    console: Console, tiny_config: Path, tiny_bundle: Path, plan: Callable[..., dict[str, Any]]
) -> None:
    manifest = json.loads((tiny_bundle / "manifest.json").read_text())
    made = plan()
    assert keys(made) == {unit["name"]: unit["digest"] for unit in manifest["units"]}
    assert {(unit["hit"], unit["reason"]) for unit in made["units"]} == {(True, "")}
    assert made["graphs"] == [graph["name"] for graph in manifest["graphs"]]
    assert made["estimates"]["compile_core_seconds"] == 0
    lines = console("aot.cli", "plan", "--config", tiny_config).stdout.splitlines()
    assert lines[0].startswith("tiny: 16 graphs from 14 units, K=3, float32, ")
    assert sum(line.startswith("  hit   target_") for line in lines) == 9


@pytest.mark.usefixtures("tiny_bundle")
def test_a_plan_says_what_misses_and_why(plan: Callable[..., dict[str, Any]]) -> None:
    shorter = {unit["name"]: unit for unit in plan("speculative_config.num_speculative_tokens=2")["units"]}
    # K changes the rows of a verify pass: units of other names; prefill and one-row units stay as they are
    assert {name for name, unit in shorter.items() if unit["hit"]} == {
        "target_embed.t16",
        "target_layer.r1x16",
        "target_prefill_head.t16",
        "draft_initial.r1x16",
        "draft_recurrent.r1",
        "draft_recurrent.r2",
    }
    assert shorter["target_layer.r1x3"]["reason"] == "never compiled here"
    narrow = plan("dtype=float16")["units"]
    assert {(unit["hit"], unit["reason"]) for unit in narrow} == {(False, "changed: dtype")}
    other_blocks = {unit["name"]: unit["reason"] for unit in plan("block_size=32")["units"]}
    assert other_blocks["target_layer.r1x4"] == "changed: shapes"
    assert other_blocks["target_embed.t4"] == ""


@pytest.mark.usefixtures("tiny_bundle")
def test_other_weights_and_more_context_need_no_compile(
    console: Console,
    tiny_config: Path,
    tiny_bundle: Path,
    plan: Callable[..., dict[str, Any]],
    tmp_path: Path,
) -> None:
    assert keys(plan("random_weights.seed=1")) == keys(plan())
    assert keys(plan("buckets.context_tokens=[32, 64, 96, 128]")) == keys(plan())
    output = tmp_path / "other"
    arguments = ("--config", tiny_config, "--output", output, "--set", "random_weights.seed=1", "--frozen", "--json")
    done = console("aot.cli", *arguments)
    assert json.loads(done.stdout)["compiled"] == 0
    mine, first = (json.loads((folder / "manifest.json").read_text()) for folder in (output, tiny_bundle))
    assert mine["bundle_id"] != first["bundle_id"]
    assert [unit["digest"] for unit in mine["units"]] == [unit["digest"] for unit in first["units"]]
    assert mine["weights"] != first["weights"]


def test_factors_name_no_place_person_or_environment(
    console: Console, tiny_config: Path, tiny_bundle: Path, build_cache: Path, tmp_path: Path
) -> None:
    tricks: dict[str, str | None] = {
        "HOME": str(tmp_path / "another-home"),
        "USER": "somebody-else",
        "TORCHINDUCTOR_FREEZING": "1",
        "OMP_NUM_THREADS": "7",
        "TMPDIR": str(tmp_path),
    }
    done = console("aot.cli", "plan", "--config", tiny_config, "--json", env=tricks)
    assert all(unit["hit"] for unit in json.loads(done.stdout)["units"])
    manifest = json.loads((tiny_bundle / "manifest.json").read_text())
    for unit in manifest["units"]:
        text = (build_cache / "units" / unit["digest"] / "factors.json").read_text()
        assert sorted(json.loads(text)) == sorted(FACTORS)
        assert "/" not in text, "no path of any kind"


def test_frozen_never_compiles(console: Console, tiny_config: Path, tmp_path: Path) -> None:
    output = tmp_path / "frozen"
    empty: dict[str, str | None] = {"EAGLE3_CACHE": str(tmp_path / "empty")}
    done = console("aot.cli", "--config", tiny_config, "--output", output, "--frozen", env=empty)
    assert done.returncode == 7
    assert done.stderr.startswith(
        "error: The cache lacks compiled graphs and --frozen forbids compiling: expected every unit in the cache, "
        "found target_embed.t16, target_layer.r1x16, "
    )
    assert done.stderr.endswith("hint: run the same command without --frozen once\n")
    assert not output.exists()


@pytest.mark.parametrize("command", [(), ("plan",)])
def test_a_host_without_a_compiler_is_told_at_once(
    console: Console, tiny_config: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    nowhere: dict[str, str | None] = {"PATH": str(tmp_path), "CXX": None}
    done = console("aot.cli", *command, "--config", tiny_config, env=nowhere)
    assert done.returncode == 4
    assert done.stderr == (
        "error: This machine cannot build for the CPU: expected a C++ compiler (CXX, g++ or clang++) on the PATH, "
        "found none.\nhint: install one, for example with: apt-get install g++\n"
    )


@pytest.mark.parametrize(
    ("arguments", "code", "kind"),
    [
        (("--config", "configs/no-such.yaml"), 3, "ConfigError"),
        (("--config", "configs/tiny.yaml", "--set", "speculative_config.num_speculative_tokens=0"), 3, None),
        (("--config", "configs/tiny.yaml", "--jobs", "0"), 2, "UsageError"),
        (("--no-such-option",), 2, "UsageError"),
        ((), 2, "UsageError"),
    ],
)
def test_json_says_what_went_wrong(console: Console, arguments: tuple[str, ...], code: int, kind: str | None) -> None:
    done = console("aot.cli", *arguments, "--json")
    assert done.returncode == code
    error = json.loads(done.stdout)
    assert error["exit_code"] == code
    assert error["message"].endswith(".")
    assert kind is None or error["error"] == kind
    assert done.stderr == ""


def test_what_is_no_bundle_is_never_replaced(console: Console, tiny_config: Path, tmp_path: Path) -> None:
    precious = tmp_path / "thesis"
    precious.mkdir()
    (precious / "chapter-1.txt").write_text("four years of work")
    done = console("aot.cli", "--config", tiny_config, "--output", precious)
    assert done.returncode == 2
    assert done.stderr == (
        f"error: The folder {precious} holds something other than a bundle: expected a bundle's manifest.json in it, "
        "or an empty folder, found chapter-1.txt.\n"
        "hint: give --output a folder that does not exist yet, or one that holds a bundle\n"
    )
    assert (precious / "chapter-1.txt").read_text() == "four years of work"
    file = precious / "chapter-1.txt"
    assert console("aot.cli", "--config", tiny_config, "--output", file).returncode == 2
    assert console("aot.cli", "--config", tiny_config, "--output", ".").returncode == 2
    assert file.read_text() == "four years of work"


def test_inspect_shows_a_bundle_and_finds_its_damage(console: Console, bundle: Path) -> None:
    done = console("aot.cli", "inspect", "--bundle", bundle)
    assert done.returncode == 0
    assert done.stdout.splitlines()[0].startswith("tiny  ready  ")
    assert sum(line.startswith("  graph    ") for line in done.stdout.splitlines()) == 16
    unit = bundle / "graphs" / "target_embed.t4" / "unit.so"
    unit.write_bytes(unit.read_bytes()[:-1])
    done = console("aot.cli", "inspect", "--bundle", bundle)
    assert done.returncode == 5
    assert "graphs/target_embed.t4/unit.so is changed" in done.stderr
