"""A bundle in a staging folder: units from the cache, weights, tokenizer, manifest."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import platform
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from aot.cache import Cache, sync_file, sync_folder
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
from runtime.bundle.open import MANIFEST, ROW_CONVENTION, sha256_file

if TYPE_CHECKING:  # with it torch, which finishing a bundle elsewhere does not need
    from aot.backends.protocol import BuildBackend
    from aot.build.plan import Models, Plan

# Beside the manifest, but no part of the bundle's id: times, host, logs.
BUILD_RECORD = "build.json"
UNLISTED = (MANIFEST, BUILD_RECORD)


def place_units(plan: Plan, backend: BuildBackend, cache: Cache, staging: Path) -> tuple[Unit, ...]:
    """Copy every compiled unit into `staging/graphs` and describe it."""
    return tuple(backend.place(unit.spec, unit.key, cache.entry(unit.key), staging) for unit in plan.units)


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


def output_turn(output: Path) -> str:
    """The name of the lock under which builds of one output take turns.

    Two at once would each take the other's staged files for leftovers.
    """
    return "output-" + hashlib.sha256(os.fsencode(output.resolve())).hexdigest()


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


def _is_bundle(folder: Path) -> bool:
    """Whether the folder's manifest.json is a bundle's, of any format version, damaged or not."""
    try:
        data = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        # Damaged beyond reading; what lies beside it still tells a bundle from anything else
        return (folder / MANIFEST).is_file() and (folder / "build.json").is_file() and (folder / "graphs").is_dir()
    return isinstance(data, dict) and "format_version" in data and "bundle_id" in data


def new_staging(output: Path) -> Path:
    """A fresh folder beside `output`, on the same file system, with the permissions that the user's folders get."""
    output.parent.mkdir(parents=True, exist_ok=True)
    staging = output.with_name(f".{output.name}.staging-{os.getpid()}-{secrets.token_hex(4)}")
    staging.mkdir()
    return staging


def publish(staging: Path, output: Path) -> None:
    """Make the staged bundle visible at `output` by a rename; an older one moves aside first, and back on failure."""
    for file in staging.rglob("*"):
        if file.is_file():
            sync_file(file)
    output.parent.mkdir(parents=True, exist_ok=True)
    old = output.with_name(f".{output.name}.old-{os.getpid()}")
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


def remove_leftovers(output: Path) -> None:
    """Delete the folders that a killed build of the same bundle left beside it.

    A build killed between the two renames of `publish` left the older bundle aside: it comes back first.
    """
    name = glob.escape(output.name)
    aside = sorted(output.parent.glob(f".{name}.old-*"))
    if aside and not output.exists():
        aside[-1].rename(output)
    for pattern in (f".{name}.staging-*", f".{name}.old-*"):
        for leftover in output.parent.glob(pattern):
            shutil.rmtree(leftover, ignore_errors=True)
