"""A lowered bundle is finished in one step or left as it was, and a stand-in's work is marked as that.

The compiler is the stand-in of tests/aot/backends/neuron; the HLO in the bundles is no HLO, since nothing reads it.
"""

from __future__ import annotations

import dataclasses
import hashlib
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

from aot.backends.neuron.compiler import Compiler, find
from aot.build.assemble import list_files, write_manifest
from aot.build.finish import Finished, finish_bundle, unit_kinds
from aot.cache import Cache
from aot.report import PlainReporter, QuietReporter
from runtime.bundle.errors import ConfigError, ErrorGroup, IntegrityError, UsageError
from runtime.bundle.interface import Parameter, Result
from runtime.bundle.manifest import Call, Graph, Manifest, Requires, TensorSpec, Unit, WeightRef, loads
from runtime.bundle.open import file_problems, read_manifest
from tests.aot.backends.neuron import stand_in

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "runtime" / "bundle" / "golden" / "manifest-v2.json"
KINDS = {"target_prefill.t8.c64": "target_prefill", "target_verify.r1.c64": "target_verify"}
REQUIRES = Requires("neuron", "trn2", "", "", (), "", False, ranks=2, lnc=2)

Snapshot = dict[str, tuple[int, bytes]]


def unit(name: str) -> Unit:
    tokens, tail = TensorSpec("tokens", "int32", (8,)), TensorSpec("next_token", "int32", (1,))
    return Unit(
        name,
        f"graphs/{name}/graph.hlo",
        hashlib.sha256(name.encode()).hexdigest(),
        (),
        (tokens,),
        (tail,),
        parameters=(Parameter("tokens", "tokens", "input", "int32", (8,)),),
        results=(Result("next_token", "next_token", "int32", (1,)),),
    )


def graph(name: str, kind: Any) -> Graph:
    one = unit(name)
    return Graph(name, kind, 1, 8, 64, one.inputs, one.outputs, (Call(name, "", ("tokens",), ("next_token",)),))


def write_bundle(folder: Path, *, extra: list[str] | None = None, requires: Requires = REQUIRES) -> Manifest:
    """A lowered bundle of two graphs and a file of weights."""
    files = {"weights/all.safetensors": b"weights", "build.json": b'{"request": "r1"}'}
    for name in KINDS:
        files[f"graphs/{name}/graph.hlo"] = f"HLO of {name}".encode()
        files[f"graphs/{name}/command.json"] = json.dumps({"argv": ["neuronx-cc"], "extra": extra or []}).encode()
    for relative, content in files.items():
        (folder / relative).parent.mkdir(parents=True, exist_ok=True)
        (folder / relative).write_bytes(content)
    lowered = dataclasses.replace(
        loads(json.loads(GOLDEN.read_text(encoding="utf-8"))),
        state="lowered",
        requires=requires,
        toolchain={"torch": "2.9.1"},
        units=tuple(unit(name) for name in KINDS),
        graphs=tuple(graph(name, kind) for name, kind in KINDS.items()),
        weights={"target.norm.weight": {"plain": WeightRef("weights/all.safetensors", "norm", "a" * 64)}},
        files=list_files(folder),
    )
    return write_manifest(folder, lowered)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    folder = tmp_path / "artifacts" / "toy"
    write_bundle(folder)
    return folder


