"""The files of a bundle: compared with what the manifest lists, and held open from then on.

What was compared is what is read: each listed file is opened once, and weights and libraries that some library wants to
open by a path get one that leads to that open file. So a bundle that is replaced, or deleted, while it is being loaded
is still read wholly.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from runtime.bundle.errors import Eagle3Error, IntegrityError
from runtime.bundle.folder import Folder, NotAFileError
from runtime.bundle.manifest import FileEntry, Manifest
from runtime.bundle.paths import inside
from runtime.bundle.unlisted import unlisted_problems

AGAIN = "get the bundle again from where it was built, or rebuild it with eagle3-build"
_DESCRIPTORS = Path("/proc/self/fd")
_AT_ONCE = 2**24
_numbers = itertools.count()


class OpenFiles:
    """Open files of one bundle by relative path. They are closed with `close`, or when nothing refers to this object.

    What was mapped or loaded by a path from here stays; only new paths cannot be asked for after `close`.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._held: dict[str, int] = {}
        self._finalizer = weakref.finalize(self, _close, self._held)

    def __contains__(self, relative: str) -> bool:
        return relative in self._held

    def add(self, relative: str, fd: int) -> None:
        """Hold the descriptor `fd` of the file called `relative`."""
        self._held[relative] = fd

    def path(self, relative: str) -> str:
        """A path that leads to the open file, for what opens files by path; never the same one twice.

        It has no folder of the bundle in it, so nothing can be looked for beside the file. It is new each time because
        the system's loader knows a library by its path: a descriptor's number that is used again would give the code of
        the library before. Slashes and dots, which change nothing, spell the count.
        """
        if not _DESCRIPTORS.is_dir():
            return str(inside(self._root, relative))  # a system without such paths takes the file's own
        count = "".join("/." if bit == "1" else "/" for bit in f"{next(_numbers):b}")
        return f"{_DESCRIPTORS}{count}/{self._held[relative]}"

    def descriptor(self, relative: str) -> int:
        """The open file's descriptor; it stays open for as long as this object does."""
        return self._held[relative]

    def read(self, relative: str) -> bytes:
        """The content of a file."""
        return read_all(self._held[relative])

    def close(self) -> None:
        self._finalizer()


def read_all(fd: int) -> bytes:
    """The content of an open file; its position stays as it is."""
    parts, place = [], 0
    while part := os.pread(fd, _AT_ONCE, place):
        parts.append(part)
        place += len(part)
    return b"".join(parts)


def _close(held: dict[str, int]) -> None:
    while held:
        os.close(held.popitem()[1])


def compare_files(
    folder: Folder, manifest: Manifest, *, verify: bool, hold: OpenFiles | None = None
) -> list[Eagle3Error]:
    """Everything that is wrong with the files in `folder`: unsafe paths, missing files, sizes, digests, unlisted ones.

    Args:
        verify: compare digests too, and not sizes alone.
        hold: takes every file that is as listed, open.
    """

    def compare(item: tuple[str, FileEntry]) -> Eagle3Error | None:
        return _file_problem(folder, item[0], item[1], verify, hold)

    with ThreadPoolExecutor(max_workers=2) as pool:  # hashlib releases the lock, so two threads use two cores
        found = [problem for problem in pool.map(compare, manifest.files.items()) if problem is not None]
    try:
        return [*found, *unlisted_problems(folder, manifest.files)]
    except OSError as error:
        return [*found, _unreadable(error.filename or folder.path.name, "a folder", error)]


def _file_problem(
    folder: Folder, relative: str, entry: FileEntry, verify: bool, hold: OpenFiles | None
) -> Eagle3Error | None:
    try:
        fd = folder.open(relative)
    except NotAFileError as error:
        return _missing(relative, entry, error.found)
    except IntegrityError as error:
        return error
    except (FileNotFoundError, NotADirectoryError):
        return _missing(relative, entry, "no file")
    except OSError as error:
        return _unreadable(relative, f"{entry.size} bytes", error)
    problem: Eagle3Error | None
    try:
        problem = _compare(fd, relative, entry, verify)
    except OSError as error:
        problem = _unreadable(relative, f"{entry.size} bytes", error)
    if problem is None and hold is not None:
        hold.add(relative, fd)
    else:
        os.close(fd)
    return problem


def _compare(fd: int, relative: str, entry: FileEntry, verify: bool) -> Eagle3Error | None:
    size = os.fstat(fd).st_size
    if size != entry.size:
        return _changed(relative, f"{entry.size} bytes", f"{size} bytes")
    if verify and (digest := sha256_file(fd)) != entry.sha256:
        return _changed(relative, f"sha256 {entry.sha256[:16]}", f"sha256 {digest[:16]}")
    return None


def _missing(relative: str, entry: FileEntry, found: str) -> Eagle3Error:
    return IntegrityError(f"{relative} is missing", expected=f"a file of {entry.size} bytes", found=found, repair=AGAIN)


def _changed(relative: str, expected: str, found: str) -> Eagle3Error:
    return IntegrityError(f"{relative} is changed", expected=expected, found=found, repair=AGAIN)


def _unreadable(relative: object, expected: str, error: OSError) -> Eagle3Error:
    return IntegrityError(
        f"{relative} cannot be read",
        expected=expected,
        found=error.strerror or str(error),
        repair="give this user the right to read it",
    )


def sha256_file(file: Path | int) -> str:
    """The sha256 of a file's bytes, in hex; of an open one, which stays open, from its beginning."""
    with open(file, "rb", closefd=not isinstance(file, int)) as stream:
        stream.seek(0)
        return hashlib.file_digest(stream, "sha256").hexdigest()
