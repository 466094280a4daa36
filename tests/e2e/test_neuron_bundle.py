"""A Neuron bundle over two ranks from its configuration to its text: lowered, refused, simulated, finished, run."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runtime.bundle.errors import IntegrityError
from runtime.bundle.manifest import Manifest
from runtime.bundle.open import Bundle, open_bundle, read_manifest
from runtime.engine import Engine
from runtime.graphs import GraphSet
from runtime.request import Request
from tests.aot.backends.neuron import stand_in as compilers
from tests.e2e.neuron_path import simulate, tokens
from tests.runtime.backends.nrt.stand_in import StandIn, compile_stand_in

pytestmark = [pytest.mark.neuron, pytest.mark.timeout(900)]

CONFIG = """
name: tiny-neuron
model_config: {configs}/tiny/target.json
draft_config: {configs}/tiny/draft.json
random_weights: {{seed: 0}}
dtype: float32
max_model_len: 48
max_num_seqs: 2
block_size: 8
tensor_parallel_size: 2
draft_fused: {fused}
speculative_config: {{method: eagle3, num_speculative_tokens: 2}}
additional_config: {{neuron_config: {{on_device_sampling_config: {{all_greedy: true}}}}}}
backend: {{name: neuron, target: trn2, lnc: 2}}
buckets: {{prefill_tokens: [16], num_seqs: [2], context_tokens: [48]}}
"""
REQUESTS = [Request(str(i), tokens(length, i), 12, ignore_eos=True) for i, length in enumerate((5, 21, 9))]


def without_compiler() -> dict[str, str | None]:
    """An environment whose PATH holds no neuronx-cc."""
    kept = [part for part in os.environ["PATH"].split(os.pathsep) if not (Path(part) / "neuronx-cc").exists()]
    return {"PATH": os.pathsep.join(kept)}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bool], Path]:
    folder = tmp_path_factory.mktemp("neuron")

    def write(fused: bool) -> Path:
        file = folder / ("fused.yaml" if fused else "separate.yaml")
        configs = Path(__file__).parents[2] / "configs"
        file.write_text(CONFIG.format(configs=configs, fused=str(fused).lower()), encoding="utf-8")
        return file

    return write


@pytest.fixture(scope="module")
def lowered(console: Callable[..., Any], config: Callable[[bool], Path]) -> Callable[[bool], tuple[Path, str]]:
    """`lowered(fused)`: a bundle built where there is no compiler, and what the build said. Nobody changes it."""
    made: dict[bool, tuple[Path, str]] = {}

    def build(fused: bool) -> tuple[Path, str]:
        if fused not in made:
            output = config(fused).parent / f"bundle-{fused}"
            done = console("aot.cli", "--config", config(fused), "--output", output, env=without_compiler())
            assert done.returncode == 0, done.stderr
            made[fused] = (output, done.stderr)
        return made[fused]

    return build


@pytest.fixture(scope="module")
def finished(lowered: Callable[[bool], tuple[Path, str]], console: Callable[..., Any]) -> Callable[[bool], Path]:
    """`finished(fused)`: the same with NEFFs of the stand-in compiler."""
    made: dict[bool, Path] = {}

    def finish(fused: bool) -> Path:
        if fused not in made:
            source, _ = lowered(fused)
            bundle = source.with_name(f"finished-{fused}")
            shutil.copytree(source, bundle)
            tools = source.parent / "bin"
            tools.mkdir(exist_ok=True)
            compilers.install(tools)
            path = os.pathsep.join((str(tools), os.environ["PATH"]))
            done = console("aot.cli", "finish", "--bundle", bundle, "--json", env={"PATH": path})
            assert done.returncode == 0, done.stdout + done.stderr
            facts = json.loads(done.stdout)
            assert (facts["state"], facts["stand_in"]) == ("ready", True)
            made[fused] = bundle
        return made[fused]

    return finish


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_stand_in(tmp_path_factory.mktemp("nrt"))


@pytest.fixture
def runtime(library: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    monkeypatch.setenv("EAGLE3_LIBNRT", str(library))
    for name in ("NEURON_RT_NUM_CORES", "NEURON_RT_VISIBLE_CORES", "NEURON_LOGICAL_NC_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    return StandIn(library)


def texts(engine: Engine) -> list[tuple[int, ...]]:
    return [output.token_ids for output in engine.generate(list(REQUESTS))]


def plain_and_simulated(bundle: Path) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    opened = open_bundle(bundle, device="sim")
    plain = texts(Engine.load(opened, speculation=False, device="sim"))
    return plain, texts(Engine.load(opened, device="sim"))


def test_without_a_compiler_the_build_ends_lowered_and_says_what_finishes_it(
    lowered: Callable[[bool], tuple[Path, str]],
) -> None:
    bundle, said = lowered(True)
    manifest = read_manifest(bundle)
    assert manifest.state == "lowered"
    assert (manifest.requires.backend, manifest.requires.device, manifest.requires.ranks) == ("neuron", "trn2", 2)
    assert "neuronx-cc" not in manifest.toolchain
    assert f"eagle3-build finish --bundle {bundle}" in said
    assert {graph.kind for graph in manifest.graphs} == {
        "target_prefill",
        "target_verify",
        "draft_fused_prefill",
        "draft_fused",
    }
    for graph in manifest.graphs:
        assert graph.check is not None
        assert graph.check.tokens_equal
        assert "on XLA:CPU" in graph.check.reference
        assert graph.check.max_abs_error < 1e-3
        record = json.loads((bundle / "graphs" / graph.name / "command.json").read_text())
        assert record["argv"][:2] == ["neuronx-cc", "compile"]
        assert ("-O1" in record["argv"]) == graph.kind.endswith("prefill")
    assert manifest.exactness.scripted_patterns > 0


def test_a_lowered_bundle_runs_on_the_simulator_alone(
    lowered: Callable[[bool], tuple[Path, str]], console: Callable[..., Any]
) -> None:
    bundle, _ = lowered(True)
    plain, speculative = plain_and_simulated(bundle)
    assert speculative == plain
    done = console("runtime.cli", "--bundle", bundle, "--check", "--device", "sim", "--max-tokens", 6, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(json.loads(line)["same"] for line in done.stdout.splitlines())
    done = console("runtime.cli", "--bundle", bundle, "--check")
    assert done.returncode == 5
    assert f"eagle3-build finish --bundle {bundle}" in done.stderr
    assert "--device sim" in done.stderr


def test_several_ranks_write_one_device_s_text(
    lowered: Callable[[bool], tuple[Path, str]], console: Callable[..., Any], config: Callable[[bool], Path]
) -> None:
    """The same models over one rank: the same tokens, exactly."""
    alone = config(True).parent / "alone"
    arguments = ("--config", config(True), "--output", alone, "--set", "tensor_parallel_size=1")
    done = console("aot.cli", *arguments, env=without_compiler())
    assert done.returncode == 0, done.stderr
    assert plain_and_simulated(alone) == plain_and_simulated(lowered(True)[0])


def test_building_again_changes_nothing_and_a_compiler_does(
    lowered: Callable[[bool], tuple[Path, str]], console: Callable[..., Any], config: Callable[[bool], Path]
) -> None:
    bundle, _ = lowered(True)
    copy = bundle.with_name("again")
    shutil.copytree(bundle, copy)
    arguments = ("--config", config(True), "--output", copy, "--json")
    facts = json.loads(console("aot.cli", *arguments, env=without_compiler()).stdout)
    assert (facts["unchanged"], facts["state"]) == (True, "lowered")
    tools = bundle.parent / "tools"
    tools.mkdir()
    compilers.install(tools)
    path = os.pathsep.join((str(tools), os.environ["PATH"]))
    facts = json.loads(console("aot.cli", *arguments, env={"PATH": path}).stdout)
    assert (facts["unchanged"], facts["state"], facts["compiled"]) == (False, "ready", 0)
    assert read_manifest(copy).toolchain["stand_in"] == "yes"


@pytest.mark.parametrize("fused", [True, False])
def test_the_whole_path_with_stand_ins(
    fused: bool, finished: Callable[[bool], Path], runtime: StandIn, tmp_path: Path
) -> None:
    """NEFFs on a runtime by ctypes: plain decoding's text, weights written once, one read a step when fused."""
    bundle = finished(fused)
    opened = open_bundle(bundle)
    manifest = opened.manifest
    plain, simulated = plain_and_simulated(bundle)
    simulate(runtime, bundle, manifest, tmp_path)
    engine = Engine.load(opened)
    written, started = runtime.calls("nrt_tensor_write"), runtime.calls("nrt_tensor_read")
    weights = stored_once(manifest)
    assert written == weights + manifest.requires.ranks, "every stored weight once for each rank, and each one's number"
    found = texts(engine)
    reads = runtime.calls("nrt_tensor_read") - started
    assert runtime.errors == []
    assert found == plain == simulated
    steps = engine.steps
    if fused:
        # A prompt of 21 tokens has two chunks, each a step; nothing is read after the first
        assert reads == steps - 1
    else:
        assert reads > steps


