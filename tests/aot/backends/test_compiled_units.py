"""One decoder layer compiled in each way: the same numbers within rounding, every packed weight recognised."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from aot.backends.aoti.backend import AotiBackend
from aot.backends.aoti.packing import PLAIN, apply
from aot.backends.aoti.toolchain import LEVELS, detect
from aot.build.models import read_models
from aot.config import load_config
from aot.graphs.geometry import geometry
from aot.graphs.modules import dtype_of, fill_random, module
from aot.graphs.table import graph_table
from aot.graphs.units import UnitSpec
from runtime.bundle.host import cpu_features

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[3]
LINEARS = ("self_attn.qkv_proj", "self_attn.o_proj", "mlp.gate_up_proj", "mlp.down_proj")


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compilers' folder: precompiled headers are made once for each -march level."""
    return tmp_path_factory.mktemp("scratch")


def layer_spec(tiny_config: Path, name: str, dtype: str = "bfloat16") -> UnitSpec:
    config = load_config(tiny_config, (f"dtype={dtype}",))
    models = read_models(config)
    return next(unit for unit in graph_table(geometry(config, models.target, models.draft)).units if unit.name == name)


def compile_unit(spec: UnitSpec, out: Path, scratch: Path, gemm: str, level: str = "auto") -> dict[str, Any]:
    """Compile `spec` into `out` in a process of its own; returns weight -> layout.

    `level` may be one that this CPU lacks: the code is compiled and not run.
    """
    out.mkdir()
    toolchain = detect(gemm)
    if level != "auto":
        march, features = LEVELS[level]
        toolchain = dataclasses.replace(toolchain, march=march, features=features)
    (out / "job.json").write_text(json.dumps(AotiBackend(toolchain).job(spec)))
    # Not the worker's own main, which forgets the folder that all compiles of a module share
    script = (
        "from aot.backends.aoti.worker import compile_unit\nimport json\n"
        f"compile_unit(json.load(open({str(out / 'job.json')!r})), {str(out)!r})"
    )
    settings = {"TORCHINDUCTOR_CACHE_DIR": str(scratch), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, **settings}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    torch.cpu._init_amx()  # as the runtime does: the system gives a process its tiles when it asks for them
    return {
        c["weight"].removesuffix(".weight"): c["layout"]
        for c in json.loads((out / "unit.json").read_text())["constants"]
    }


def layer_inputs(spec: UnitSpec) -> list[Tensor]:
    """4 rows of one request at positions 0..3 in block 1 of a pool of 8."""
    random = torch.Generator().manual_seed(3)
    named: dict[str, Tensor] = {
        "positions": torch.arange(4, dtype=torch.int32),
        "slot_mapping": torch.arange(16, 20, dtype=torch.int32),
        "block_table": torch.tensor([[1, 0, 0, 0]], dtype=torch.int32),
    }
    made = []
    for value in spec.inputs:
        shape = [8 if isinstance(dim, str) else dim for dim in value.shape]
        tensor = torch.randn(shape, generator=random).to(dtype_of(value.dtype))
        made.append(named.get(value.name, torch.zeros_like(tensor) if "pool" in value.name else tensor))
    return made


def run_compiled(spec: UnitSpec, out: Path) -> list[Tensor]:
    """The outputs and both pools of the compiled unit, with the weights that `fill_random` gives."""
    inputs = layer_inputs(spec)
    return [*run_unit(spec, out, inputs), *inputs[-2:]]


def run_unit(spec: UnitSpec, out: Path, inputs: list[Tensor]) -> list[Tensor]:
    """The outputs of the compiled unit on `inputs`."""
    unit = module(spec)
    fill_random(unit)
    weights = dict(unit.named_parameters())
    record = json.loads((out / "unit.json").read_text())
    constants = {c["name"]: apply(c["layout"], weights[c["weight"]].detach().clone()) for c in record["constants"]}
    runner: Any = torch._C._aoti.AOTIModelContainerRunnerCpu(str(out / "unit.so"), 1)  # type: ignore[attr-defined]
    runner.update_constant_buffer(constants, False, True, True)
    outputs: list[Tensor] = runner.run(inputs)
    return outputs


def run_eager(spec: UnitSpec) -> list[Tensor]:
    unit = module(spec)
    fill_random(unit)
    inputs = layer_inputs(spec)
    with torch.no_grad():
        output = unit(*inputs)
    return [*(output if isinstance(output, tuple) else (output,)), *inputs[-2:]]


