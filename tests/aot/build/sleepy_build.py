"""A build whose compiler only sleeps: `SLEEPY=FOLDER python sleepy_build.py [options of eagle3-build]`.

It goes through the command, the pool, the cache and the worker processes. Each worker starts a compiler and says so in
FOLDER/NAME, with the ids of both processes. The unit "quick" is compiled at once, the others sleep.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from aot import cli
from aot.backends.aoti import worker
from aot.backends.aoti.backend import AotiBackend
from aot.backends.aoti.toolchain import Toolchain
from aot.build import workers
from aot.build.plan import PlannedUnit
from aot.build.pool import compile_all
from aot.cache import Cache, cache_root, key_of
from aot.graphs.units import UnitSpec


def planned(name: str) -> PlannedUnit:
    spec = UnitSpec(name, "target_embed", "float32", {}, (), ())
    factors = {"unit": json.dumps({"name": name, "dtype": "float32"})}
    return PlannedUnit(spec, key_of(factors), factors, hit=False, reason="never compiled here")


def sleepy_worker(job: dict[str, Any], out: str, environment: dict[str, str], build: Connection) -> None:
    """Stands for `worker.run_logged`."""
    worker.lead_group(build)
    name, folder = job["unit"]["name"], Path(os.environ["SLEEPY"])
    if name == "quick":
        (Path(out) / "unit.so").touch()
        (Path(out) / "unit.json").touch()
        return
    compiler = subprocess.Popen(["sleep", "600"])
    (folder / f"{name}.part").write_text(f"{os.getpid()} {compiler.pid}")
    (folder / f"{name}.part").rename(folder / name)
    compiler.wait()


def sleepy_build(*arguments: Any, timeout: float, **options: Any) -> None:
    """Stands for `cli.build`."""
    backend = AotiBackend(Toolchain("g++", "g++ 12", "x86-64-v3", (), "library", "2.13.0"))
    units = [planned(name) for name in ("quick", "one", "two")]
    logs = Path(os.environ["SLEEPY"]) / "logs"
    results = compile_all(units, backend, Cache(cache_root()), logs, 3, timeout=timeout)
    print(json.dumps({r.name: r.problem and r.problem.to_json() for r in results}))


if __name__ == "__main__":
    # In place of torch, which a sleeping compiler does not need
    workers.PRELOADED[:] = os.environ.get("SLEEPY_PRELOAD", "").split()
    workers.run_logged = sleepy_worker
    cli.build = sleepy_build
    sys.argv[1:1] = ["--config", "none.yaml"]
    cli.main()