def stored_once(manifest: Manifest) -> int:
    """How many stored tensors the ranks take, each counted once on every rank that holds it."""
    names = {p.name: p.sharded for unit in manifest.units for p in unit.parameters if p.role == "weight"}
    ranks = range(manifest.requires.ranks)
    held = set()
    for name, sharded in names.items():
        layouts = manifest.weights[name]
        held |= {(rank, layouts[f"shard.{rank}" if sharded else "plain"]) for rank in ranks}
    return len(held)


def test_a_real_runtime_refuses_what_a_stand_in_compiled(finished: Callable[[bool], Path], runtime: StandIn) -> None:
    opened = open_bundle(finished(True))
    runtime.set_version(2, 34, 10, 0, detail="2.34.10.0")
    with pytest.raises(IntegrityError, match="NEFFs come from a stand-in") as refused:
        GraphSet(opened, [graph.kind for graph in opened.manifest.graphs])
    assert refused.value.exit_code == 5


def test_graphs_alone_are_built_and_not_run(
    lowered: Callable[[bool], tuple[Path, str]], console: Callable[..., Any], config: Callable[[bool], Path]
) -> None:
    """From config.json files: the same graphs out of the cache, no weights, and a sentence where they would be run."""
    bundle, _ = lowered(True)
    output = bundle.with_name("alone-graphs")
    plain = config(True).read_text().replace("random_weights: {seed: 0}\n", "")
    file = config(True).with_name("graphs.yaml")
    file.write_text(plain, encoding="utf-8")
    done = console("aot.cli", "--config", file, "--output", output, "--json", env=without_compiler())
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["compiled"] == 0
    manifest = read_manifest(output)
    assert (manifest.state, manifest.weights) == ("lowered", {})
    assert [unit.digest for unit in manifest.units] == [unit.digest for unit in read_manifest(bundle).units]
    done = console("runtime.cli", "--bundle", output, "--device", "sim", "--prompt", "x")
    assert done.returncode == 5
    assert "holds graphs alone" in done.stderr


