"""The Neuron backend as the build sees it: graphs as units, lowered by a worker, brought into our form and linted."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from aot.backends.neuron.chain import RANK, ChainSpec, chain
from aot.backends.neuron.compiler import Compiler, missing, placeholders
from aot.backends.neuron.environment import LoweringPython, worker_environment
from aot.backends.neuron.flags import arguments
from aot.backends.neuron.hlo.lint import findings
from aot.backends.neuron.hlo.passes import Lowered, canonical, noted_from_json
from aot.backends.neuron.neff import RECORD, NeffJob, command_record, neff_cache
from aot.backends.sources import program_digest
from aot.cache import Cache, key_of
from runtime.bundle.errors import CompileError, Eagle3Error, ErrorGroup
from runtime.bundle.interface import Parameter, Result
from runtime.bundle.manifest import Call, Constant, Graph, Requires, Unit
from runtime.bundle.record import from_json, to_json

if TYPE_CHECKING:
    from torch import Tensor

    from aot.build.plan import PlannedUnit
    from aot.build.workers import Workers
    from aot.graphs.geometry import Geometry
    from aot.graphs.table import GraphTable

BACKEND = "neuron"
HLO, CHECK, RECORDED = "graph.hlo", "check.hlo", "unit.json"
# A weight of which every rank has a part of its own; the parts are stored as shard.0, shard.1, ...
SHARD = "shard"
# The modules at which a lowering worker's process starts, and that bring into our form what it wrote
ENTRIES = ("aot.backends.neuron.worker", "aot.backends.neuron.hlo.passes")
# What says which weights are sharded
ALONE = ("aot.backends.neuron.backend", "aot.build.sharding")


@dataclass(frozen=True)
class NeuronBackend:
    """Lowers whole graphs for `target`; `compiler` makes NEFFs of them where there is one."""

    python: LoweringPython
    target: str
    lnc: int
    ranks: int
    sizes: Geometry
    compiler: Compiler | None = None
    extra: tuple[str, ...] = ()
    name: str = BACKEND
    files: tuple[str, ...] = (HLO, CHECK, RECORDED)
    state: Literal["ready", "lowered"] = "lowered"

    @cached_property
    def program(self) -> str:
        """Digest of the code that decides a unit's HLO, without paths, comments and docstrings."""
        return program_digest(ENTRIES, alone=ALONE)

    def units(self, sizes: Geometry, table: GraphTable) -> tuple[ChainSpec, ...]:
        """Every graph as one unit, with the same graph over few layers beside it for the check on the CPU."""
        from aot.graphs.reduced import reduced
        from aot.graphs.table import graph_table

        small = reduced(sizes)
        checks = {spec.name: spec for spec in _chains(small, graph_table(small))}
        return tuple(replace(spec, check=checks[spec.name]) for spec in _chains(sizes, table))

    def factors(self, spec: ChainSpec) -> Mapping[str, str]:
        """Everything that decides the HLO. Target and compiler do not: they decide what is made of it."""
        return {
            "unit": json.dumps(to_json(spec), sort_keys=True),
            "program": self.program,
            "torch": self.python.torch,
            "torch-xla": self.python.torch_xla,
        }

    def describe(self) -> Mapping[str, str]:
        """The toolchain for the manifest."""
        found = {"torch": self.python.torch, "torch-xla": self.python.torch_xla, "target": self.target}
        return {**found, "neuronx-cc": self.compiler.version} if self.compiler else found

    def summary(self) -> str:
        compiler = f"neuronx-cc {self.compiler.version}" if self.compiler else "no neuronx-cc here"
        ranks = f"TP {self.ranks}, " if self.ranks > 1 else ""
        return f"{ranks}{self.target} lnc {self.lnc}, torch-xla {self.python.torch_xla}, {compiler}"

    def requires(self, machine: str, system: str) -> Requires:
        return Requires(BACKEND, self.target, "", "linux", (), "", False, ranks=self.ranks, lnc=self.lnc)

    def notices(self) -> list[str]:
        """Whether NEFFs will be made, and which packages hold a name of AWS's and nothing else."""
        held = [f"{error.sentence().rstrip('.')}; {error.repair}" for error in placeholders()]
        if self.compiler is None:
            why = missing().sentence().rstrip(".")
            return [
                *held,
                f"{why}; the build ends with state lowered, and eagle3-build finish makes the NEFFs elsewhere",
            ]
        if self.compiler.stand_in:
            return [*held, "this neuronx-cc is a stand-in for tests: no device can run what it makes"]
        return held

    def unit_seconds(self, spec: ChainSpec) -> float:
        """Measured on the machine of README's table: two seconds for imports, then by the number of calls."""
        return 3.0 + 0.05 * len(spec.calls)

    def unit_bytes(self, spec: ChainSpec) -> int:
        """Nothing: weights exist in name only."""
        return 0

    def compile(self, spec: ChainSpec, out: Path, workers: Workers, scratch: Path) -> int:
        job = out / "job.json"
        job.write_text(json.dumps(to_json(spec)), encoding="utf-8")
        argv = [self.python.executable, "-m", "aot.backends.neuron.worker", str(job), str(out)]
        code, peak = workers.command(argv, out / "log.txt", worker_environment(out / "packages"))
        (out / "peak.txt").write_text(str(peak), encoding="ascii")
        return code

    def complete(self, spec: ChainSpec, out: Path) -> None:
        """Bring the raw modules into our form, lint them, and write what a bundle and a check need."""
        record: dict[str, Any] = {}
        for raw, wanted, file in (("raw", spec, HLO), ("check", spec.check or spec, CHECK)):
            lowered = read_raw(out / f"{raw}.hlo", out / f"{raw}.json", wanted)
            (out / file).write_bytes(lowered.data)
            record[raw] = {"parameters": to_json(lowered.parameters), "results": to_json(lowered.results)}
        (out / RECORDED).write_text(json.dumps(record, indent=1), encoding="utf-8")

    def place(self, spec: ChainSpec, key: str, entry: Path, staging: Path) -> Unit:
        folder = staging / "graphs" / spec.name
        folder.mkdir(parents=True)
        shutil.copyfile(entry / HLO, folder / HLO)
        flags = arguments(spec.kind, target=self.target, lnc=self.lnc, extra=self.extra)
        record = command_record(flags, extra=self.extra)
        (folder / RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        return self.unit(spec, key, f"graphs/{spec.name}/{HLO}", entry, "raw")

    def without_neff(self, units: Sequence[PlannedUnit], cache: Cache) -> list[str]:
        """Of lowered units those whose NEFF the cache lacks, by name; none where there is no compiler to make them."""
        if self.compiler is None:
            return []
        lacking = []
        for unit in units:
            flags = arguments(
                unit.spec.kind, target=self.target, lnc=self.lnc, release=self.compiler.release, extra=self.extra
            )
            job = NeffJob(unit.spec.name, cache.entry(unit.key) / HLO, tuple(flags), self.lnc)
            if not neff_cache(cache).has(key_of(job.factors(self.compiler))):
                lacking.append(unit.spec.name)
        return lacking

    def unit(self, spec: ChainSpec, key: str, artifact: str, entry: Path, which: str) -> Unit:
        """A unit over the tables that `complete` wrote; `which` is "raw" for the graph, "check" for its check."""
        record = json.loads((entry / RECORDED).read_text(encoding="utf-8"))[which]
        parameters = tuple(from_json(Parameter, data, "parameter") for data in record["parameters"])
        results = tuple(from_json(Result, data, "result") for data in record["results"])
        constants = tuple(
            Constant(p.name, p.name, SHARD if p.sharded else "plain", p.dtype, p.shape)
            for p in parameters
            if p.role == "weight"
        )
        inputs = (*spec.inputs, *spec.pools)
        return Unit(spec.name, artifact, key, constants, inputs, spec.outputs, parameters, results)

    def graphs(self, table: GraphTable) -> tuple[Graph, ...]:
        """Every graph as one call of the unit of its name."""
        made = []
        for graph, spec in zip(table.graphs, _chains(self.sizes, table), strict=True):
            values = tuple(value.name for value in (*spec.inputs, *spec.pools))
            call = Call(graph.name, "", values, tuple(value.name for value in spec.outputs))
            made.append(dataclasses.replace(graph, inputs=spec.inputs, outputs=spec.outputs, calls=(call,)))
        return tuple(made)

    def layouts(self, full_name: str, layout: str) -> tuple[str, ...]:
        return tuple(f"{SHARD}.{rank}" for rank in range(self.ranks)) if layout == SHARD else (layout,)

    def arrange(self, scope: str, name: str, layout: str, weight: Tensor) -> Tensor:
        from aot.build.sharding import shard

        if not layout.startswith(f"{SHARD}."):
            return weight
        part: Tensor = shard(scope, name, weight, int(layout.removeprefix(f"{SHARD}.")), self.sizes)
        return part.contiguous()


def _chains(sizes: Geometry, table: GraphTable) -> list[ChainSpec]:
    units = {unit.name: unit for unit in table.units}
    return [
        chain(
            graph,
            units,
            sizes.dtype,
            block_size=sizes.block_size,
            num_blocks=sizes.num_blocks,
            ranks=sizes.ranks,
        )
        for graph in table.graphs
    ]


def read_raw(raw: Path, noted: Path, spec: ChainSpec) -> Lowered:
    """What a worker lowered, in our form and linted.

    Raises:
        CompileError or an ErrorGroup of them: each names the graph and the operator.
    """
    facts = noted_from_json(json.loads(noted.read_text(encoding="utf-8")))
    weights = [name for _, name, role in facts.parameters if role == "weight"]
    order = [*weights, *(pool.name for pool in spec.pools), RANK.name, *(value.name for value in spec.inputs)]
    try:
        lowered = canonical(raw.read_bytes(), facts, name=spec.name, ranks=spec.ranks, order=order)
    except ValueError as error:
        raise CompileError(
            f"Graph {spec.name} was lowered to something else",
            expected="the module that its program describes",
            found=str(error),
            repair="this is a defect of the builder; please report it with the unit's log",
        ) from None
    lowered = replace(lowered, parameters=tuple(_with_sharding(p, spec.ranks) for p in lowered.parameters))
    problems: list[Eagle3Error] = [
        CompileError(
            finding.sentence(spec.name),
            repair="this is a defect of the builder; please report it with the unit's log",
        )
        for finding in findings(lowered.data, lowered.parameters, lowered.results, spec.ranks)
    ]
    if problems:
        raise problems[0] if len(problems) == 1 else ErrorGroup(f"Graph {spec.name} would not compile", problems)
    return lowered


def _with_sharding(parameter: Parameter, ranks: int) -> Parameter:
    if ranks == 1:
        return parameter
    if parameter.role == "weight":
        from aot.build.sharding import is_sharded

        scope, name = split_name(parameter.name)
        return replace(parameter, sharded=is_sharded(scope, name))
    return replace(parameter, sharded=parameter.role in ("kv", "rank"))


def split_name(full_name: str) -> tuple[str, str]:
    """A weight's full name as scope and name: "target.layers.3", "mlp.down_proj.weight"; "draft", "fc.weight"."""
    parts = full_name.split(".")
    length = 1 if parts[0] == "draft" else 3 if parts[1] == "layers" else 2
    return ".".join(parts[:length]), ".".join(parts[length:])
