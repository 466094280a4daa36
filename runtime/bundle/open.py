"""Open a bundle: structure, path safety, sizes and digests, then its parts against one another, then the host.

All of it before anything native is loaded. The order matters. Each stage reports all of its own mismatches at once; a
later stage runs only when the earlier ones passed, so that a message is about the cause and not about its consequences.
Nothing here imports torch: digests are computed while the caller imports it.

A bundle may be replaced while it is read, by a build of the same name. Everything is read relative to one open folder,
and the files stay open, so what is read is wholly the old bundle or wholly the new one.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from runtime.bundle.contradictions import contradictions
from runtime.bundle.errors import Eagle3Error, ErrorGroup, IntegrityError, UsageError
from runtime.bundle.files import OpenFiles, compare_files, sha256_file
from runtime.bundle.folder import Folder, NotAFileError
from runtime.bundle.host import check_host
from runtime.bundle.manifest import FORMAT_VERSION, Manifest, loads
from runtime.bundle.paths import inside
from runtime.bundle.ranges import range_problems
from runtime.bundle.record import parse
from runtime.bundle.references import reference_problems
from runtime.bundle.tensors import stored_tensors
from runtime.bundle.unlisted import MANIFEST

__all__ = ["MANIFEST", "Bundle", "examine", "file_problems", "open_bundle", "read_manifest", "sha256_file"]

# Hundreds of times the size of a real one; what is larger is not read into memory.
MAX_MANIFEST_BYTES = 64 * 2**20
ROW_CONVENTION = "feature_i_token_i_plus_1_at_position_i"
TOKENIZER_FOLDER = "tokenizer"
# A build takes minutes, so a second try succeeds; who replaces a bundle in a loop is told
MOST_TRIES = 10

T = TypeVar("T")


@dataclass(frozen=True)
class Bundle:
    """A verified bundle on disk. `files` holds what its manifest lists open; None where a caller made the bundle."""

    root: Path
    manifest: Manifest
    files: OpenFiles | None = None

    def path(self, relative: str) -> str:
        """A path to a listed file, for what opens files by path. Nothing else of the bundle is beside it.

        Raises:
            IntegrityError: the manifest does not list it.
        """
        if self.files is None:
            return str(inside(self.root, relative))
        return self._listed(relative).path(relative)

    def read(self, relative: str) -> bytes:
        """The content of a listed file; raises IntegrityError where the manifest does not list it."""
        if self.files is None:
            return inside(self.root, relative).read_bytes()
        return self._listed(relative).read(relative)

    def tokenizer_files(self) -> dict[str, bytes]:
        """The tokenizer's files by name, as the manifest lists them; empty in a bundle that takes token ids only."""
        prefix = f"{TOKENIZER_FOLDER}/"
        return {name.removeprefix(prefix): self.read(name) for name in self.manifest.files if name.startswith(prefix)}

    def _listed(self, relative: str) -> OpenFiles:
        if self.files is None or relative not in self.files:
            raise IntegrityError(
                f"{relative} is not to be read",
                expected="a file that the manifest lists",
                found="one that it does not",
                repair="rebuild the bundle with eagle3-build",
            )
        return self.files


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
    return _whole(path, lambda folder: _open(folder, verify, host, device))


def _open(folder: Folder, verify: bool, host: bool, device: str | None) -> Bundle:
    path, manifest, files = folder.path, _read_manifest(folder), OpenFiles(folder.path)
    problems = compare_files(folder, manifest, verify=verify, hold=files)
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
    _check_sense(folder, manifest, files)
    if host and device != SIMULATOR:
        check_host(manifest.requires)
    return Bundle(path, manifest, files)


def _check_sense(folder: Folder, manifest: Manifest, files: OpenFiles | None) -> None:
    """Refuse a manifest whose parts contradict one another, or the files, where they are as listed."""
    problems = reference_problems(manifest)
    if not problems and files is not None:
        tensors, problems = stored_tensors(manifest, files)
        problems = problems or contradictions(manifest, tensors)
    if problems:
        raise ErrorGroup(f"The manifest of {folder.path.absolute().name} contradicts itself", problems)


