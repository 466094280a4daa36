"""The AOTInductor backend as the build sees it: key factors, and one unit compiled into a folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from aot.backends.aoti.toolchain import Toolchain, detect
from aot.backends.aoti.worker import options
from aot.backends.sources import program_digest
from aot.graphs.units import UnitSpec
from runtime.bundle.manifest import Constant, Graph, Requires, Unit
from runtime.bundle.record import from_json, to_json

if TYPE_CHECKING:
    from torch import Tensor

    from aot.build.workers import Workers
    from aot.graphs.geometry import Geometry
    from aot.graphs.table import GraphTable

# Seconds that one unit took on one core of the machines in README's table; an estimate, said to be one.
SECONDS_PER_UNIT = {"library": 10, "packed": 17}
PINNED_TORCH = "2.13.0"
# The modules at which a compile worker's process starts
ENTRIES = ("aot.backends.aoti.preload", "aot.backends.aoti.worker")


@dataclass(frozen=True)
class AotiBackend:
    """Compiles units for this machine's kind of CPU."""

    toolchain: Toolchain
    name: str = "aoti"
    files: tuple[str, ...] = ("unit.so", "unit.json")
    state: Literal["ready", "lowered"] = "ready"

    @classmethod
    def detect(cls, gemm: str, dtype: str, level: str = "auto") -> AotiBackend:
        """The backend for this machine, as `toolchain.detect` finds it, whose errors it raises."""
        return cls(detect(gemm, dtype, level))

    @cached_property
    def program(self) -> str:
        """Digest of the code that decides a unit's program: all that the compile worker imports, without paths."""
        return program_digest(ENTRIES)

    def factors(self, unit: UnitSpec) -> Mapping[str, str]:
        """Everything that decides the compiled unit, by name. No weights, paths, home folders or environment."""
        chosen, tools = self.toolchain, self.toolchain.tools
        flags = options(chosen.gemm, chosen.march, "")
        return {
            "unit": json.dumps(to_json(unit), sort_keys=True),
            "program": self.program,
            "flags": json.dumps({**flags, "kernel": chosen.kernel}, sort_keys=True),
            "torch": chosen.torch,
            "compiler": "; ".join((chosen.compiler_version, tools) if tools else (chosen.compiler_version,)),
            "target": " ".join((chosen.march, *chosen.features)),
            "threads": str(chosen.threads),
            "caches": " ".join(map(str, chosen.caches)) if chosen.gemm == "packed" else "",
        }

    def describe(self) -> Mapping[str, str]:
        """The toolchain for the manifest."""
        return {
            "torch": self.toolchain.torch,
            "compiler": self.toolchain.compiler_version,
            "march": self.toolchain.march,
            "gemm": self.toolchain.gemm,
        }

    def requires(self, machine: str, system: str) -> Requires:
        """What a host needs to run what this backend compiles."""
        return Requires(
            backend=self.name,
            device="cpu",
            machine=machine,
            system=system,
            cpu_features=self.toolchain.features,
            torch=self.toolchain.torch,
            amx=self.toolchain.amx,
        )

    def notices(self) -> list[str]:
        """What a user should know before building with this toolchain."""
        if self.toolchain.torch == PINNED_TORCH:
            return []
        return [
            f"torch {self.toolchain.torch} is not the release this backend is tested with ({PINNED_TORCH}); "
            "pip install -c constraints.txt torch gives the tested one"
        ]

    def summary(self) -> str:
        """The toolchain in a few words."""
        return f"{self.toolchain.gemm} GEMMs for {self.toolchain.march or 'this architecture'}"

    def units(self, sizes: Geometry, table: GraphTable) -> tuple[UnitSpec, ...]:
        """The table's own: a module compiled once is called with many layers' weights."""
        return table.units

    def graphs(self, table: GraphTable) -> tuple[Graph, ...]:
        return table.graphs

    def unit_seconds(self, spec: UnitSpec) -> float:
        return SECONDS_PER_UNIT[self.toolchain.gemm]

    def unit_bytes(self, spec: UnitSpec) -> int:
        """Bytes of a unit's largest tables: what its compile holds several times over."""
        sizes = spec.arguments
        rows = max(sizes.get("vocab", 0), sizes.get("draft_vocab", 0), 2 * sizes.get("intermediate", 0))
        return 2 * int(rows) * int(sizes.get("hidden", 0))

    def job(self, spec: UnitSpec) -> dict[str, Any]:
        """What a compile worker is told, as JSON."""
        return {
            "unit": to_json(spec),
            "gemm": self.toolchain.gemm,
            "march": self.toolchain.march,
            "features": list(self.toolchain.features),
            "compiler": self.toolchain.compiler,
            "kernel": self.toolchain.kernel,
            "threads": self.toolchain.threads,
        }

    def compile(self, spec: UnitSpec, out: Path, workers: Workers, scratch: Path) -> int:
        return workers.run(self.job(spec), out, self.environment(scratch))

    def complete(self, spec: UnitSpec, out: Path) -> None:
        """Nothing is left to do: the worker writes a unit as it is kept."""

    def place(self, spec: UnitSpec, key: str, entry: Path, staging: Path) -> Unit:
        artifact = f"graphs/{spec.name}/unit.so"
        target = staging / artifact
        target.parent.mkdir(parents=True)
        shutil.copyfile(entry / "unit.so", target)
        target.chmod(0o755)
        record = json.loads((entry / "unit.json").read_text(encoding="utf-8"))
        constants = tuple(from_json(Constant, constant, "constant") for constant in record["constants"])
        return Unit(spec.name, artifact, key, constants, spec.inputs, spec.outputs)

    def layouts(self, full_name: str, layout: str) -> tuple[str, ...]:
        return (layout,)

    def arrange(self, scope: str, name: str, layout: str, weight: Tensor) -> Tensor:
        from aot.backends.aoti.packing import apply

        return apply(layout, weight)

    def environment(self, scratch: Path) -> dict[str, str]:
        """A compile worker's environment: Inductor keeps its files, precompiled headers too, in `scratch`."""
        scratch = scratch.absolute()  # the compiler works in other folders
        temporary = scratch / "tmp"
        temporary.mkdir(parents=True, exist_ok=True)
        return {"TORCHINDUCTOR_CACHE_DIR": str(scratch), "TMPDIR": str(temporary)}
