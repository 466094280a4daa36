"""Open a bundle: structure, path safety, sizes and digests, then the host, before anything native is loaded.

The order matters. Each stage reports all of its own mismatches at once; a later stage runs only when the earlier ones
passed, so that a message is about the cause and not about its consequences. Nothing here imports torch: digests are
computed while the caller imports it.
"""

from __future__ import annotations

import hashlib
import reprlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from runtime.bundle.errors import Eagle3Error, ErrorGroup, IntegrityError, UsageError
from runtime.bundle.host import check_host
from runtime.bundle.manifest import FORMAT_VERSION, FileEntry, Manifest, loads
from runtime.bundle.paths import inside
from runtime.bundle.record import parse
from runtime.bundle.references import reference_problems

MANIFEST = "manifest.json"
# Hundreds of times the size of a real one; what is larger is not read into memory.
MAX_MANIFEST_BYTES = 64 * 2**20
ROW_CONVENTION = "feature_i_token_i_plus_1_at_position_i"


@dataclass(frozen=True)
class Bundle:
    """A verified bundle on disk."""

    root: Path
    manifest: Manifest


SIMULATOR = "sim"


def open_bundle(path: Path, *, verify: bool = True, host: bool = True, device: str | None = None) -> Bundle:
    """Read and verify the bundle in folder `path`.

    Args:
        path: the folder that holds manifest.json.
        verify: compare every file's sha256; False compares sizes only.
        host: also check that this machine can run it.
        device: "sim" to open a Neuron bundle for the simulator: its NEFFs may be missing, and any machine will do.

    Raises:
        UsageError: the simulator cannot run this bundle.
        IntegrityError: there is no readable manifest, files are missing, changed or unsafe, or the bundle holds graphs
            alone (exit code 5).
        HostError: the machine lacks what the bundle requires (exit code 4).
    """
    manifest = read_manifest(path)
    problems = file_problems(path, manifest, verify=verify)
    if problems:
        raise ErrorGroup(f"The bundle {path.absolute().name} is damaged", problems)
    if device == SIMULATOR and manifest.requires.backend != "neuron":
        raise UsageError(
            f"The simulator does not run {path.absolute().name}",
            expected="a Neuron bundle, whose graphs it runs from their HLO",
            found=f"one for the backend {manifest.requires.backend}",
            repair="leave --device out",
        )
    if not manifest.weights and manifest.units:
        raise IntegrityError(
            f"The bundle {path.absolute().name} holds graphs alone",
            expected="the weights of both models",
            found="none",
            repair="run the eagle3-build command that built it where both models are: its graphs come from the cache",
        )
    if manifest.state != "ready" and device != SIMULATOR:
        raise IntegrityError(
            f"The bundle {path.absolute().name} is not finished",
            expected="state ready",
            found=f"state {manifest.state}",
            repair=f"run eagle3-build finish --bundle {path} on a machine that has neuronx-cc, or add --device sim to "
            "run its graphs on this CPU",
        )
    problems = reference_problems(manifest)
    if problems:
        raise ErrorGroup(f"The manifest of {path.absolute().name} contradicts itself", problems)
    if host and device != SIMULATOR:
        check_host(manifest.requires)
    return Bundle(path, manifest)


def read_manifest(path: Path) -> Manifest:
    """The manifest of the bundle in folder `path`, its structure checked and nothing else."""
    file, name = path / MANIFEST, path.absolute().name
    rebuild = "build one with eagle3-build --config FILE.yaml"
    if not path.is_dir():
        found = "a file" if path.exists() else "nothing"
        raise IntegrityError(f"There is no bundle at {path}", expected="a folder", found=found, repair=rebuild)
    if not file.is_file():
        raise IntegrityError(f"{path} is not a bundle", expected=MANIFEST, found="no such file in it", repair=rebuild)
    if (size := file.stat().st_size) > MAX_MANIFEST_BYTES:
        raise IntegrityError(
            f"{file} is not readable",
            expected=f"at most {MAX_MANIFEST_BYTES} bytes",
            found=f"{size} bytes",
            repair=rebuild,
        )
    try:
        data = parse(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise IntegrityError(
            f"{file} is not readable", expected="JSON text", found=str(error), repair=rebuild
        ) from None
    if isinstance(data, dict) and (version := data.get("format_version")) != FORMAT_VERSION:
        older = type(version) is int and 0 < version < FORMAT_VERSION
        what = "an older format, whose graphs have no sign for logits that are not finite" if older else "a format"
        raise IntegrityError(
            f"The bundle {name} has {what}" + ("" if older else " that this version does not read"),
            expected=f"format_version {FORMAT_VERSION}",
            found=reprlib.repr(version),
            repair=f"rebuild it: eagle3-build --config FILE.yaml --output {path}; "
            "or run it with the version of eagle3-run that built it",
        )
    try:
        manifest = loads(data)
        content_id = manifest.with_id().bundle_id
    except RecursionError:
        raise IntegrityError(
            f"{file} is not readable",
            expected="a manifest",
            found="lists and objects nested too deeply",
            repair=rebuild,
        ) from None
    if content_id != manifest.bundle_id:
        raise IntegrityError(
            f"The manifest of {name} was changed after it was built",
            expected=f"content with the id {manifest.bundle_id[:16]}",
            found=f"content with the id {content_id[:16]}",
            repair="get the bundle again from where it was built, or rebuild it",
        )
    if manifest.speculation.row_convention != ROW_CONVENTION:
        raise IntegrityError(
            f"The bundle {name} pairs features and tokens in an unknown way",
            expected=ROW_CONVENTION,
            found=manifest.speculation.row_convention,
            repair="rebuild it with this version of eagle3-build",
        )
    return manifest


def file_problems(path: Path, manifest: Manifest, *, verify: bool = True) -> list[Eagle3Error]:
    """Everything that is wrong with the files that `manifest` lists: unsafe paths, missing files, sizes, digests."""
    with ThreadPoolExecutor(max_workers=2) as pool:  # hashlib releases the lock, so two threads use two cores
        found = pool.map(lambda item: _file_problem(path, item[0], item[1], verify), manifest.files.items())
        return [problem for problem in found if problem is not None]


def _file_problem(root: Path, relative: str, entry: FileEntry, verify: bool) -> Eagle3Error | None:
    try:
        file = inside(root, relative)
        return _compare(file, relative, entry, verify)
    except IntegrityError as error:
        return error
    except OSError as error:
        return IntegrityError(
            f"{relative} cannot be read",
            expected=f"{entry.size} bytes",
            found=error.strerror or str(error),
            repair="give this user the right to read it",
        )


def _compare(file: Path, relative: str, entry: FileEntry, verify: bool) -> Eagle3Error | None:
    repair = "get the bundle again from where it was built, or rebuild it with eagle3-build"
    if not file.is_file():
        found = "a folder" if file.is_dir() else "no file"
        return IntegrityError(
            f"{relative} is missing", expected=f"a file of {entry.size} bytes", found=found, repair=repair
        )
    size = file.stat().st_size
    if size != entry.size:
        return IntegrityError(
            f"{relative} is changed", expected=f"{entry.size} bytes", found=f"{size} bytes", repair=repair
        )
    if verify and (digest := sha256_file(file)) != entry.sha256:
        return IntegrityError(
            f"{relative} is changed",
            expected=f"sha256 {entry.sha256[:16]}",
            found=f"sha256 {digest[:16]}",
            repair=repair,
        )
    return None


def sha256_file(file: Path) -> str:
    """The sha256 of a file's bytes, in hex."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