def test_a_packed_layer_computes_what_the_library_one_does(tiny_config: Path, tmp_path: Path, scratch: Path) -> None:
    spec = layer_spec(tiny_config, "target_layer.r1x4")
    layouts = compile_unit(spec, tmp_path / "packed", scratch, "packed")
    plain = compile_unit(spec, tmp_path / "library", scratch, "library")
    assert set(plain.values()) == {PLAIN}
    assert set(layouts) == set(plain)
    assert all(layouts[linear].startswith("block") for linear in LINEARS), layouts
    eager = run_eager(spec)
    packed, library = run_compiled(spec, tmp_path / "packed"), run_compiled(spec, tmp_path / "library")
    assert len(packed) == len(library) == len(eager) == 3
    for ours, theirs, right in zip(packed, library, eager, strict=True):
        assert right.abs().max() > 0.01, "a comparison of zeros says nothing"
        scale = float(right.abs().max())
        assert (ours - theirs).abs().max() <= 2**-6 * scale
        assert (ours - right).abs().max() <= 2**-6 * scale


def runs(level: str) -> pytest.MarkDecorator:
    missing = set(LEVELS[level][1]) - cpu_features()
    return pytest.mark.skipif(bool(missing), reason=f"this CPU has no {', '.join(sorted(missing))}")


# The level, the layout of its packed weights, and of the instructions that tell levels apart those that it has
KERNELS = [
    pytest.param("amx", "block32_pair2", {"tdpbf16ps", "zmm"}, marks=runs("amx")),
    pytest.param("avx512_bf16", "block32_pair2", {"vdpbf16ps", "zmm"}, marks=runs("avx512_bf16")),
    pytest.param("avx512", "block32_pair2", {"zmm"}, marks=runs("avx512")),
    pytest.param("avx2", "block16_pair2", set(), marks=runs("avx2")),
]
TELLING = {"tdpbf16ps", "vdpbf16ps", "zmm"}
# Those without Inductor's own
OUR_KERNELS = [pytest.param(*param.values[:2], marks=param.marks) for param in KERNELS[1:]]


def instructions(library: Path) -> set[str]:
    """Which of `TELLING` are in the code of a unit."""
    disassembler = shutil.which("objdump")
    if disassembler is None:
        pytest.skip("objdump, which tells what was compiled, is not installed")
    code = subprocess.run([disassembler, "-d", library], capture_output=True, text=True, check=True).stdout
    return {name for name in TELLING if name in code}


@pytest.mark.parametrize(("level", "layout", "has"), KERNELS)
def test_our_kernels_compute_a_layer(
    tiny_config: Path, tmp_path: Path, scratch: Path, level: str, layout: str, has: set[str]
) -> None:
    """Each level that this CPU can run, also from a host that has more than it (T1)."""
    spec = layer_spec(tiny_config, "target_layer.r1x4")
    layouts = compile_unit(spec, tmp_path / "own", scratch, "packed", level)
    assert {linear: layouts[linear] for linear in LINEARS} == dict.fromkeys(LINEARS, layout)
    for ours, right in zip(run_compiled(spec, tmp_path / "own"), run_eager(spec), strict=True):
        assert (ours - right).abs().max() <= 2**-6 * float(right.abs().max())
    if level in ("avx2", "avx512"):
        assert_attention_is_ours(spec, tmp_path / "own")
    assert instructions(tmp_path / "own" / "unit.so") == has


@pytest.mark.parametrize("level", ["avx2", pytest.param("avx512", marks=runs("avx512"))])
def test_the_librarys_units_stay_at_their_level_too(
    tiny_config: Path, tmp_path: Path, scratch: Path, level: str
) -> None:
    compile_unit(layer_spec(tiny_config, "target_layer.r1x4"), tmp_path / "own", scratch, "library", level)
    assert instructions(tmp_path / "own" / "unit.so") == ({"zmm"} if level == "avx512" else set())


def assert_attention_is_ours(spec: UnitSpec, out: Path) -> None:
    """Nothing is left to the library's batched product, and blocks behind the context change no bit."""
    assert b"aoti_torch_cpu_bmm" not in (out / "unit.so").read_bytes()
    made = []
    for blocks in (1, 2, 4, 7):
        inputs = layer_inputs(spec)
        table = torch.zeros(1, blocks, dtype=torch.int32)
        table[0, 0] = 1
        inputs[[value.name for value in spec.inputs].index("block_table")] = table
        made.append(run_unit(spec, out, inputs)[0])
    assert made[0].any()
    assert all(torch.equal(made[0], other) for other in made[1:])


