"""What an entry of the cache is sealed with: its key, and size and digest of each of its files.

The seal is written last, so a folder with one was whole once; comparing it tells whether it still is. An entry comes
from a disk that others may write to: only plain files are opened, no link is followed, nothing is read beyond the size
that the seal names, and whatever is wrong is a phrase and never an exception.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from runtime.bundle.record import parse

SEAL = "sealed.json"
# Hundreds of times the size of a real one
MAX_TEXT = 1 << 20
_CHUNK = 1 << 20


class Damaged(Exception):
    """What is wrong with an entry, as a phrase: "unit.so has 1000 bytes in place of 292920"."""


def seal(folder: Path, key: str) -> None:
    """Write the seal of the entry `key` over all files in `folder`, each of which is on disk already."""
    files = {}
    for file in sorted(folder.iterdir()):
        with file.open("rb") as stream:
            files[file.name] = {
                "size": os.fstat(stream.fileno()).st_size,
                "sha256": hashlib.file_digest(stream, "sha256").hexdigest(),
            }
    text = json.dumps({"key": key, "files": files}, indent=1, sort_keys=True)
    partial = folder / f"{SEAL}.part"
    with partial.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    partial.rename(folder / SEAL)


def damage(entry: Path, key: str, needed: Iterable[str]) -> str:
    """What is wrong with the entry `key` in folder `entry`, "" where it is whole; its `needed` files are compared."""
    try:
        with _opened(entry) as folder:
            files = _sealed(folder, key)
            for name in needed:
                _compare(folder, name, files, None)
    except Damaged as problem:
        return str(problem)
    return ""


def take(entry: Path, key: str, needed: Iterable[str], into: Path) -> None:
    """Copy the `needed` files of an entry into the folder `into`. What was compared is what was copied.

    Raises:
        Damaged: the entry is not, or no longer, whole.
        OSError: a copy cannot be written; it names the copy.
    """
    with _opened(entry) as folder:
        files = _sealed(folder, key)
        for name in needed:
            _compare(folder, name, files, into / name)


def read_text(file: Path, limit: int = MAX_TEXT) -> str:
    """The text of a plain file of at most `limit` bytes; no link is followed and no pipe waited for.

    Raises:
        Damaged: it is something else.
    """
    with _opened(file.parent, follow=True) as folder, _plain(folder, file.name) as descriptor:
        size = os.fstat(descriptor).st_size
        if size > limit:
            raise Damaged(f"{file.name} has {size} bytes, and {limit} at most are right")
        try:
            return b"".join(_chunks(descriptor, file.name, size)).decode()
        except UnicodeDecodeError:
            raise Damaged(f"{file.name} is no UTF-8 text") from None


def read_object(file: Path, limit: int = MAX_TEXT) -> dict[str, Any]:
    """The JSON object in a plain file.

    Raises:
        Damaged: there is none.
    """
    try:
        data = parse(read_text(file, limit))
    except (ValueError, RecursionError):
        raise Damaged(f"{file.name} is no JSON") from None
    if not isinstance(data, dict):
        raise Damaged(f"{file.name} is no JSON object")
    return data


@contextlib.contextmanager
def _opened(folder: Path, *, follow: bool = False) -> Iterator[Path]:
    """`folder`, which is one and, unless `follow`, no link to one."""
    try:
        mode = (folder.stat() if follow else folder.lstat()).st_mode
    except OSError as error:
        raise Damaged(f"it cannot be read: {error.strerror}") from None
    if not stat.S_ISDIR(mode):
        raise Damaged("it is a link" if stat.S_ISLNK(mode) else "it is no folder")
    yield folder


@contextlib.contextmanager
def _plain(folder: Path, name: str) -> Iterator[int]:
    """A descriptor of a plain file."""
    try:
        # A pipe is opened without waiting for its other end, and refused below
        descriptor = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise Damaged(f"{name} is missing") from None
    except OSError as error:
        reason = "is a link" if (folder / name).is_symlink() else f"cannot be read: {error.strerror}"
        raise Damaged(f"{name} {reason}") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Damaged(f"{name} is no file")
        yield descriptor
    finally:
        os.close(descriptor)


def _sealed(folder: Path, key: str) -> dict[str, Any]:
    found = read_object(folder / SEAL)
    if found.get("key") != key:
        raise Damaged(f"{SEAL} names another entry")
    files = found.get("files")
    if not isinstance(files, dict):
        raise Damaged(f"{SEAL} lists no files")
    return files


def _compare(folder: Path, name: str, files: dict[str, Any], copy: Path | None) -> None:
    listed = files.get(name)
    if not isinstance(listed, dict) or not isinstance(listed.get("size"), int):
        raise Damaged(f"{SEAL} does not list {name}")
    with _plain(folder, name) as descriptor:
        if (size := os.fstat(descriptor).st_size) != listed["size"]:
            raise Damaged(f"{name} has {size} bytes in place of {listed['size']}")
        digest = hashlib.sha256()
        with contextlib.ExitStack() as stack:
            output = stack.enter_context(copy.open("wb")) if copy else None
            for chunk in _chunks(descriptor, name, size):
                digest.update(chunk)
                if output and copy:
                    with naming(copy):
                        output.write(chunk)
            if output and copy:
                with naming(copy):
                    output.flush()
    if digest.hexdigest() != listed.get("sha256"):
        raise Damaged(f"{name} is changed")


def _chunks(descriptor: int, name: str, size: int) -> Iterator[bytes]:
    left = size
    while left:
        try:
            chunk = os.read(descriptor, min(left, _CHUNK))
        except OSError as error:
            raise Damaged(f"{name} cannot be read: {error.strerror}") from None
        if not chunk:
            raise Damaged(f"{name} ends early")
        left -= len(chunk)
        yield chunk


@contextlib.contextmanager
def naming(file: Path) -> Iterator[None]:
    """Let an OSError that names no file name this one: a full disk is found out by a write, which knows no names."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(file)
        raise
