"""What the build wants of a compiler: its toolchain, the factors of a key, a unit compiled and put into a bundle.

A backend decides what a unit is. AOTInductor's is one module that many calls share; Neuron's is a whole graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from runtime.bundle.manifest import Graph, Requires, Unit

if TYPE_CHECKING:
    from torch import Tensor

    from aot.build.workers import Workers
    from aot.graphs.geometry import Geometry
    from aot.graphs.table import GraphTable

# A UnitSpec or a ChainSpec: each backend gets back what its `units` made, and all have a name
Spec = Any


class BuildBackend(Protocol):
    """A compiler behind the build.

    Attributes:
        name: the manifest's `requires.backend`.
        files: of a compiled unit, those that are kept in the cache beside its log.
        state: of a bundle whose units are compiled.
    """

    @property
    def name(self) -> str: ...

    @property
    def files(self) -> tuple[str, ...]: ...

    @property
    def state(self) -> Literal["ready", "lowered"]: ...

    def units(self, sizes: Geometry, table: GraphTable) -> tuple[Spec, ...]:
        """What is compiled for the graphs of `table`."""
        ...

    def factors(self, spec: Spec) -> Mapping[str, str]:
        """Everything that decides the compiled unit, by name. No weights, paths, home folders or environment."""
        ...

    def describe(self) -> Mapping[str, str]:
        """The toolchain for the manifest."""
        ...

    def summary(self) -> str:
        """The toolchain in a few words, for `plan`."""
        ...

    def requires(self, machine: str, system: str) -> Requires:
        """What a host needs to run what this backend compiles on a machine of this kind."""
        ...

    def notices(self) -> list[str]:
        """What a user should know before building with this toolchain."""
        ...

    def unit_seconds(self, spec: Spec) -> float:
        """An estimate of the core-seconds that a unit takes."""
        ...

    def unit_bytes(self, spec: Spec) -> int:
        """Bytes of a unit's weights while it compiles, which its worker holds several times."""
        ...

    def compile(self, spec: Spec, out: Path, workers: Workers, scratch: Path) -> int:
        """Compile a unit into the folder `out` in its own process, which logs to log.txt; returns its exit code."""
        ...

    def complete(self, spec: Spec, out: Path) -> None:
        """Finish and check what the worker left in `out`; raises CompileError where it is wrong."""
        ...

    def place(self, spec: Spec, key: str, entry: Path, staging: Path) -> Unit:
        """Copy a compiled unit from its cache entry into a staged bundle, and describe it."""
        ...

    def graphs(self, table: GraphTable) -> tuple[Graph, ...]:
        """The graphs as the manifest has them, over this backend's units."""
        ...

    def layouts(self, full_name: str, layout: str) -> tuple[str, ...]:
        """The layouts to store of a weight that a unit takes in `layout`."""
        ...

    def arrange(self, scope: str, name: str, layout: str, weight: Tensor) -> Tensor:
        """A weight of a scope in one of the layouts."""
        ...
