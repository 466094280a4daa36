"""A bundle's folder, opened once: everything in it is reached through that one descriptor and no link.

A path is looked up again at every use, so a folder that is replaced in between would be read half old and half new, and
a link planted in it would lead outside. Names relative to an open folder have neither fault: the descriptor stays with
the folder that was opened, wherever it is moved, and each part of a name is opened with O_NOFOLLOW.
"""

from __future__ import annotations

import os
import stat
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from runtime.bundle.errors import IntegrityError
from runtime.bundle.paths import check_relative, refuse

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, opening a pipe that was planted a moment ago would wait for its writer
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_KINDS = {
    stat.S_IFREG: "a file",
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFBLK: "a device",
    stat.S_IFCHR: "a device",
}


def kind_of(mode: int) -> str:
    """What a file of this mode is, in words."""
    return _KINDS.get(stat.S_IFMT(mode), "something unknown")


class NotAFileError(IntegrityError):
    """There is something, and it is no regular file; `found` says what."""


class Folder:
    """An open folder. It is closed with `close`, or when nothing refers to it any more."""

    def __init__(self, path: Path) -> None:
        """Open the folder at `path`, which may itself be a link or lie behind one.

        Raises:
            OSError: there is none, or this user may not read it.
        """
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._finalizer = weakref.finalize(self, os.close, self._fd)

    def close(self) -> None:
        self._finalizer()

    def replaced(self) -> bool:
        """Whether the path no longer leads to this folder: it was moved, deleted or exchanged."""
        try:
            now = os.stat(self.path)
        except OSError:
            return True
        return not os.path.samestat(now, os.fstat(self._fd))

    def open(self, relative: str) -> int:
        """A descriptor of the regular file called `relative`, for reading; the caller closes it.

        Raises:
            IntegrityError: the name is unsafe or leads through a link.
            NotAFileError: something else than a file is there.
            OSError: there is nothing, or this user may not read it.
        """
        check_relative(relative)
        *folders, name = relative.split("/")
        inner = self._descend(relative, folders)
        try:
            self._refuse_link(relative, name, inner)
            mode = os.stat(name, dir_fd=inner, follow_symlinks=False).st_mode
            if not stat.S_ISREG(mode):
                self._no_file(relative, mode)
            fd = os.open(name, _FILE, dir_fd=inner)
        finally:
            os.close(inner)
        if not stat.S_ISREG(mode := os.fstat(fd).st_mode):
            os.close(fd)
            self._no_file(relative, mode)
        return fd

    def read(self, relative: str, most: int) -> bytes:
        """The content of a file; of one that is larger than `most` bytes the first `most` + 1.

        Raises:
            IntegrityError, OSError: as `open`.
        """
        with open(self.open(relative), "rb") as stream:
            return stream.read(most + 1)

    def entries(self, folder: str = "") -> Iterator[tuple[str, int]]:
        """What lies in the folder called `folder`, "" for this one: each entry's relative name and its mode.

        Nothing is opened but the folder itself, and entries come as the system lists them.

        Raises:
            IntegrityError, OSError: as `open`.
        """
        inner = self._descend(folder, folder.split("/") if folder else [])
        try:
            with os.scandir(inner) as listing:
                for entry in listing:
                    mode = os.stat(entry.name, dir_fd=inner, follow_symlinks=False).st_mode
                    yield (f"{folder}/{entry.name}" if folder else entry.name), mode
        finally:
            os.close(inner)

    def _descend(self, relative: str, parts: list[str]) -> int:
        """A descriptor of the folder that `parts` lead to."""
        fd = os.dup(self._fd)
        for part in parts:
            outer = fd
            try:
                self._refuse_link(relative, part, outer)
                fd = os.open(part, _FOLDER, dir_fd=outer)
            finally:
                os.close(outer)
        return fd

    @staticmethod
    def _refuse_link(relative: str, part: str, outer: int) -> None:
        """Say that a part is a link, which opening it would call a folder too little or a loop."""
        try:
            mode = os.stat(part, dir_fd=outer, follow_symlinks=False).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return  # what opens it next says so
        except OSError as error:  # a name longer than the file system takes, a folder closed to this user
            raise refuse(relative, error.strerror or "an error of the file system") from None
        if stat.S_ISLNK(mode):
            raise refuse(relative, "a symbolic link")

    @staticmethod
    def _no_file(relative: str, mode: int) -> NoReturn:
        raise NotAFileError(
            f"{relative} is no file",
            expected="a file",
            found=kind_of(mode),
            repair="get the bundle again from where it was built, or rebuild it with eagle3-build",
        )