def test_a_wrong_check_graph_fails_the_build(
    config: Callable[[bool], Path], lowered: Callable[[bool], tuple[Path, str]], tmp_path: Path
) -> None:
    """The graph of another one's check in its place: the build stops, and names it."""
    from aot.backends.neuron.backend import CHECK
    from aot.build.backends import backend_and_cache
    from aot.build.models import read_models
    from aot.build.plan import make_plan
    from aot.build.verify_lowered import check_reduced
    from aot.cache import Cache
    from aot.config import load_config
    from aot.seal import SEAL, seal
    from runtime.bundle.errors import CompileError

    lowered(True)
    loaded = load_config(config(True), ())
    models = read_models(loaded)
    backend, cache = backend_and_cache(loaded, models)
    plan = make_plan(loaded, loaded.base, models, backend, cache)
    assert plan.misses == ()
    copy = Cache(tmp_path, needed=cache.needed)
    for unit in plan.units:
        shutil.copytree(cache.entry(unit.key), copy.entry(unit.key))
    assert all(check.tokens_equal for check in check_reduced(plan, backend, copy).values())
    verify = next(unit for unit in plan.units if unit.spec.name.startswith("target_verify"))
    file = copy.entry(verify.key) / CHECK
    data = file.read_bytes()
    # The causal mask hides entries greater than a row's position; now it hides all others. What else compares so (is a
    # row finite?) is turned round with it
    assert b"GT" in data
    file.write_bytes(data.replace(b"GT", b"LE"))
    (copy.entry(verify.key) / SEAL).unlink()
    seal(copy.entry(verify.key), verify.key)
    with pytest.raises(CompileError, match=r"Graph target_verify\.r2\.c48 was lowered to something"):
        check_reduced(plan, backend, copy)


def test_the_bundle_names_no_path(lowered: Callable[[bool], tuple[Path, str]]) -> None:
    bundle, _ = lowered(True)
    for file in bundle.rglob("*"):
        if file.is_file() and file.suffix in (".hlo", ".json") and file.name != "build.json":
            data = file.read_bytes()
            assert str(bundle.parent).encode() not in data
            assert str(Path.home()).encode() + b"/" not in data


def test_opening_for_the_simulator_needs_a_neuron_bundle(finished: Callable[[bool], Path]) -> None:
    assert isinstance(open_bundle(finished(True), device="sim"), Bundle)