@pytest.mark.parametrize(("level", "layout"), [pytest.param(*p.values[:2], marks=p.marks) for p in KERNELS])
def test_our_kernels_pad_columns_that_fill_no_block(
    tiny_config: Path, tmp_path: Path, scratch: Path, level: str, layout: str
) -> None:
    """A vocabulary of 250 fills no last block; its padded columns must not win."""
    head = layer_spec(tiny_config, "target_verify_head.r1x4")
    spec = dataclasses.replace(head, arguments={**head.arguments, "vocab": 250, "with_logits": True})
    layouts = compile_unit(spec, tmp_path / "own", scratch, "packed", level)
    assert layouts["lm_head"] == layout
    unit = module(spec)
    fill_random(unit)
    rows = torch.randn(4, 64, generator=torch.Generator().manual_seed(5)).to(torch.bfloat16)
    integers = [torch.zeros(4, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)]
    with torch.no_grad():
        right = unit(rows, *integers, rows, rows, rows)[2]
    logits = run_unit(spec, tmp_path / "own", [rows, *integers, rows, rows, rows])[2]
    assert logits.shape == (4, 250)
    assert logits.dtype == torch.float32
    assert not torch.equal(logits, logits.bfloat16().float()), "sums that were rounded on the way (T2)"
    record = json.loads((tmp_path / "own" / "unit.json").read_text())
    assert [c["layout"] for c in record["constants"] if c["weight"] == "lm_head.weight"] == [layout], "no second copy"
    assert (logits - right).abs().max() <= 2**-6 * float(right.abs().max())


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_the_librarys_head_gives_float32_sums(tiny_config: Path, tmp_path: Path, scratch: Path, dtype: str) -> None:
    """T2, with plain weights; of narrow ones every row by itself, whatever stands beside it."""
    head = layer_spec(tiny_config, "target_verify_head.r1x4", dtype)
    rows = torch.randn(4, 64, generator=torch.Generator().manual_seed(5)).to(dtype_of(dtype))
    spec = dataclasses.replace(head, arguments={**head.arguments, "with_logits": True})
    compile_unit(spec, tmp_path / "own", scratch, "library")
    integers = [torch.zeros(4, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)]
    unit = module(spec)
    fill_random(unit)
    with torch.no_grad():
        right = unit(rows, *integers, rows, rows, rows)[2]
    logits = run_unit(spec, tmp_path / "own", [rows, *integers, rows, rows, rows])[2]
    assert (logits - right).abs().max() <= 2**-6 * float(right.abs().max())
    assert not torch.equal(logits, logits.to(torch.float16).float())
    if dtype == "float32":
        return  # the library's own product
    turned = rows.flip(0).contiguous()
    again = run_unit(spec, tmp_path / "own", [turned, *integers, turned, turned, turned])[2]
    assert torch.equal(again.flip(0), logits)


@pytest.mark.parametrize(("level", "layout"), OUR_KERNELS)
def test_an_odd_depth_is_left_to_inductors_kernel(
    tiny_config: Path, tmp_path: Path, scratch: Path, level: str, layout: str
) -> None:
    layer = layer_spec(tiny_config, "target_layer.r1x4")
    spec = dataclasses.replace(layer, arguments={**layer.arguments, "intermediate": 127})
    layouts = compile_unit(spec, tmp_path / "own", scratch, "packed", level)
    assert layouts["mlp.gate_up_proj"] == layout
    assert "pair" not in layouts["mlp.down_proj"]
    for ours, right in zip(run_compiled(spec, tmp_path / "own"), run_eager(spec), strict=True):
        assert (ours - right).abs().max() <= 2**-6 * float(right.abs().max())


@pytest.mark.skipif(platform.machine() != "x86_64", reason="AMX belongs to x86-64")
@pytest.mark.parametrize("name", ["target_layer.r1x4", "target_layer.r1x16"])
def test_the_layouts_of_an_amx_host_are_known(tiny_config: Path, tmp_path: Path, scratch: Path, name: str) -> None:
    out = tmp_path / "amx"
    spec = layer_spec(tiny_config, name)
    layouts = compile_unit(spec, out, scratch, "packed", "amx")
    assert {linear: layouts[linear] for linear in LINEARS} == dict.fromkeys(LINEARS, "block32_pair2")
    assert "tdpbf16ps" in instructions(out / "unit.so"), "the code is not for AMX at all"
