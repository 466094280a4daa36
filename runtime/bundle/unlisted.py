"""What may lie in a bundle's folder without being in `manifest.files`: this closed list, and nothing else.

A file that nobody digested may still be looked for by name, by us or by a library ("is there a chat template?", a
`unit.json` beside a unit.so), so what is not listed is refused and not ignored. Whoever adds a kind of file says here
what it is for; a reader MUST NOT let one decide what a bundle computes.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator
from itertools import islice

from runtime.bundle.errors import Eagle3Error, IntegrityError
from runtime.bundle.folder import Folder, kind_of

MANIFEST, BUILD_RECORD = "manifest.json", "build.json"
UNLISTED = {
    MANIFEST: "the list itself; its content has the id that it states",
    BUILD_RECORD: "how the bundle was built: times, host, the digest of the request; read by the builder alone",
}
# A folder full of foreign files is told by its first few, and no more of it is looked at
MOST_TOLD = 10
MOST_DEPTH = 8


def unlisted_problems(folder: Folder, listed: Iterable[str]) -> list[Eagle3Error]:
    """Everything in `folder` that is neither in `listed` nor in `UNLISTED`, folders too, the first few of them.

    Args:
        listed: relative paths of files.
    """
    files = {*listed, *UNLISTED}
    folders = {folder for file in files for folder in _folders(file)}
    found = list(islice(_strange(folder, files, folders), MOST_TOLD + 1))
    problems: list[Eagle3Error] = [_problem(name, mode) for name, mode in found[:MOST_TOLD]]
    if len(found) > MOST_TOLD:
        problems.append(
            IntegrityError(
                "There is more in the folder that the manifest does not list",
                expected="the files that it lists, and build.json",
                found=f"more than {MOST_TOLD} others",
                repair="copy the bundle to a folder of its own, or get it again from where it was built",
            )
        )
    return problems


def _folders(file: str) -> Iterator[str]:
    """The folders that lead to a listed file, outermost first; no bundle has them deeper than this."""
    parts = file.split("/", MOST_DEPTH)
    for depth in range(1, len(parts)):
        yield "/".join(parts[:depth])


def _strange(folder: Folder, files: set[str], folders: set[str]) -> Iterator[tuple[str, int]]:
    """What is not expected in `folder` and below; nothing unexpected is opened."""
    pending = [""]
    while pending:
        for name, mode in folder.entries(pending.pop()):
            if name in folders and stat.S_ISDIR(mode):
                pending.append(name)
                continue
            # What stands in the place of a listed file is told where that one is compared
            if (name not in files and name not in folders) or (name in UNLISTED and not stat.S_ISREG(mode)):
                yield name, mode


def _problem(name: str, mode: int) -> Eagle3Error:
    if name in UNLISTED:
        return IntegrityError(f"{name} is no file", expected="a file", found=kind_of(mode), repair="take it away")
    return IntegrityError(
        f"The manifest does not list {name!r}",
        expected="the files that it lists, and build.json",
        found=kind_of(mode),
        repair="take it out of the bundle's folder, or get the bundle again from where it was built",
    )
