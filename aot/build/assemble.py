"""A bundle in a staging folder: units from the cache, weights, tokenizer, manifest."""

from __future__ import annotations

import os
import platform
import re
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from aot.build.turns import aside
from aot.cache import Cache, sync_file, sync_folder
from aot.exchange import exchange
from aot.seal import Damaged, naming, read_object
from runtime.bundle.errors import UsageError
from runtime.bundle.manifest import (
    FORMAT_VERSION,
    Exactness,
    FileEntry,
    KVCache,
    Limits,
    Manifest,
    Model,
    Speculation,
    Unit,
    WeightRef,
)
from runtime.bundle.open import MAX_MANIFEST_BYTES, ROW_CONVENTION, sha256_file
from runtime.bundle.unlisted import BUILD_RECORD as BUILD_RECORD  # for the other steps of a build
from runtime.bundle.unlisted import MANIFEST, UNLISTED

if TYPE_CHECKING:  # with it torch, which finishing a bundle elsewhere does not need
    from aot.backends.protocol import BuildBackend
    from aot.build.plan import Models, Plan


def place_units(plan: Plan, backend: BuildBackend, cache: Cache, staging: Path) -> tuple[Unit, ...]:
    """Copy every compiled unit into `staging/graphs` and describe it.

    Raises:
        IntegrityError: an entry of the cache was changed since it was planned or compiled.
    """
    placed, taken = [], staging / ".taken"
    for unit in plan.units:
        placed.append(backend.place(unit.spec, unit.key, cache.take(unit.key, taken), staging))
        shutil.rmtree(taken)
    return tuple(placed)


def draft_manifest(
    plan: Plan,
    backend: BuildBackend,
    units: tuple[Unit, ...],
    weights: Mapping[str, Mapping[str, WeightRef]],
    fingerprints: tuple[str, str],
    version: str,
    draft_digests: Mapping[str, str],
) -> Manifest:
    """The manifest of a bundle that has not been verified: no checks, no promise, no files.

    Args:
        draft_digests: beside the draft's configuration, such as that of its vocabulary map.
    """
    sizes, models, config = plan.geometry, plan.models, plan.config
    t, d = sizes.target, sizes.draft
    named = models.target_source is not None or models.without_weights
    target_reference, draft_reference = references(
        config.model if named else None, config.speculative_config.model if named else None
    )
    return Manifest(
        format_version=FORMAT_VERSION,
        bundle_id="",
        name=config.name,
        state=backend.state,
        builder=f"eagle3-aot {version}",
        dtype=sizes.dtype,
        target=Model(
            target_reference,
            fingerprints[0],
            t.vocab_size,
            t.hidden_size,
            t.eos_token_ids,
            models.target.to_json(),
        ),
        draft=Model(
            draft_reference,
            fingerprints[1],
            d.vocab_size,
            d.hidden_size,
            (),
            {**models.draft.to_json(), **draft_digests},
        ),
        speculation=Speculation(
            "eagle3",
            sizes.num_speculative_tokens,
            tuple(d.aux_layers),
            ROW_CONVENTION,
            () if sizes.schedule is None else sizes.schedule.ranges,
        ),
        limits=Limits(sizes.max_model_len, sizes.max_num_seqs),
        buckets=sizes.buckets,
        kv_cache=KVCache(sizes.block_size, sizes.num_blocks, sizes.kv_groups()),
        exactness=Exactness("exact" if sizes.exact_greedy else "near_tie", (), 0),
        requires=backend.requires(platform.machine(), platform.system().lower()),
        toolchain=dict(backend.describe()),
        units=units,
        graphs=backend.graphs(plan.table),
        weights=weights,
        files={},
    )


def references(target: str | None, draft: str | None) -> tuple[str, str]:
    """How the user named the models, local folders reduced to their last part: a bundle holds no machine's paths."""

    def shown(reference: str | None) -> str:
        if reference is None:
            return "random weights"
        is_local = reference.startswith((".", "/", "~")) or Path(reference).exists()
        return Path(reference).name if is_local and ":" not in reference else reference

    return shown(target), shown(draft)


def fingerprints(models: Models, seed: int | None) -> tuple[str, str]:
    """Digests of both models' files; of the seed where weights are random, "none" where there are none."""
    instead = "none" if models.without_weights else f"random:{seed}"
    made = [source.fingerprint() if source else instead for source in (models.target_source, models.draft_source)]
    return made[0], made[1]


def list_files(staging: Path) -> dict[str, FileEntry]:
    """Size and digest of every file of a staged bundle, the manifest itself and build.json aside."""
    files = {}
    for file in sorted(path for path in staging.rglob("*") if path.is_file()):
        relative = file.relative_to(staging).as_posix()
        if relative not in UNLISTED:
            files[relative] = FileEntry(file.stat().st_size, sha256_file(file))
    return files


