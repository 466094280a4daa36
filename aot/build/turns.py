"""One build at a time works on an output, and what a killed one left beside it is taken away by the next.

    .NAME.eagle3-turn             the lock, while a build of NAME runs; it lists the tokens of what that build makes
    .NAME.eagle3-staging-TOKEN    the bundle that is being made
    .NAME.eagle3-old-TOKEN        the bundle that it replaces, while it is moved aside

All lie beside the output: builds with different caches meet there, and a rename within one folder is atomic. A token is
random and written down before the folder is made, so nothing but what a build made is ever removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

_TOKEN = re.compile(r"[0-9a-f]{16}")
# More than any build makes
_MAX_BYTES = 1 << 16


class Turn:
    """The right to replace what lies at `output`, held until the `turn` ends.

    waited: another build held it first.
    """

    def __init__(self, output: Path, lock: int, waited: bool) -> None:
        self.output, self._lock, self.waited = output, lock, waited

    def new_staging(self) -> Path:
        """A fresh folder beside the output, on its file system, with the permissions that the user's folders get."""
        token = secrets.token_hex(8)
        os.write(self._lock, f"{token}\n".encode())
        os.fsync(self._lock)
        staging = _beside(self.output, "staging", token)
        staging.mkdir()
        return staging


def aside(staging: Path) -> Path:
    """Where the bundle goes that the staged one replaces."""
    before, _, token = staging.name.rpartition("-staging-")
    return staging.with_name(f"{before}-old-{token}")


@contextlib.contextmanager
def turn(output: Path, waiting: Callable[[], None] = lambda: None) -> Iterator[Turn]:
    """Hold the turn at `output`; on entry, what a killed build left is taken away.

    A build killed while it replaced a bundle left the older one aside: it comes back.

    Args:
        waiting: is called once if another build holds the turn.

    Raises:
        OSError: the folder that holds the output cannot be written.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    file = output.with_name(f".{output.name}.eagle3-turn")
    lock, waited = _locked(file, waiting)
    try:
        for token in _tokens(lock):
            _remove_leftovers(output, token)
        os.truncate(lock, 0)
        os.lseek(lock, 0, os.SEEK_SET)
        yield Turn(output, lock, waited)
    finally:
        # What could not be removed stays on the list for the next build
        if not any(os.path.lexists(_beside(output, kind, t)) for t in _tokens(lock) for kind in ("staging", "old")):
            file.unlink(missing_ok=True)
        os.close(lock)


def _locked(file: Path, waiting: Callable[[], None]) -> tuple[int, bool]:
    """A descriptor of `file`, made where it is missing, that holds its lock; and whether another one held it first."""
    waited = False
    while True:
        lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not waited:
                    waiting()
                waited = True
                fcntl.flock(lock, fcntl.LOCK_EX)
            # Who held it before removed the file when it was done: then this is the lock of nothing
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(lock), file.lstat()):
                    return lock, waited
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)


def _tokens(lock: int) -> list[str]:
    text = os.pread(lock, _MAX_BYTES, 0).decode("ascii", errors="replace")
    return [line for line in text.splitlines() if _TOKEN.fullmatch(line)]


def _beside(output: Path, kind: str, token: str) -> Path:
    return output.with_name(f".{output.name}.eagle3-{kind}-{token}")


def _remove_leftovers(output: Path, token: str) -> None:
    old = _beside(output, "old", token)
    if old.is_dir() and not os.path.lexists(output):
        old.rename(output)
    for kind in ("staging", "old"):
        shutil.rmtree(_beside(output, kind, token), ignore_errors=True)