def snapshot(folder: Path) -> Snapshot:
    """Every file with its inode and content."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): (file.stat().st_ino, file.read_bytes()) for file in files}


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


@pytest.fixture
def compiler(tmp_path: Path) -> Callable[..., Compiler]:
    """`compiler(exits=[70])`: a stand-in of that behaviour."""

    def install(version: str = stand_in.VERSION, **behaviour: Any) -> Compiler:
        program = stand_in.install(tmp_path / "bin", version=version, behaviour=stand_in.Behaviour(**behaviour))
        found = find(str(program))
        assert found is not None
        return found

    return install


Finish = Callable[..., Finished]


@pytest.fixture
def finish(bundle: Path, cache: Cache, compiler: Callable[..., Compiler]) -> Finish:
    """`finish(exits=[70])`: finish the bundle with a stand-in of that behaviour."""

    def run(version: str = stand_in.VERSION, **behaviour: Any) -> Finished:
        return finish_bundle(bundle, compiler(version, **behaviour), cache, QuietReporter(), 1)

    return run


def started(tmp_path: Path) -> list[list[str]]:
    return [call["argv"] for call in stand_in.calls(tmp_path / "bin") if call["event"] == "start"]


def test_every_graph_gets_a_neff_that_the_manifest_describes(bundle: Path, finish: Finish) -> None:
    before = read_manifest(bundle)
    finished = finish()
    manifest = read_manifest(bundle)
    assert finished.manifest == manifest
    assert (before.state, manifest.state) == ("lowered", "ready")
    assert manifest.bundle_id != before.bundle_id
    assert file_problems(bundle, manifest) == []
    assert manifest.files.keys() - before.files.keys() == {f"graphs/{name}/graph.neff" for name in KINDS}
    for made in manifest.units:
        assert made.neff is not None
        assert made.neff.path == f"graphs/{made.name}/graph.neff"
        assert (made.neff.lnc, made.neff.version, made.neff.num_tpb) == (2, "2.0", 1)
        held = (bundle / made.neff.path).read_bytes()
        assert stand_in.hlo_of(held) == f"HLO of {made.name}".encode()
        record = json.loads((bundle / f"graphs/{made.name}/command.json").read_text())
        assert record["compiler"] == "2.27.5334.0+standin (stand-in)"
        assert ("-O1" in record["argv"]) == (KINDS[made.name] == "target_prefill")
    record = json.loads((bundle / "build.json").read_text())
    assert record["request"] == "r1"
    assert [one["attempts"] for one in record["neffs"]] == [1, 1]
    assert {file.name for file in bundle.parent.iterdir()} == {"toy", "toy.logs"}


def test_m3_a_mounted_bundle_is_told_before_anything_compiles(
    bundle: Path, finish: Finish, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("aot.build.assemble._mount_in", lambda output: str(output))
        with pytest.raises(UsageError) as caught:
            finish()
    assert "mount point" in caught.value.found
    assert read_manifest(bundle).state == "lowered"
    finish()
    # One that lacks nothing need not be replaced
    monkeypatch.setattr("aot.build.assemble._mount_in", lambda output: str(output))
    assert finish().results == ()


def test_a_stand_ins_work_is_marked(finish: Finish) -> None:
    manifest = finish().manifest
    assert manifest.toolchain == {
        "torch": "2.9.1",
        "neuronx-cc": "2.27.5334.0+standin (stand-in)",
        "stand_in": "yes",
    }
    assert [made.neff is not None and made.neff.stand_in for made in manifest.units] == [True, True]


def test_a_stand_in_that_writes_another_build_version_is_still_marked(finish: Finish) -> None:
    manifest = finish(neff="real").manifest
    assert [made.neff is not None and made.neff.stand_in for made in manifest.units] == [True, True]


def test_a_compiler_that_does_not_say_so_is_none_and_replaces_a_stand_ins_work(finish: Finish, tmp_path: Path) -> None:
    finish()
    finished = finish("2.27.5334.0+f702b353", neff="real")
    assert len(finished.results) == 2
    assert finished.manifest.toolchain == {"torch": "2.9.1", "neuronx-cc": "2.27.5334.0+f702b353"}
    assert [made.neff is not None and made.neff.stand_in for made in finished.manifest.units] == [False, False]
    # And a stand-in has nothing to do then
    assert finish().results == ()
    assert len(started(tmp_path)) == 4


def test_weights_are_not_copied_and_the_lowered_files_not_written_to(bundle: Path, finish: Finish) -> None:
    kept = bundle.parent / "kept"
    kept.mkdir()
    for name in ("manifest.json", "graphs/target_verify.r1.c64/command.json", "build.json"):
        os.link(bundle / name, kept / Path(name).name)
    before = snapshot(kept)
    weights = (bundle / "weights" / "all.safetensors").stat().st_ino
    finish()
    assert (bundle / "weights" / "all.safetensors").stat().st_ino == weights
    assert snapshot(kept) == before


def test_a_failed_graph_leaves_the_lowered_bundle(bundle: Path, finish: Finish, tmp_path: Path) -> None:
    before = snapshot(bundle)
    with pytest.raises(ErrorGroup, match="1 of 2 graphs failed; the others are in the cache") as caught:
        finish(match="verify", exits=[70] * 9, says="NCC_EVRF009")
    assert caught.value.exit_code == 6
    assert "NCC_EVRF009" in caught.value.problems[0].repair
    assert snapshot(bundle) == before
    assert {file.name for file in bundle.parent.iterdir()} == {"toy", "toy.logs"}
    assert "NCC_EVRF009" in (bundle.parent / "toy.logs" / "target_verify.r1.c64.log").read_text()
    assert [result.cached for result in finish().results].count(True) == 1
    assert len(started(tmp_path)) == 1 + 3 + 1


def test_the_users_arguments_noted_when_it_was_lowered_are_passed(
    tmp_path: Path, cache: Cache, compiler: Callable[..., Compiler]
) -> None:
    write_bundle(tmp_path / "toy", extra=["--enable-fast-loading-neuron-binaries"])
    finish_bundle(tmp_path / "toy", compiler(), cache, QuietReporter(), 1)
    assert [argv[-1] for argv in started(tmp_path)] == ["--enable-fast-loading-neuron-binaries"] * 2
    record = json.loads((tmp_path / "toy/graphs/target_verify.r1.c64/command.json").read_text())
    assert record["extra"] == ["--enable-fast-loading-neuron-binaries"]


def test_noted_arguments_are_checked(tmp_path: Path, cache: Cache, compiler: Callable[..., Compiler]) -> None:
    write_bundle(tmp_path / "toy", extra=["--output=/tmp/elsewhere"])
    with pytest.raises(ConfigError, match="one that the build sets itself"):
        finish_bundle(tmp_path / "toy", compiler(), cache, QuietReporter())
    folder = tmp_path / "other"
    lowered = write_bundle(folder)
    (folder / "graphs/target_verify.r1.c64/command.json").write_text('{"extra": 5}')
    write_manifest(folder, dataclasses.replace(lowered, files=list_files(folder)))
    with pytest.raises(IntegrityError, match=r"graphs/target_verify.r1.c64/command.json is not readable"):
        finish_bundle(folder, compiler(), cache, QuietReporter())


def test_a_damaged_bundle_is_not_finished(bundle: Path, finish: Finish, tmp_path: Path) -> None:
    (bundle / "graphs/target_verify.r1.c64/graph.hlo").write_text("HLO of target_verifY.r1.c64")
    with pytest.raises(ErrorGroup, match="is damaged"):
        finish()
    assert started(tmp_path) == []


def test_a_bundle_of_another_backend_is_not_finished(
    tmp_path: Path, cache: Cache, compiler: Callable[..., Compiler]
) -> None:
    write_bundle(tmp_path / "toy", requires=dataclasses.replace(REQUIRES, backend="aoti", device="cpu"))
    with pytest.raises(UsageError, match="toy is no Neuron bundle"):
        finish_bundle(tmp_path / "toy", compiler(), cache, QuietReporter())


def test_a_link_is_not_replaced(bundle: Path, cache: Cache, compiler: Callable[..., Compiler], tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(bundle)
    with pytest.raises(UsageError, match="is a symbolic link"):
        finish_bundle(tmp_path / "link", compiler(), cache, QuietReporter())


def test_a_unit_has_the_kind_of_the_graph_that_calls_it(bundle: Path) -> None:
    manifest = read_manifest(bundle)
    assert unit_kinds(manifest) == KINDS
    with pytest.raises(IntegrityError, match=r"found no graph"):
        unit_kinds(dataclasses.replace(manifest, graphs=manifest.graphs[:1]))
    second = dataclasses.replace(manifest.graphs[0], kind="target_decode")
    with pytest.raises(IntegrityError, match=r"found target_decode, target_prefill"):
        unit_kinds(dataclasses.replace(manifest, graphs=(*manifest.graphs, second)))


def test_progress_is_told_graph_by_graph(bundle: Path, cache: Cache, compiler: Callable[..., Compiler]) -> None:
    lines: list[str] = []
    finish_bundle(bundle, compiler(), cache, PlainReporter(lines.append), 1)
    assert len(lines) == 3
    assert [name for name in KINDS if any(f"Compiled {name} in" in line for line in lines)] == list(KINDS)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


KILLED = """
import sys
from pathlib import Path
from aot.cli import main

