"""What compiles on this machine, and for which CPUs: the factors of a unit's cache key. Imports no torch."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from aot.build.machine import cores
from runtime.bundle.errors import HostError
from runtime.bundle.host import cpu_features, torch_release

# What the compiler's -march levels mean in the kernel's names for CPU flags.
_V3 = ("avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe")
_V4 = ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_AMX = ("amx_tile", "amx_bf16", "amx_int8", "avx512_fp16", "avx512_vnni", "avx512_bf16")
# Levels below the machine's own that a build can be told to stay at: -march and the flags that code may use.
LEVELS = {
    "avx2": ("x86-64-v3", _V3),
    "avx512": ("x86-64-v4", _V3 + _V4),
    "avx512_bf16": ("x86-64-v4", (*_V3, *_V4, "avx512_vnni", "avx512_bf16")),
    "amx": ("x86-64-v4", _V3 + _V4 + _AMX),
}
# Variables by which GCC finds headers, libraries and its own parts.
_STEERING = ("CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX")

# In a folder's name these mean something to what reads it: the loader's search path (: ; $), and C and Python source
_SPECIAL = frozenset(':;$"\\')


@dataclass(frozen=True)
class Toolchain:
    """The compiler and the instruction set that units are compiled for.

    Attributes:
        compiler: path of the C++ compiler that was found.
        compiler_version: first line of its --version.
        march: the -march level; never "native", so that a bundle runs on any host with `features`.
        features: CPU flags that the compiled code may use.
        gemm: "packed" (weights frozen into the layout of Inductor's GEMM template) or "library" (plain weights,
            ATen's oneDNN).
        torch: release of torch.
        threads: how many parts the work of loops and packed products is cut into; any number of threads can run them.
        caches: bytes of one core's data cache and of its second cache, which size packed products' blocks; 0 where
            the system does not tell.
        tools: versions of assembler and linker, and digests of the variables that steer them.
    """

    compiler: str
    compiler_version: str
    march: str
    features: tuple[str, ...]
    gemm: str
    torch: str
    threads: int = 1
    caches: tuple[int, int] = (0, 0)
    tools: str = ""

    @property
    def amx(self) -> bool:
        return "amx_tile" in self.features

    @property
    def kernel(self) -> str:
        """Which of our micro-kernels packed bf16 GEMMs use (`bf16_gemm.KERNELS`); with AMX "", Inductor has its own."""
        if self.gemm != "packed" or self.amx:
            return ""
        if "avx512_bf16" in self.features:
            return "avx512_bf16"
        if self.march == "x86-64-v4":
            return "avx512"
        return "avx2" if self.march == "x86-64-v3" else ""


def find_compiler() -> str:
    """The C++ compiler: $CXX, else g++, else clang++ on the PATH.

    Raises:
        HostError: there is none (exit code 4).
    """
    for candidate in (os.environ.get("CXX"), "g++", "clang++", "c++"):
        if candidate and (path := shutil.which(candidate)):
            return path
    raise HostError(
        "This machine cannot build for the CPU",
        expected="a C++ compiler (CXX, g++ or clang++) on the PATH",
        found="none",
        repair="install one, for example with: apt-get install g++",
    )


def torch_folder() -> Path:
    """Where torch is installed; importing it would take seconds."""
    spec = find_spec("torch")
    return Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else Path()


def check_folders(folders: Mapping[str, Path]) -> None:
    """Refuse folders through whose names Inductor cannot compile; spaces and apostrophes are no problem.

    Inductor would not fail in all of them: some only keep its probes from running, and then the code is scalar.

    Args:
        folders: by what they are and how the user moves them, as "the build cache (EAGLE3_CACHE)".

    Raises:
        HostError: a name has one of `_SPECIAL`, or a character that does not print (exit code 4).
    """
    for what, folder in folders.items():
        if bad := sorted({c for c in str(folder.absolute()) if c in _SPECIAL or not c.isprintable()}):
            raise HostError(
                f"The compiler cannot work in the folder of {what}",
                expected=f"a path without control characters and without any of {' '.join(sorted(_SPECIAL))}",
                found=f"{' '.join(bad)} in {folder}",
                repair="choose another folder",
            )


def detect(gemm: str = "auto", dtype: str = "bfloat16", level: str = "auto") -> Toolchain:
    """The toolchain of this machine for weights of `dtype`.

    Args:
        gemm: "auto" packs bf16 weights where a kernel multiplies them at the speed of memory: with AMX tiles
            Inductor's own (measured on a Xeon: a decode pass 1.7 times faster), with AVX512-BF16, AVX-512 or AVX2 and
            FMA ours (`bf16_gemm`). Older CPUs and other dtypes take the library.
        level: "auto" for all that this CPU has, or one of `LEVELS`.

    Raises:
        HostError: there is no C++ compiler, or the CPU lacks the level: a build runs what it has compiled.
    """
    compiler = find_compiler()
    march, features = _instruction_set(cpu_features()) if level == "auto" else _of_level(level, cpu_features())
    if gemm == "auto":
        gemm = "packed" if features and dtype == "bfloat16" else "library"
    return Toolchain(
        compiler, _version(compiler), march, features, gemm, torch_release(), cores(), _caches(), _tools(compiler)
    )


def _instruction_set(flags: frozenset[str]) -> tuple[str, tuple[str, ...]]:
    """The -march level for a CPU with `flags`, and the flags that code for it may use."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return "", ()  # Inductor's default for the architecture
    if not flags.issuperset(_V3):
        return "x86-64-v2", ()
    if not flags.issuperset(_V4):
        return "x86-64-v3", _V3
    extra = tuple(flag for flag in ("avx512_vnni",) if flag in flags)
    if "avx512_bf16" in flags:
        extra += ("avx512_bf16",)
    if flags.issuperset(_AMX):
        extra = _AMX
    return "x86-64-v4", _V3 + _V4 + extra


def _of_level(level: str, flags: frozenset[str]) -> tuple[str, tuple[str, ...]]:
    """The -march level and the flags of one of `LEVELS`, which a CPU with `flags` must have."""
    march, features = LEVELS[level]
    if missing := [flag for flag in features if flag not in flags]:
        raise HostError(
            f"This CPU lacks the instructions of backend.cpu_level {level}, and a build runs what it has compiled",
            expected=", ".join(features),
            found=f"no {', '.join(missing)}",
            repair="build on a CPU that has them, or leave backend.cpu_level out",
        )
    return march, features


@functools.cache
def _version(compiler: str) -> str:
    return _first_line(compiler, "--version") or "unknown"


@functools.cache
def _tools(compiler: str) -> str:
    """What else makes code of a compiler's output."""
    said = [_first_line(_first_line(compiler, f"-print-prog-name={tool}"), "--version") for tool in ("as", "ld")]
    for name in _STEERING:
        if value := os.environ.get(name):
            said.append(f"{name} {hashlib.sha256(os.fsencode(value)).hexdigest()[:16]}")
    return "; ".join(said)


def _first_line(*command: str) -> str:
    try:
        run = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError:
        return ""
    return run.stdout.partition("\n")[0].strip()


def _caches(cpu: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> tuple[int, int]:
    """Bytes of the first core's data cache and second cache."""
    found = {}
    for folder in cpu.glob("index*"):
        level, kind, size = (_text(folder / name) for name in ("level", "type", "size"))
        if kind != "Instruction" and size[:-1].isdigit():
            found[level] = int(size[:-1]) * {"K": 1 << 10, "M": 1 << 20}.get(size[-1], 1)
    return found.get("1", 0), found.get("2", 0)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
