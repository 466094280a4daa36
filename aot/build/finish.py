"""Finish a lowered Neuron bundle: compile its graphs to NEFFs with the compiler of this machine.

A bundle is lowered on any machine and finished on one that has neuronx-cc; neither needs a Neuron device. Work goes on
in a staging folder beside the bundle, whose large files are hard links, and one rename publishes it: killed anywhere,
the lowered bundle is as it was, and what compiled is in the cache.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aot.backends.neuron.compiler import Compiler
from aot.backends.neuron.flags import OUTPUT, arguments
from aot.backends.neuron.neff import RECORD, NeffJob, NeffResult, command_record, neff_cache
from aot.backends.neuron.neffs import TIMEOUT, compile_neffs
from aot.build.assemble import (
    BUILD_RECORD,
    check_replaceable,
    list_files,
    log_folder,
    publish,
    write_manifest,
)
from aot.build.turns import turn
from aot.cache import Cache, damage_note, key_of
from aot.seal import Damaged, read_object
from runtime.bundle.errors import ErrorGroup, IntegrityError, UsageError
from runtime.bundle.manifest import GraphKind, Manifest, Unit
from runtime.bundle.neff import read_neff
from runtime.bundle.open import MANIFEST, file_problems, read_manifest
from runtime.bundle.paths import inside
from runtime.bundle.record import parse

if TYPE_CHECKING:  # with it torch, which the machine that finishes a bundle may have in another version
    from aot.build.run import Reporter

BACKEND = "neuron"


@dataclass(frozen=True)
class Finished:
    """What finishing did: the manifest of the bundle as it is now, and one result for each graph that lacked a NEFF."""

    manifest: Manifest
    results: tuple[NeffResult, ...]


def finish_bundle(
    bundle: Path,
    compiler: Compiler,
    cache: Cache,
    reporter: Reporter,
    jobs: int | None = None,
    *,
    timeout: float = TIMEOUT,
) -> Finished:
    """Compile what the bundle in folder `bundle` lacks, and replace it by the finished one.

    A bundle that lacks nothing stays as it is. NEFFs of a stand-in count as lacking when `compiler` is none.

    Args:
        jobs: compilers at once; None: as many as memory allows.
        timeout: seconds for one run of the compiler.

    Raises:
        IntegrityError or an ErrorGroup of them: the bundle is damaged.
        UsageError: it is no Neuron bundle, a symbolic link, or a folder that no rename can replace.
        ErrorGroup of CompileError: graphs failed; the bundle is as it was, the others are in the cache.
    """
    if bundle.is_symlink():
        raise UsageError(
            f"{bundle} is a symbolic link",
            expected="the bundle's folder, which is replaced",
            found="a link",
            repair=f"give --bundle {bundle.resolve()}",
        )
    bundle = bundle.absolute()
    manifest = _finishable(bundle)
    if not lacking(manifest, compiler):
        return Finished(manifest, ())
    elsewhere = "copy the bundle into a folder of yours that is no mount point, and finish it there"
    check_replaceable(bundle, elsewhere, elsewhere)
    with turn(bundle, lambda: reporter.say(f"Waiting for another build of {bundle}")) as held:
        # Another build may have been at it meanwhile
        manifest = _finishable(bundle)
        if not lacking(manifest, compiler):
            return Finished(manifest, ())
        staging = held.new_staging()
        try:
            _link(bundle, manifest, staging)
            finished = compile_staged(
                staging, manifest, compiler, cache, reporter, jobs, timeout=timeout, logs=log_folder(bundle)
            )
            listed = dataclasses.replace(finished.manifest, files=list_files(staging))
            sealed = write_manifest(staging, listed)
            add_to_record(staging, finished.results)
            publish(staging, bundle)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    return Finished(sealed, finished.results)


def _finishable(bundle: Path) -> Manifest:
    """The manifest of the whole Neuron bundle in folder `bundle`; raises as `finish_bundle` does."""
    manifest = read_manifest(bundle)
    if manifest.requires.backend != BACKEND:
        raise UsageError(
            f"{bundle.name} is no Neuron bundle",
            expected=f"a bundle of the backend {BACKEND}",
            found=manifest.requires.backend,
            repair="finish is for Neuron bundles only; others are finished when they are built",
        )
    if problems := file_problems(bundle, manifest):
        raise ErrorGroup(f"The bundle {bundle.name} is damaged", problems)
    return manifest


def compile_staged(
    staging: Path,
    manifest: Manifest,
    compiler: Compiler,
    cache: Cache,
    reporter: Reporter,
    jobs: int | None = None,
    *,
    timeout: float = TIMEOUT,
    logs: Path,
) -> Finished:
    """Compile what a staged Neuron bundle lacks into its folder, graphs/UNIT/graph.neff and command.json.

    Returns a manifest in state "ready" whose units say what their NEFFs are. Its files are still those of `manifest`;
    the caller lists and writes them.

    Raises:
        ErrorGroup of CompileError: graphs failed, each with its log and what to do; the others are in the cache.
    """
    kinds = unit_kinds(manifest)
    units = lacking(manifest, compiler)
    extras = {unit.name: _extra(staging, unit) for unit in units}
    work = [_job(staging, manifest, unit, kinds[unit.name], compiler, extras[unit.name]) for unit in units]
    neffs = neff_cache(cache)
    damages = {job.name: neffs.damage(key_of(job.factors(compiler))) for job in work}
    for name, damage in damages.items():
        if damage:
            reporter.say(damage_note(name, damage))
    if lacks := [name for name, damage in damages.items() if damage != ""]:
        neffs.check_writable(lacks)
    reporter.compiling(len(work))
    try:
        results = compile_neffs(
            work,
            compiler,
            cache,
            logs,
            jobs,
            timeout=timeout,
            started=reporter.unit_started,
            finished=reporter.unit_finished,
        )
    finally:
        reporter.compiled()
    if problems := [result.problem for result in results if result.problem is not None]:
        raise ErrorGroup(f"{len(problems)} of {len(work)} graphs failed; the others are in the cache", problems)
    keys, placed, taken = {result.name: result.key for result in results}, {}, staging / ".taken"
    for unit in units:
        entry = neffs.take(keys[unit.name], taken)
        placed[unit.name] = _place(staging, unit, entry, compiler, extras[unit.name])
        shutil.rmtree(taken)
    toolchain = {**manifest.toolchain, "neuronx-cc": compiler.version}
    toolchain.pop("stand_in", None)
    made = tuple(placed.get(unit.name, unit) for unit in manifest.units)
    if any(unit.neff is not None and unit.neff.stand_in for unit in made):
        toolchain["stand_in"] = "yes"
    return Finished(dataclasses.replace(manifest, state="ready", toolchain=toolchain, units=made), tuple(results))


def lacking(manifest: Manifest, compiler: Compiler) -> list[Unit]:
    """The units without a NEFF, or with one of a stand-in's that a real compiler can replace."""
    return [unit for unit in manifest.units if unit.neff is None or (unit.neff.stand_in and not compiler.stand_in)]


