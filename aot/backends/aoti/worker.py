"""One compile, in a process of its own: `python -m aot.backends.aoti.worker JOB.json OUT_DIR`.

Writes OUT_DIR/unit.so (code only, no weights) and OUT_DIR/unit.json (its constants, with the weight, layout, dtype and
shape that each one takes). Everything it prints goes to the unit's log. The weights it compiles with are random: no
real weight enters the compiler, so one compile serves every layer and every checkpoint of the same shape.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import threading
import zipfile
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any


def options(gemm: str, march: str, compiler: str, threads: int = 1) -> dict[str, Any]:
    """Inductor's configuration for a unit."""
    common: dict[str, Any] = {
        # Weights stay outside: bound by name when the bundle is loaded, shared by every graph
        "aot_inductor.package_constants_in_so": False,
        "aot_inductor.package_constants_on_disk_format": "pickle_weights",
        # Round where PyTorch rounds, whatever gets fused: the same bits for any number of rows
        "emulate_precision_casts": True,
        # No thread count in the code: a bundle built on 64 cores runs well on 2
        "cpp.dynamic_threads": True,
        # How loops and packed products are cut does depend on it: said here, and not found in the environment
        "cpp.threads": threads,
        # Debug sections would be dropped again
        "aot_inductor.enable_line_tables": False,
        "cpp.march": march or None,
        # Registers as the level has them, also where the building CPU has wider ones
        "cpp.simdlen": 256 if march == "x86-64-v3" else None,
        "cpp.cxx": (None, compiler),
    }
    if gemm == "packed":
        # CPP alone: with ATEN in the list, frozen weights can become opaque oneDNN tensors that cannot be stored
        packed = {"freezing": True, "max_autotune": True, "max_autotune_gemm_backends": "CPP"}
        return {**common, **packed}
    return common


def main(job_file: str, out: str) -> None:
    """Compile the unit described in `job_file` into folder `out`."""
    import aot.backends.aoti.preload  # noqa: F401

    compile_unit(json.loads(Path(job_file).read_text(encoding="utf-8")), out)


def run_logged(job: dict[str, Any], out: str, environment: dict[str, str], build: Connection) -> None:
    """Body of a forked worker: its own process group, its output in OUT_DIR/log.txt, then `compile_unit`.

    build: a pipe whose other end the build alone holds.
    """
    lead_group(build)
    log = os.open(Path(out) / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(environment)
    tempfile.tempdir = None  # read TMPDIR again
    compile_unit(job, out)
    own, children = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    (Path(out) / "peak.txt").write_text(str(max(own, children) * 1024), encoding="ascii")


def lead_group(build: Connection) -> None:
    """Begin a process group, which ends when the build is gone: a killed build cannot end it."""
    os.setsid()
    threading.Thread(target=_end_with, args=(build,), daemon=True).start()


def _end_with(build: Connection) -> None:
    os.read(build.fileno(), 1)
    os.killpg(0, signal.SIGKILL)


def compile_unit(job: dict[str, Any], out: str) -> None:
    """Compile the unit of `job` (see `AotiBackend.job`) into folder `out`."""
    import torch

    from aot.graphs.modules import export, fill_random, module
    from aot.graphs.units import UnitSpec
    from runtime.bundle.record import from_json

    spec = from_json(UnitSpec, job["unit"], "unit")
    unit = module(spec)
    fill_random(unit)
    with torch.no_grad():
        program = export(spec, unit)
        from torch._inductor import aoti_compile_and_package

        from aot.backends.aoti.adjust import adjust_inductor

        adjust_inductor(features=job["features"], kernel=job["kernel"])
        with tempfile.TemporaryDirectory(dir=out) as work:
            package = aoti_compile_and_package(
                program,
                package_path=str(Path(work) / "unit.pt2"),
                inductor_configs=options(job["gemm"], job["march"], job["compiler"], job["threads"]),
            )
            unpacked = Path(work) / "unpacked"
            with zipfile.ZipFile(package) as archive:
                archive.extractall(unpacked)
            constants = read_constants(unpacked, dict(unit.named_parameters()))
            library = Path(out) / "unit.so"
            shutil.move(next(unpacked.rglob("*.so")), library)
    names = module_names(library)
    taken = [{"name": names[name], **constant} for name, constant in constants.items() if name in names]
    record = {"constants": sorted(taken, key=lambda constant: str(constant["name"]))}
    missing = sorted(set(names) - set(constants))
    if missing:
        raise RuntimeError(f"the compiled module wants constants that were not packaged: {', '.join(missing)}")
    (Path(out) / "unit.json").write_text(json.dumps(record, indent=1), encoding="utf-8")


def read_constants(unpacked: Path, weights: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The packaged constants of an unpacked .pt2: name -> weight, layout, dtype and shape as `Constant` has them.

    The plain weights are known by name; anything else is a packed form and is recognised by its bits.
    """
    import torch

    from aot.backends.aoti.packing import PLAIN, recognise

    config_file = next(unpacked.rglob("weights_config.json"))
    config = json.loads(config_file.read_text(encoding="utf-8"))
    folder = next(unpacked.rglob("data/weights"), unpacked)
    found = {}
    for name, (file, *_) in config.items():
        if name in weights:
            found[name] = described(name, PLAIN, weights[name])
            continue
        # Written a moment ago by this very process; nothing that came with a model is unpickled
        constant = torch.load(folder / file, weights_only=False)
        match = recognise(constant.detach(), weights)
        if match is None:
            shape = tuple(constant.shape)
            raise RuntimeError(f"packed constant {name} {shape} has a layout that aot.backends.aoti.packing lacks")
        found[name] = described(*match, constant)
    return found


def described(weight: str, layout: str, taken: Any) -> dict[str, Any]:
    """A constant for unit.json: the weight and layout that it is, and the tensor that the code was compiled with."""
    dtype = str(taken.dtype).removeprefix("torch.")
    return {"weight": weight, "layout": layout, "dtype": dtype, "shape": list(taken.shape)}


def module_names(library: Path) -> dict[str, str]:
    """The constants that a compiled module wants: original name -> the name its loader takes."""
    import torch

    runner = torch._C._aoti.AOTIModelContainerRunnerCpu(str(library), 1)
    return {original: name for name, original in runner.get_constant_names_to_original_fqns().items()}


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
