"""The compiler and the instruction set that units are compiled for."""

from __future__ import annotations

import dataclasses
import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aot.backends.aoti import toolchain
from aot.backends.aoti.backend import AotiBackend
from aot.backends.aoti.toolchain import Toolchain, check_folders, detect, find_compiler
from aot.backends.aoti.worker import options
from aot.build.backends import backend_and_cache
from aot.build.models import read_models
from aot.cache import key_of
from aot.config import load_config
from aot.graphs.units import UnitSpec
from runtime.bundle.errors import HostError
from runtime.bundle.host import check_host

AVX2 = "avx2 bmi1 bmi2 f16c fma abm movbe"
AVX512 = AVX2 + " avx512f avx512bw avx512cd avx512dq avx512vl"
ICE_LAKE = AVX512 + " avx512_vnni"
EPYC = AVX512 + " avx512_vnni avx512_bf16"
SAPPHIRE_RAPIDS = AVX512 + " avx512_vnni avx512_bf16 avx512_fp16 amx_tile amx_bf16 amx_int8"


@pytest.fixture(autouse=True)
def x86(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")


@pytest.mark.parametrize(
    ("flags", "march", "features"),
    [
        ("sse4_2 popcnt", "x86-64-v2", ""),
        (AVX2 + " sse4_2", "x86-64-v3", AVX2),
        # AVX512 without one of its v4 parts is v3: a compiler told v4 may use all of them
        (AVX512.replace(" avx512dq", ""), "x86-64-v3", AVX2),
        (AVX512, "x86-64-v4", AVX512),
        (EPYC, "x86-64-v4", EPYC),
        # AMX tiles without the bf16 product are no AMX
        (SAPPHIRE_RAPIDS.replace(" amx_bf16", ""), "x86-64-v4", EPYC),
        (
            SAPPHIRE_RAPIDS,
            "x86-64-v4",
            AVX512 + " amx_tile amx_bf16 amx_int8 avx512_fp16 avx512_vnni avx512_bf16",
        ),
    ],
)
def test_instruction_set_follows_the_cpu_flags(flags: str, march: str, features: str) -> None:
    assert toolchain._instruction_set(frozenset(flags.split())) == (march, tuple(features.split()))


def test_other_architectures_take_the_compilers_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert toolchain._instruction_set(frozenset({"asimd", "sve"})) == ("", ())


@pytest.mark.parametrize(
    ("flags", "asked", "dtype", "gemm", "kernel"),
    [
        (SAPPHIRE_RAPIDS, "auto", "bfloat16", "packed", ""),
        (EPYC, "auto", "bfloat16", "packed", "avx512_bf16"),
        (EPYC, "auto", "float32", "library", ""),
        (EPYC, "auto", "float16", "library", ""),
        (ICE_LAKE, "auto", "bfloat16", "packed", "avx512"),
        (AVX512, "auto", "bfloat16", "packed", "avx512"),
        (AVX512, "library", "bfloat16", "library", ""),
        (AVX512.replace(" avx512dq", ""), "auto", "bfloat16", "packed", "avx2"),
        (AVX2, "auto", "bfloat16", "packed", "avx2"),
        (AVX2, "auto", "float32", "library", ""),
        ("sse4_2 popcnt", "auto", "bfloat16", "library", ""),
        ("sse4_2 popcnt", "packed", "bfloat16", "packed", ""),
        (SAPPHIRE_RAPIDS, "library", "bfloat16", "library", ""),
    ],
)
def test_bf16_is_packed_for_the_best_kernel_that_the_cpu_has(
    monkeypatch: pytest.MonkeyPatch, flags: str, asked: str, dtype: str, gemm: str, kernel: str
) -> None:
    monkeypatch.setattr(toolchain, "cpu_features", lambda: frozenset(flags.split()))
    found = detect(asked, dtype)
    assert (found.gemm, found.kernel) == (gemm, kernel)


@pytest.mark.parametrize("flags", [AVX2, AVX512, EPYC])
def test_a_kernels_level_is_what_a_bundle_requires(monkeypatch: pytest.MonkeyPatch, flags: str) -> None:
    backend = backend_for(flags, monkeypatch)
    assert set(backend.requires("x86_64", "linux").cpu_features) == set(flags.split())
    # Whoever has less is refused, so that no kernel meets a CPU that lacks its instructions
    fewer = frozenset(flags.split()) - {flags.split()[-1]}
    monkeypatch.setattr("runtime.bundle.host.cpu_features", lambda: fewer)
    with pytest.raises(HostError):
        check_host(backend.requires(platform.machine(), platform.system().lower()))


def test_each_kernel_has_keys_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    unit = UnitSpec("unit", "target_layer", "bfloat16", {}, (), ())
    keys = {key_of(backend_for(flags, monkeypatch).factors(unit)) for flags in (AVX2, AVX512, EPYC, SAPPHIRE_RAPIDS)}
    assert len(keys) == 4


@pytest.mark.parametrize(
    ("level", "march", "features", "kernel"),
    [
        ("auto", "x86-64-v4", SAPPHIRE_RAPIDS, ""),
        ("amx", "x86-64-v4", SAPPHIRE_RAPIDS, ""),
        ("avx512_bf16", "x86-64-v4", EPYC, "avx512_bf16"),
        ("avx512", "x86-64-v4", AVX512, "avx512"),
        ("avx2", "x86-64-v3", AVX2, "avx2"),
    ],
)
def test_a_level_below_the_cpu_s_own_is_compiled_keyed_and_required(
    monkeypatch: pytest.MonkeyPatch, level: str, march: str, features: str, kernel: str
) -> None:
    """T1: what is forced decides the flags, the kernel, the cache key and what a host needs."""
    backend_for(SAPPHIRE_RAPIDS, monkeypatch)
    backend = AotiBackend.detect("auto", "bfloat16", level)
    assert (backend.toolchain.march, backend.toolchain.kernel) == (march, kernel)
    assert set(backend.requires("x86_64", "linux").cpu_features) == set(features.split())
    unit = UnitSpec("unit", "target_layer", "bfloat16", {}, (), ())
    assert set(backend.job(unit)["features"]) == set(features.split())
    highest = AotiBackend.detect("auto", "bfloat16", "amx")
    assert (key_of(backend.factors(unit)) == key_of(highest.factors(unit))) == (level in ("auto", "amx"))


def test_a_level_that_the_cpu_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    backend_for(AVX2, monkeypatch)
    with pytest.raises(HostError) as caught:
        AotiBackend.detect("auto", "bfloat16", "avx512")
    assert "cpu_level avx512" in caught.value.sentence()
    assert caught.value.found == "no avx512f, avx512bw, avx512cd, avx512dq, avx512vl"


def test_the_worker_answers_for_the_level_and_not_for_the_host() -> None:
    """In a process of its own: what it changes is PyTorch's."""
    script = (
        "import sys, torch.cpu\nfrom aot.backends.aoti.level import answer_for\n"
        "from torch._inductor.cpu_vec_isa import x86_isa_checker\nfor features in sys.argv[1:]:\n"
        "    answer_for(features.split())\n"
        "    print(*x86_isa_checker(), torch.cpu._is_avx512_bf16_supported(), torch.cpu._is_amx_fp16_supported())"
    )
    wanted = {
        AVX2: "avx2 False False",
        AVX512: "avx2 avx512 False False",
        EPYC: "avx2 avx512 avx512_vnni True False",
        SAPPHIRE_RAPIDS: "avx2 avx512 avx512_vnni amx_tile True False",
    }
    done = subprocess.run([sys.executable, "-c", script, *wanted], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == list(wanted.values())


@pytest.mark.parametrize(
    ("gemm", "changes", "factor"),
    [
        ("library", {"threads": 3}, "threads"),
        ("packed", {"threads": 3}, "threads"),
        ("packed", {"caches": (1, 2)}, "caches"),
        ("library", {"caches": (1, 2)}, None),  # sizes no block there
        ("library", {"tools": "GNU ld 3"}, "compiler"),
        ("library", {"compiler": "/elsewhere/g++"}, None),
    ],
)
def test_p3_what_else_of_a_machine_decides_a_units_bytes_is_in_its_key(
    gemm: str, changes: dict[str, Any], factor: str | None
) -> None:
    unit = UnitSpec("unit", "target_layer", "bfloat16", {}, (), ())
    chosen = Toolchain("/usr/bin/g++", "g++ 12", "x86-64-v4", (), gemm, "2.13.0", 2, (49152, 2097152), "GNU ld 2.40")
    before = AotiBackend(chosen).factors(unit)
    after = AotiBackend(dataclasses.replace(chosen, **changes)).factors(unit)
    assert [name for name in before if before[name] != after[name]] == ([factor] if factor else [])


def test_p3_a_job_says_nothing_that_the_key_does_not_but_where_the_compiler_lies() -> None:
    unit = UnitSpec("unit", "target_layer", "bfloat16", {}, (), ())
    chosen = AotiBackend(Toolchain("/usr/bin/g++", "g++ 12", "x86-64-v4", ("avx512_bf16",), "packed", "2.13.0", 7))
    factors = chosen.factors(unit)
    told = {**json.loads(factors["flags"]), "unit": json.loads(factors["unit"]), "march": factors["target"].split()[0]}
    told["features"] = factors["target"].split()[1:]
    told |= {"threads": int(factors["threads"]), "gemm": "packed" if told["freezing"] else "library"}
    job = chosen.job(unit)
    assert job.pop("compiler") == "/usr/bin/g++"
    assert job == {name: told[name] for name in job}


def test_the_caches_of_a_core_are_read_where_the_system_tells(tmp_path: Path) -> None:
    kinds = [("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "2M"), ("3", "Unified", "odd")]
    for number, parts in enumerate(kinds):
        folder = tmp_path / f"index{number}"
        folder.mkdir()
        for name, text in zip(("level", "type", "size"), parts, strict=True):
            (folder / name).write_text(f"{text}\n")
    assert toolchain._caches(tmp_path) == (48 << 10, 2 << 20)
    assert toolchain._caches(tmp_path / "nowhere") == (0, 0)


@pytest.mark.parametrize("name", ["CPATH", "LIBRARY_PATH", "GCC_EXEC_PREFIX"])
def test_p3_variables_that_steer_the_compiler_are_in_the_key_and_name_no_folder(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    tools = toolchain._tools.__wrapped__
    monkeypatch.delenv(name, raising=False)
    without = tools("/nowhere/g++")
    found = set()
    for folder in ("/home/me/include", "/opt/include"):
        monkeypatch.setenv(name, folder)
        found.add(tools("/nowhere/g++"))
        assert folder not in tools("/nowhere/g++")
    assert len({without, *found}) == 3


def test_a_level_without_wide_registers_is_compiled_without_them() -> None:
    assert options("packed", "x86-64-v3", "g++")["cpp.simdlen"] == 256
    assert options("packed", "x86-64-v4", "g++")["cpp.simdlen"] is None


def fake_compiler(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text("#!/bin/sh\necho fake compiler 1.0\n")
    file.chmod(0o755)
    return file


def test_cxx_comes_before_what_is_on_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_compiler(tmp_path, "g++")
    clang = fake_compiler(tmp_path, "clang++")
    mine = fake_compiler(tmp_path / "elsewhere", "my-c++")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CXX", str(mine))
    assert find_compiler() == str(mine)
    monkeypatch.delenv("CXX")
    assert find_compiler() == str(tmp_path / "g++")
    (tmp_path / "g++").unlink()
    assert find_compiler() == str(clang)


def test_no_compiler_is_a_host_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(HostError) as caught:
        find_compiler()
    assert caught.value.sentence() == (
        "This machine cannot build for the CPU: expected a C++ compiler (CXX, g++ or clang++) on the PATH, found none."
    )
    assert caught.value.exit_code == 4
    assert caught.value.repair == "install one, for example with: apt-get install g++"


def backend_for(flags: str, monkeypatch: pytest.MonkeyPatch) -> AotiBackend:
    monkeypatch.setattr(toolchain, "cpu_features", lambda: frozenset(flags.split()))
    monkeypatch.setattr(toolchain, "find_compiler", lambda: "/opt/bin/g++")
    monkeypatch.setattr(toolchain, "_version", lambda compiler: "g++ 12.2.0")
    return AotiBackend.detect("auto", "bfloat16")


def test_a_bundle_requires_what_its_code_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    requires = backend_for(SAPPHIRE_RAPIDS, monkeypatch).requires("x86_64", "linux")
    assert set(requires.cpu_features) == set(SAPPHIRE_RAPIDS.split())
    assert requires.amx
    assert (requires.backend, requires.device) == ("aoti", "cpu")
    assert not backend_for(AVX512, monkeypatch).requires("x86_64", "linux").amx


def test_a_host_without_the_features_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    requires = backend_for(SAPPHIRE_RAPIDS, monkeypatch).requires("x86_64", platform.system().lower())
    monkeypatch.setattr("runtime.bundle.host.cpu_features", lambda: frozenset(AVX512.split()))
    with pytest.raises(HostError) as caught:
        check_host(requires)
    assert caught.value.exit_code == 4
    assert caught.value.found == "no amx_bf16, amx_int8, amx_tile, avx512_bf16, avx512_fp16, avx512_vnni"
    monkeypatch.setattr("runtime.bundle.host.cpu_features", lambda: frozenset(SAPPHIRE_RAPIDS.split()))
    check_host(requires)


def test_another_torch_release_is_said() -> None:
    tested = AotiBackend(Toolchain("g++", "g++ 12", "x86-64-v3", (), "library", "2.13.0"))
    other = AotiBackend(Toolchain("g++", "g++ 12", "x86-64-v3", (), "library", "2.9.1"))
    assert tested.notices() == []
    assert other.notices() == [
        "torch 2.9.1 is not the release this backend is tested with (2.13.0); "
        "pip install -c constraints.txt torch gives the tested one"
    ]


@pytest.mark.parametrize("name", ["plain", "it's a folder", "(é) *[f] #g {h} %i ~=!&"])
def test_m1_folders_may_have_spaces_quotes_and_what_a_shell_reads(tmp_path: Path, name: str) -> None:
    check_folders({"the build cache (EAGLE3_CACHE)": tmp_path / name})


@pytest.mark.parametrize("name", ["a:b", "a;b", "$HOME", 'say "x"', "back\\slash", "new\nline", "\udcff"])
def test_m1_a_folder_in_which_the_compiler_would_fail_is_told_first(tmp_path: Path, name: str) -> None:
    with pytest.raises(HostError) as caught:
        check_folders({"torch (the environment)": tmp_path, "the build cache (EAGLE3_CACHE)": tmp_path / name})
    assert "EAGLE3_CACHE" in caught.value.sentence()


def test_m1_a_build_asks_before_it_plans(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny_config: Path) -> None:
    monkeypatch.setenv("EAGLE3_CACHE", str(tmp_path / "a;b"))
    config = load_config(tiny_config)
    with pytest.raises(HostError, match="EAGLE3_CACHE"):
        backend_and_cache(config, read_models(config))