def unit_kinds(manifest: Manifest) -> dict[str, GraphKind]:
    """The kind of the graph that each unit is.

    Raises:
        IntegrityError: a unit belongs to no graph, or to graphs of several kinds.
    """
    kinds: dict[str, set[GraphKind]] = {unit.name: set() for unit in manifest.units}
    for graph in manifest.graphs:
        for call in graph.calls:
            kinds.setdefault(call.unit, set()).add(graph.kind)
    for name, found in kinds.items():
        if len(found) != 1:
            raise IntegrityError(
                f"It is not clear what unit {name} is compiled as",
                expected="graphs of one kind that call it",
                found=", ".join(sorted(found)) or "no graph",
                repair="rebuild the bundle with eagle3-build",
            )
    return {name: found.pop() for name, found in kinds.items()}


def _job(
    staging: Path, manifest: Manifest, unit: Unit, kind: GraphKind, compiler: Compiler, extra: tuple[str, ...]
) -> NeffJob:
    requires = manifest.requires
    flags = arguments(kind, target=requires.device, lnc=requires.lnc, release=compiler.release, extra=extra)
    return NeffJob(unit.name, inside(staging, unit.artifact), tuple(flags), requires.lnc)


def _extra(staging: Path, unit: Unit) -> tuple[str, ...]:
    """The user's own compiler arguments, which lowering noted in command.json."""
    file = inside(staging, _beside(unit, RECORD))
    try:
        record = parse(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ()
    except (OSError, ValueError) as error:
        record = str(error)
    extra = record.get("extra", []) if isinstance(record, dict) else None
    if not isinstance(extra, list) or not all(isinstance(argument, str) for argument in extra):
        raise IntegrityError(
            f"{_beside(unit, RECORD)} is not readable",
            expected='JSON with a list of texts under "extra"',
            found=record if isinstance(record, str) else "something else",
            repair="rebuild the bundle with eagle3-build",
        )
    return tuple(extra)


def _place(staging: Path, unit: Unit, entry: Path, compiler: Compiler, extra: tuple[str, ...]) -> Unit:
    """Copy a NEFF from the cache into the staged bundle; returns the unit with what its header says."""
    path = _beside(unit, OUTPUT)
    neff = staging / path
    # What is there may be a hard link to the file of the bundle that is being finished
    neff.unlink(missing_ok=True)
    (entry / OUTPUT).rename(neff)
    made = json.loads((entry / RECORD).read_text(encoding="utf-8"))
    record = command_record(made["flags"], made["compiler"], made["attempts"], extra)
    _replace(staging / _beside(unit, RECORD), json.dumps(record, indent=1) + "\n")
    return dataclasses.replace(unit, neff=read_neff(neff, path, stand_in=compiler.stand_in))


def _beside(unit: Unit, name: str) -> str:
    return f"{unit.artifact.rpartition('/')[0]}/{name}".lstrip("/")


def _replace(file: Path, text: str) -> None:
    """Write a new file in the place of one that may be a hard link to another bundle's."""
    file.unlink(missing_ok=True)
    file.write_text(text, encoding="utf-8")


def _link(bundle: Path, manifest: Manifest, staging: Path) -> None:
    """Give `staging` every file that the manifest lists, and build.json; the manifest itself is written anew."""
    for relative in (*manifest.files, BUILD_RECORD):
        source, target = inside(bundle, relative), staging / relative
        if relative == MANIFEST or not source.is_file():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, target)
        except OSError:  # a file system without hard links
            shutil.copyfile(source, target)


def add_to_record(staging: Path, results: tuple[NeffResult, ...]) -> None:
    """Say in build.json, outside the bundle's id, how long each graph took here."""
    file = staging / BUILD_RECORD
    try:
        record = read_object(file)
    except Damaged:
        record = {}
    record["neffs"] = [
        {"name": r.name, "key": r.key, "seconds": round(r.seconds, 2), "attempts": r.attempts, "cached": r.cached}
        for r in results
    ]
    _replace(file, json.dumps(record, indent=1))