def _whole(path: Path, read: Callable[[Folder], T]) -> T:
    """What `read` makes of the folder at `path`; once more, from the new one, where it was replaced meanwhile."""
    for _ in range(MOST_TRIES):
        folder = _folder(path)
        try:
            return read(folder)
        except Eagle3Error:
            if not folder.replaced():
                raise
        finally:
            folder.close()
    raise IntegrityError(
        f"The bundle {path.absolute().name} is replaced faster than it can be read",
        expected="a folder that stays while it is read",
        found=f"another one at each of {MOST_TRIES} tries",
        repair="let whatever writes it finish, and run the same command again",
    )


def _folder(path: Path) -> Folder:
    rebuild = "build one with eagle3-build --config FILE.yaml"
    what = f"There is no bundle at {path}"
    try:
        return Folder(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        found = "nothing" if isinstance(error, FileNotFoundError) else "a file"
        raise IntegrityError(what, expected="a folder", found=found, repair=rebuild) from None
    except (OSError, ValueError) as error:  # a name with a NUL in it is a ValueError
        found = getattr(error, "strerror", None) or str(error)
        repair = "give the folder of a bundle that this user may read"
        raise IntegrityError(what, expected="a folder", found=found, repair=repair) from None


def examine(path: Path, *, verify: bool = True) -> tuple[Manifest, list[Eagle3Error]]:
    """The manifest of the bundle in folder `path`, and everything that is wrong with the files beside it.

    Raises:
        IntegrityError or an ErrorGroup of them: there is no readable manifest, or it contradicts itself.
    """

    def read(folder: Folder) -> tuple[Manifest, list[Eagle3Error]]:
        manifest, files = _read_manifest(folder), OpenFiles(folder.path)
        problems = compare_files(folder, manifest, verify=verify, hold=files)
        if problems and folder.replaced():
            raise problems[0]
        _check_sense(folder, manifest, None if problems else files)
        return manifest, problems

    return _whole(path, read)


def file_problems(path: Path, manifest: Manifest, *, verify: bool = True) -> list[Eagle3Error]:
    """Everything that is wrong with the files in folder `path`, against `manifest`, and what it does not list."""
    folder = _folder(path)
    try:
        return compare_files(folder, manifest, verify=verify)
    finally:
        folder.close()


def read_manifest(path: Path) -> Manifest:
    """The manifest of the bundle in folder `path`: its structure, its id and the ranges of its numbers are checked.

    Raises:
        IntegrityError or an ErrorGroup of them: it is none.
    """
    return _whole(path, _read_manifest)


def _read_manifest(folder: Folder) -> Manifest:
    path = folder.path
    file, name = path / MANIFEST, path.absolute().name
    rebuild = "build one with eagle3-build --config FILE.yaml"
    try:
        content = folder.read(MANIFEST, MAX_MANIFEST_BYTES)
    except FileNotFoundError:
        raise IntegrityError(
            f"{path} is not a bundle", expected=MANIFEST, found="no such file in it", repair=rebuild
        ) from None
    except NotAFileError as error:
        raise IntegrityError(f"{path} is not a bundle", expected=MANIFEST, found=error.found, repair=rebuild) from None
    except IntegrityError as error:  # a link
        raise IntegrityError(
            f"{path} is not a bundle", expected=f"{MANIFEST}, a file", found=error.found, repair=rebuild
        ) from None
    except OSError as error:
        raise IntegrityError(
            f"{file} is not readable", expected="JSON text", found=error.strerror or str(error), repair=rebuild
        ) from None
    if len(content) > MAX_MANIFEST_BYTES:
        raise IntegrityError(
            f"{file} is not readable",
            expected=f"at most {MAX_MANIFEST_BYTES} bytes",
            found="more",
            repair=rebuild,
        )
    try:
        data = parse(content.decode("utf-8"))
    except ValueError as error:
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
    if problems := range_problems(manifest):
        raise ErrorGroup(f"The manifest of {name} holds what none can hold", problems)
    return manifest