def write_manifest(staging: Path, manifest: Manifest) -> Manifest:
    """Write the manifest with its id; returns it."""
    sealed = manifest.with_id()
    (staging / MANIFEST).write_text(sealed.dumps(), encoding="utf-8")
    return sealed


def log_folder(output: Path) -> Path:
    """Where the logs of a bundle's units are kept: beside the bundle, so that a failed build has them too."""
    return output.with_name(f"{output.name}.logs")


def check_output(output: Path) -> None:
    """Refuse an output that `publish` would replace and that is not ours to delete.

    Raises:
        UsageError: something other than a bundle or an empty folder is there.
    """
    repair = "give --output a folder that does not exist yet, or one that holds a bundle"
    if output.name in ("", ".."):
        raise UsageError("--output is no folder's name", expected="a name", found=str(output), repair=repair)
    if output.is_symlink() or (output.exists() and not output.is_dir()):
        kind = "a link" if output.is_symlink() else "a file"
        raise UsageError(f"There is something else at {output}", expected="a bundle", found=kind, repair=repair)
    if output.is_dir() and not _is_bundle(output) and (inside := next(output.iterdir(), None)):
        raise UsageError(
            f"The folder {output} holds something other than a bundle",
            expected=f"a bundle's {MANIFEST} in it, or an empty folder",
            found=inside.name,
            repair=repair,
        )
    check_replaceable(output, f"give --output a folder inside the mounted one, for example {output / 'bundle'}", repair)


def check_replaceable(output: Path, off_the_mount: str, repair: str) -> None:
    """Refuse a folder that no rename can replace, before anything is compiled for it.

    Args:
        off_the_mount: the repair where a mount point is in the way.
        repair: that where the folder is another user's.

    Raises:
        UsageError: it is a mount point, or another user's.
    """
    if mount := _mount_in(output):
        raise UsageError(
            f"The folder {output} cannot be replaced by the new bundle",
            expected="a folder of the file system around it",
            found=f"a mount point at {mount}",
            repair=off_the_mount,
        )
    if _of_another_user(output):
        raise UsageError(
            f"The folder {output} cannot be replaced by the new bundle",
            expected="a folder that this user may rename",
            found=f"one of another user in {output.parent}, where each may rename only what is theirs",
            repair=repair,
        )


def _mount_in(output: Path, table: Path = Path("/proc/self/mountinfo")) -> str:
    """A mount point at or below `output`, "" for none. Bind mounts are ones that `os.path.ismount` does not see."""
    if not output.is_dir():
        return ""
    real = os.path.realpath(output)
    try:
        lines = table.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        lines = []
    for line in lines:
        # Blanks and their like stand as \040
        point = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), (line.split(" ") + [""] * 5)[4])
        if point == real or point.startswith(real.rstrip("/") + "/"):
            return point
    return real if os.path.ismount(real) else ""


def _of_another_user(output: Path) -> bool:
    """Whether the folder around `output` lets only the owner rename it, and that is somebody else."""
    if not output.is_dir() or os.geteuid() == 0:
        return False
    around = output.absolute().parent.stat()
    owners = (around.st_uid, output.stat().st_uid)
    return bool(around.st_mode & stat.S_ISVTX) and os.geteuid() not in owners


def _is_bundle(folder: Path) -> bool:
    """Whether the folder's manifest.json is a bundle's, of any format version, damaged or not."""
    try:
        data = read_object(folder / MANIFEST, MAX_MANIFEST_BYTES)
    except Damaged:
        # Damaged beyond reading; what lies beside it still tells a bundle from anything else
        return (folder / MANIFEST).is_file() and (folder / "build.json").is_file() and (folder / "graphs").is_dir()
    return "format_version" in data and "bundle_id" in data


def publish(staging: Path, output: Path) -> None:
    """Make the staged bundle visible at `output` in one step, so that a reader finds the old one or the new one.

    Where the kernel cannot exchange two folders, an older one moves aside first, and back on failure.
    """
    for file in staging.rglob("*"):
        if file.is_file():
            with naming(file):
                sync_file(file)
    output.parent.mkdir(parents=True, exist_ok=True)
    if exchange(staging, output):
        sync_folder(output.parent)
        shutil.rmtree(staging, ignore_errors=True)  # the older one now
        return
    old = aside(staging)
    if output.exists():
        output.rename(old)
    try:
        staging.rename(output)
    except BaseException:
        if old.exists():
            old.rename(output)
        raise
    sync_folder(output.parent)
    shutil.rmtree(old, ignore_errors=True)