sys.argv = ["eagle3-build", "finish", "--bundle", sys.argv[1], "--compiler", sys.argv[2], "--jobs", "1"]
main()
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_finish_leaves_the_lowered_bundle_and_the_next_goes_on(
    bundle: Path, cache: Cache, compiler: Callable[..., Compiler], tmp_path: Path, how: signal.Signals
) -> None:
    before = snapshot(bundle)
    program = compiler(match="verify", hangs=True).command
    builder = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(bundle), program],
        env={**os.environ, "PYTHONPATH": str(ROOT), "EAGLE3_CACHE": str(cache.root)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    hanging, limit = tmp_path / "bin" / "hanging.pid", time.monotonic() + 60
    # With one worker the prefill graph, which does not hang, is in the cache by then
    while not hanging.exists():
        assert time.monotonic() < limit
        time.sleep(0.02)
    builder.send_signal(how)
    _, said = builder.communicate(timeout=30)
    assert builder.returncode == (130 if how == signal.SIGINT else -signal.SIGKILL)
    call = next(call for call in reversed(stand_in.calls(tmp_path / "bin")) if call["event"] == "start")
    # The compiler and the process that it started end too; of a killed build it is the watcher that ends them
    for pid in (call["pid"], int(hanging.read_text())):
        while is_alive(pid):
            assert time.monotonic() < limit
            time.sleep(0.02)
    if how == signal.SIGINT:
        assert "what compiled is in the cache" in said
    assert snapshot(bundle) == before
    finished = finish_bundle(bundle, compiler(), cache, QuietReporter())
    assert finished.manifest.state == "ready"
    assert {result.name: result.cached for result in finished.results} == {
        "target_prefill.t8.c64": True,
        "target_verify.r1.c64": False,
    }
    assert {file.name for file in bundle.parent.iterdir()} == {"toy", "toy.logs"}


def command(bundle: Path, cache: Cache, *arguments: str, path: str = "/nowhere") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "aot.cli", "finish", "--bundle", str(bundle), *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), "EAGLE3_CACHE": str(cache.root), "PATH": path},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_the_command_takes_the_compiler_on_the_path(
    bundle: Path, cache: Cache, compiler: Callable[..., Compiler], tmp_path: Path
) -> None:
    compiler()
    done = command(bundle, cache, "--json", path=str(tmp_path / "bin"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "bundle": str(bundle),
        "bundle_id": read_manifest(bundle).bundle_id,
        "state": "ready",
        "compiled": 2,
        "cached": 0,
        "compiler": "2.27.5334.0+standin (stand-in)",
        "stand_in": True,
    }
    again = command(bundle, cache, path=str(tmp_path / "bin"))
    assert "Nothing to do" in again.stderr
    assert "no device can run them" in again.stderr
    assert again.stdout == f"{bundle}\n"


def test_the_command_says_when_there_is_no_compiler(bundle: Path, cache: Cache) -> None:
    done = command(bundle, cache)
    assert done.returncode == 4
    assert "error: There is no Neuron compiler: expected neuronx-cc on the PATH" in done.stderr
    assert "hint: install neuronx-cc from AWS's Neuron package repository" in done.stderr


def test_finishing_needs_no_torch(bundle: Path) -> None:
    probe = "import sys, aot.build.finish, aot.report; sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
    assert done.returncode == 0
