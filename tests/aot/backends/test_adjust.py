"""The adjustments to Inductor do what they are for in the release that is installed."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[3]


ADJUST = "from aot.backends.aoti.adjust import adjust_inductor\nadjust_inductor(features=())"


def in_a_worker(script: str, scratch: Path, **environment: str) -> str:
    """Run `script` after the adjustments in a process of its own, as a worker does; returns what it printed."""
    settings = {"TORCHINDUCTOR_CACHE_DIR": str(scratch), "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run(
        [sys.executable, "-c", f"{ADJUST}\n{script}"],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# A compiler that is killed half way, then one that is not
HALF_A_FILE = """
from pathlib import Path
from torch._inductor import cpp_builder
from torch._inductor.cpp_builder import CppBuilder, CppOptions

folder = Path({folder!r})
(folder / "header.h").write_text("int one();")

def compiler_that(dies):
    def run(command, cwd):
        words = command.split()
        output = Path(words[words.index("-o") + 1])
        output.write_text("half" if dies else "whole")
        if dies:
            raise RuntimeError("killed")
    return run

def build():
    CppBuilder(
        name=str(folder / "header.h"), sources=str(folder / "header.h"), BuildOption=CppOptions(precompiling=True)
    ).build()

cpp_builder.run_compile_cmd = compiler_that(dies=True)
try:
    build()
except RuntimeError:
    pass
print(*sorted(file.name.split(".gch")[0] + ".gch" for file in folder.glob("*.gch")) or ["none"])
cpp_builder.run_compile_cmd = compiler_that(dies=False)
build()
print((folder / "header.h.gch").read_text())
"""


def test_a_header_has_its_name_only_when_it_is_whole(tmp_path: Path) -> None:
    folder = tmp_path / "headers"
    folder.mkdir()
    assert in_a_worker(HALF_A_FILE.format(folder=str(folder)), tmp_path / "scratch").split() == ["none", "whole"]


def test_compiled_code_names_sources_without_the_build_machines_folders(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch with space"
    script = (
        "from torch._inductor.cpp_builder import CppBuilder, CppTorchOptions\n"
        "print(CppBuilder(name='a', sources='a.cpp', BuildOption=CppTorchOptions()).get_command_line())"
    )
    words = shlex.split(in_a_worker(script, scratch))
    assert f"-fmacro-prefix-map={scratch}/=" in words
    assert f"-fmacro-prefix-map={Path(torch.__file__).parents[1]}/=" in words


# One source under two names, compiled and linked as Inductor does it
ONE_PROGRAM = """
from pathlib import Path
from torch._inductor.cpp_builder import CppBuilder, CppOptions

made = []
for folder, name in (({first!r}, "cabc"), ({second!r}, "cxyzcxyz")):
    folder = Path(folder)
    folder.mkdir()
    source = folder / f"{{name}}.wrapper.cpp"
    source.write_text('extern "C" const char* where() {{ return __FILE__; }} static const char* at = where();')
    unit = CppBuilder(name=str(folder / name), sources=str(source), BuildOption=CppOptions(compile_only=True))
    unit.build()
    library = CppBuilder(name=str(folder / name), sources=unit.get_target_file_path(), BuildOption=CppOptions())
    library.build()
    made.append(Path(library.get_target_file_path()).read_bytes())
print(made[0] == made[1], b"wrapper.cpp" in made[0], str(folder).encode() in made[1], name.encode() in made[1])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the linker's options are GNU's")
def test_t3_one_program_is_the_same_bytes_whatever_its_folder_and_its_name(tmp_path: Path) -> None:
    script = ONE_PROGRAM.format(first=str(tmp_path / "one"), second=str(tmp_path / "the_other_one"))
    assert in_a_worker(script, tmp_path / "scratch").split() == ["True", "True", "False", "False"]


@pytest.mark.parametrize("there", [True, False])
def test_headers_are_precompiled_where_openssl_is(tmp_path: Path, there: bool) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    if there:
        (folder / "openssl").write_text("#!/bin/sh\n")
        (folder / "openssl").chmod(0o755)
    script = "from torch._inductor import config\nprint(config.aot_inductor.precompile_headers)"
    assert in_a_worker(script, tmp_path / "scratch", PATH=str(folder)) == str(there)


