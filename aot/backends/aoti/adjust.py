"""Adjustments to the pinned Inductor, made in the compile worker only.

They are for torch 2.13.0 and are checked by tests/aot/backends: another release may need none, or others.
"""

from __future__ import annotations

import importlib
import itertools
import os
import shlex
import shutil
import sys
import threading
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

from aot.backends.aoti import bf16_bmm, bf16_gemm, level, wide_gemm


def adjust_inductor(*, features: Collection[str], kernel: str = "") -> None:
    """Apply all; the process compiles one unit and ends.

    Args:
        features: CPU flags that the code may use, of `Toolchain`.
        kernel: the bf16 micro-kernel that the GEMM template is offered, of `bf16_gemm.KERNELS`; "" for none. Where the
            CPU has no bf16 instructions (`bf16_bmm.BLOCKS`), batched bf16 products are ours too.
    """
    level.answer_for(features)
    keep_library_bmm()
    name_packed_constants()
    quote_paths()
    write_whole_files()
    keep_headers_in_the_cache()
    hide_build_paths()
    compile_to_the_same_bytes()
    need_no_openssl()
    need_no_semaphore()
    wide_gemm.lower_mm_f32()
    if kernel:
        bf16_gemm.register(kernel)
        if flag := bf16_gemm.KERNELS[kernel].flag:
            compile_with(flag)
    if kernel in bf16_bmm.BLOCKS:
        bf16_bmm.register(kernel)


def compile_with(flag: str) -> None:
    """Add a flag of the C++ compiler, without its dash."""
    from torch._inductor import cpp_builder

    builder: Any = cpp_builder
    flags = builder._get_os_related_cpp_cflags
    builder._get_os_related_cpp_cflags = lambda compiler: [*flags(compiler), flag]


def keep_library_bmm() -> None:
    """Send batched products to ATen whatever the GEMM backend is.

    Inductor's own batched template takes no dynamic width, and attention's products have one.
    """
    bmm: Any = importlib.import_module("torch._inductor.kernel.bmm")

    bmm.use_aten_gemm_kernels = lambda: True
    bmm.use_cpp_bmm_template = lambda *_, **__: False


def name_packed_constants() -> None:
    """Give every frozen constant a name that is never given twice.

    Inductor calls them `constantN` by how many constants there are at that moment. Packing drops the plain weights as
    it goes, so N comes up again, two constants share one original name, and the package keeps only one of them.
    """
    from torch._inductor.graph import GraphLowering

    allocate = GraphLowering.allocate_non_dup_const_name
    numbers = itertools.count()

    def named(self: Any, name: str | None, data: Any) -> str:
        return allocate(self, name if name is not None else f"frozen{next(numbers)}", data)

    GraphLowering.allocate_non_dup_const_name = named  # type: ignore[method-assign]


def quote_paths() -> None:
    """Let folders have names with spaces, quotes and whatever else means something to a shell.

    Inductor joins a command of the C++ compiler into one text, and takes it apart again as a shell would. Of the paths
    in it, it quotes the folders of headers only.
    """
    from torch._inductor.cpp_builder import CppBuilder

    builder: Any = CppBuilder
    init = builder.__init__

    def init_quoted(self: Any, name: str, sources: Any, BuildOption: Any, output_dir: str = "") -> None:
        paths = [sources] if isinstance(sources, str) else sources
        init(self, name, [shlex.quote(path) for path in paths], BuildOption, output_dir)
        self._compiler = shlex.quote(self._compiler)
        self._output = self._output.removesuffix(self._target_file) + shlex.quote(self._target_file)
        self._libraries_dirs_args = "".join(f"-L{shlex.quote(folder)} " for folder in BuildOption.get_libraries_dirs())
        if header := BuildOption.precompiled_header:
            headers = self._include_dirs_args.removeprefix(f"-include {header} ")
            self._include_dirs_args = f"-include {shlex.quote(header)} {headers}"

    builder.__init__ = init_quoted


def write_whole_files() -> None:
    """Give what the C++ compiler writes its name only when it is whole.

    Inductor shares precompiled headers and instruction set probes between compiles and takes a file that is there for
    a good one. A compiler that was killed half way leaves a truncated header, on which every later compile would fail.
    """
    from torch._inductor.cpp_builder import CppBuilder

    builder: Any = CppBuilder
    build = builder.build

    def build_whole(self: Any) -> None:
        target, output = self._target_file, self._output
        partial = f"{target}.{os.getpid()}"
        self._output = output.replace(shlex.quote(target), shlex.quote(partial))
        try:
            build(self)
            os.replace(partial, target)
        finally:
            self._output = output

    builder.build = build_whole


def keep_headers_in_the_cache() -> None:
    """Keep precompiled headers, 300 MB of them, with the compiler's other files.

    Inductor settles their folder, in the system's temporary one, when it is imported: before a worker knows its own.
    """
    from torch._inductor import codecache
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    cache: Any = codecache
    cache._HEADER_DIR = str(Path(cache_dir()) / "precompiled_headers")
    cache._HEADER_LOCK_DIR = str(Path(cache_dir()) / "precompiled_headers" / "locks")


def hide_build_paths() -> None:
    """Keep the build machine's folders out of compiled code.

    Checks in Inductor's headers carry `__FILE__`: the user's home folder would be in every bundle.
    """
    import torch
    from torch._inductor import cpp_builder
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    builder: Any = cpp_builder
    flags = builder._get_os_related_cpp_cflags
    folders = (Path(torch.__file__).parents[1], Path(cache_dir()), Path(cache_dir()).resolve())
    maps = [shlex.quote(f"fmacro-prefix-map={folder}/=") for folder in dict.fromkeys(folders)]
    builder._get_os_related_cpp_cflags = lambda compiler: [*flags(compiler), *maps]


def compile_to_the_same_bytes() -> None:
    """Let one program become the same bytes in every folder, so that two cold builds make one bundle.

    Inductor names a source by a digest over the compiler's command, folders included, and `__FILE__` carries that name
    into the code. The linker's build id is a digest over the whole library as it is before symbols are dropped.
    """
    from torch._inductor.cpp_builder import CppBuilder

    if sys.platform != "linux":  # other linkers have other options
        return
    builder: Any = CppBuilder
    build = builder.build

    def build_the_same(self: Any) -> None:
        if self._do_link:
            self._ldflags_args += "-Wl,--build-id=none -Wl,--strip-all "
        elif not self._precompiling and not self._preprocessing:
            for source in shlex.split(self._sources_args):
                # "cabc123.wrapper.cpp" as "wrapper.cpp"; of several maps that fit, the last one holds
                plain = f"{source}={Path(source).name.partition('.')[2]}"
                self._cflags_args += f"-fmacro-prefix-map={shlex.quote(plain)} "
        build(self)

    builder.build = build_the_same


def need_no_openssl() -> None:
    """Without the `openssl` command, with which Inductor hashes precompiled headers, compile without them, slower."""
    from torch._inductor import config

    if shutil.which("openssl") is None:
        settings: Any = config
        settings.aot_inductor.precompile_headers = False


def need_no_semaphore() -> None:
    """Give tqdm, in which Inductor wraps its loops, a lock of this process alone.

    Its own is a semaphore of the system. Ctrl-C kills workers, and Python would complain of each one that leaked.
    """
    with suppress(ImportError):
        importlib.import_module("tqdm").tqdm.set_lock(threading.RLock())