def test_frozen_constants_never_share_a_name(tmp_path: Path) -> None:
    script = (
        "from types import SimpleNamespace\n"
        "import torch\n"
        "from torch._inductor.graph import GraphLowering\n"
        "graph = GraphLowering.__new__(GraphLowering)\n"
        "graph.constants, graph.constant_reprs, graph.allocated_constant_name = {}, {}, {}\n"
        "graph.seen_subgraphs, graph.name = set(), None\n"
        "names = []\n"
        "for value in range(3):\n"
        "    names.append(graph.allocate_non_dup_const_name(None, torch.tensor([value])))\n"
        "    graph.constants = {}\n"
        "print(len(set(names)))"
    )
    assert in_a_worker(script, tmp_path / "scratch") == "3"


def test_precompiled_headers_lie_in_the_cache_whenever_inductor_was_imported(tmp_path: Path) -> None:
    script = (
        "import os, torch._inductor.codecache as codecache\n"
        f"os.environ['TORCHINDUCTOR_CACHE_DIR'] = {str(tmp_path / 'mine')!r}\n"
        "adjust_inductor(features=())\n"
        "print(codecache._HEADER_DIR, codecache._HEADER_LOCK_DIR)"
    )
    folders = in_a_worker(script, tmp_path / "another").split()
    assert folders == [str(tmp_path / "mine/precompiled_headers"), str(tmp_path / "mine/precompiled_headers/locks")]


def test_a_progress_bar_takes_no_semaphore_of_the_system(tmp_path: Path) -> None:
    script = (
        "import multiprocessing.synchronize as synchronize\n"
        "made = []\n"
        "synchronize.SemLock.__init__ = lambda self, *_, **__: made.append(self)\n"
        "from tqdm import tqdm\n"
        "list(tqdm([1], disable=True))\n"
        "print(len(made))"
    )
    assert in_a_worker(script, tmp_path / "scratch") == "0"


def test_variables_that_steer_the_compiler_do_not_reach_it() -> None:
    script = (
        "import aot.backends.aoti.preload\n"
        "import os\n"
        "steering = ('TORCHIND', 'ATEN_', 'AOT_', 'LD_RUN')\n"
        "print(*sorted(f'{name}={os.environ[name]}' for name in os.environ if name.startswith(steering)))"
    )
    tricks = {"TORCHINDUCTOR_FREEZING": "1", "TORCHINDUCTOR_CACHE_DIR": "/x", "ATEN_CPU_CAPABILITY": "default"}
    tricks |= {"AOT_INDUCTOR_DEBUG_COMPILE": "1", "AOT_INDUCTOR_ENABLE_LTO": "1", "LD_RUN_PATH": "/x"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(ROOT), **tricks},
        capture_output=True,
        text=True,
        check=True,
    )
    # Importing Inductor sets its cache folder, which each worker replaces by its own
    settings = dict(word.split("=") for word in done.stdout.split())
    assert settings.pop("TORCHINDUCTOR_CACHE_DIR", "") != "/x"
    assert settings == {"TORCHINDUCTOR_COMPILE_THREADS": "1"}


# Sources, target, libraries, headers and the compiler itself, with paths that a shell would take apart
ODD_COMMAND = """
import json, shlex
from torch._inductor import config, cpp_builder
from torch._inductor.cpp_builder import CppBuilder, CppTorchOptions

folder = {folder!r}
options = CppTorchOptions()
options._libraries_dirs.append(folder + "/lib")
options._compiler = folder + "/c++"
options.precompiled_header = folder + "/header.h"
builder = CppBuilder(name="a", sources=[folder + "/a.cpp", folder + "/b.cpp"], BuildOption=options, output_dir=folder)
ran = []
def run(command, cwd):
    words = shlex.split(command)
    ran.append(words)
    open(words[words.index("-o") + 1], "w").close()
cpp_builder.run_compile_cmd = run
builder.build()
print(json.dumps(ran))
"""


def test_m1_the_compiler_gets_paths_whole_whatever_is_in_them(tmp_path: Path) -> None:
    folder = tmp_path / "it's (a) folder & more"
    folder.mkdir()
    ((compiler, *words),) = json.loads(in_a_worker(ODD_COMMAND.format(folder=str(folder)), tmp_path / "scratch"))
    assert compiler == f"{folder}/c++"
    assert words[:2] == [f"{folder}/a.cpp", f"{folder}/b.cpp"]
    assert words[words.index("-include") + 1] == f"{folder}/header.h"
    assert words[words.index("-o") + 1].startswith(f"{folder}/a.so.")
    assert f"-L{folder}/lib" in words
    assert (folder / "a.so").is_file()
