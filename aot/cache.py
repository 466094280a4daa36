"""The content-addressed cache of compiled code.

    $EAGLE3_CACHE/units/<key>/   unit.so, unit.json, factors.json, log.txt, sealed.json
    $EAGLE3_CACHE/neffs/<key>/   graph.neff, command.json, factors.json, log-neuron-cc.txt, sealed.json

A key is the sha256 over named factors, so a miss can be explained: the factors of the closest entry for the same unit
are compared by name. An entry appears by renaming a complete, synced folder; a failed compile leaves nothing. An entry
that is no longer what its seal says is a miss, and the next compile takes its place.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from aot import seal
from runtime.bundle.errors import HostError, IntegrityError
from runtime.bundle.record import parse

DAMAGED = "damaged: "


class GaveUp(Exception):
    """Nobody waits for a lock any longer: the build is ending."""


def cache_root() -> Path:
    """$EAGLE3_CACHE, else $XDG_CACHE_HOME/eagle3, else ~/.cache/eagle3; absolute.

    Raises:
        HostError: no variable is set, and this user has no home.
    """
    if explicit := os.environ.get("EAGLE3_CACHE"):
        return Path(explicit).absolute()
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base).absolute() / "eagle3"
    try:
        return Path.home() / ".cache" / "eagle3"
    except RuntimeError:
        raise HostError(
            "There is no folder for the build cache",
            expected="EAGLE3_CACHE, or a home folder",
            found=f"neither for the user {os.getuid()}",
            repair="set EAGLE3_CACHE to a folder that this user may write to",
        ) from None


def key_of(factors: Mapping[str, str]) -> str:
    """The cache key: sha256 over the factors in order of name, in hex."""
    text = json.dumps(dict(factors), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Cache:
    """Compiled code on disk, shared by all builds of a user and safe to share between machines.

    kind: the folder of its entries.
    needed: the files without which a folder is no entry.
    """

    root: Path
    kind: str = "units"
    needed: tuple[str, ...] = ("unit.json", "unit.so")

    def entry(self, key: str) -> Path:
        """The folder of an entry, whether or not it exists."""
        return self.root / self.kind / key

    def damage(self, key: str) -> str | None:
        """None where there is no entry; else what is wrong with it, "" for nothing. All needed files are compared."""
        entry = self.entry(key)
        return seal.damage(entry, key, self.needed) if os.path.lexists(entry) else None

    def has(self, key: str) -> bool:
        """Whether there is an entry that is whole."""
        return self.damage(key) == ""

    def take(self, key: str, into: Path) -> Path:
        """Copy the needed files of an entry into the new folder `into`, compared as they are copied; returns it.

        Raises:
            IntegrityError: the entry is gone or damaged: somebody changed it since the build looked at it.
        """
        into.mkdir(parents=True)
        try:
            seal.take(self.entry(key), key, self.needed, into)
        except seal.Damaged as problem:
            raise IntegrityError(
                f"The entry {key[:12]} of the build cache changed during the build",
                expected="the files that were compiled",
                found=str(problem),
                repair="run the same command again: the entry is compiled anew",
            ) from None
        return into

    def check_writable(self, lacking: Sequence[str]) -> None:
        """Refuse to begin compiling what could not be kept.

        Raises:
            HostError: the cache cannot be written, and it lacks the units named `lacking`.
        """
        if not _is_text(self.root):
            raise HostError(
                f"The build cache {self.root} cannot hold what the compiler writes",
                expected="a path in UTF-8",
                found="other bytes",
                repair="set EAGLE3_CACHE to such a path",
            )
        try:
            for folder in (self.root / "locks", self.root / "staging", self.root / self.kind, self.scratch):
                folder.mkdir(parents=True, exist_ok=True)
                with tempfile.TemporaryFile(dir=folder):
                    pass
        except OSError as error:
            raise HostError(
                f"The build cache {self.root} cannot be written, and it lacks {len(lacking)} compiled graphs",
                expected=f"a folder for {', '.join(lacking)}",
                found=error.strerror or str(error),
                repair="set EAGLE3_CACHE to a folder on a disk with room that you may write to",
            ) from None

    @property
    def scratch(self) -> Path:
        """The compiler's own cache of headers and probes; can be deleted at any time."""
        return self.root / "inductor"

    @contextmanager
    def locked(self, key: str, give_up: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """Hold the entry's lock, so that two builds on one machine compile a unit once.

        Raises:
            GaveUp: `give_up`, asked while another process holds the lock, said so.
        """
        locks = self.root / "locks"
        locks.mkdir(parents=True, exist_ok=True)
        lock = FileLock(locks / f"{key}.lock")
        while not lock.is_locked:
            if give_up():
                raise GaveUp
            with suppress(Timeout):
                lock.acquire(timeout=0.2)
        try:
            yield
        finally:
            lock.release()

    @contextmanager
    def staging(self, key: str) -> Iterator[Path]:
        """A temporary folder beside the entries, deleted on exit unless `publish` moved it.

        The caller holds the entry's lock, so another folder for the same key is what a killed build left.
        """
        base = self.root / "staging"
        base.mkdir(parents=True, exist_ok=True)
        for leftover in base.glob(f"{key[:12]}-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(prefix=f"{key[:12]}-", dir=base))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def publish(self, staged: Path, key: str, factors: Mapping[str, str]) -> None:
        """Make a staged folder the entry `key`. An entry that is already there is left as it is."""
        (staged / "factors.json").write_text(json.dumps(dict(factors), indent=1, sort_keys=True), encoding="utf-8")
        for file in staged.iterdir():
            sync_file(file)
        seal.seal(staged, key)
        entry = self.entry(key)
        entry.parent.mkdir(parents=True, exist_ok=True)
        if not self.has(key):
            if os.path.lexists(entry):
                _drop(entry)
            try:
                staged.rename(entry)
            except OSError:  # another machine, which knows nothing of our locks, was faster
                if not self.has(key):
                    raise
        sync_folder(entry.parent)

    def explain_miss(self, factors: Mapping[str, str]) -> str:
        """Why there is no entry: what is wrong with the one that is there, or what differs from the closest other one.

        The closest is that of the same unit with the fewest other factors; their names are told.
        """
        if damage := self.damage(key_of(factors)):
            return DAMAGED + damage
        unit = json.loads(factors["unit"])
        closest: list[str] | None = None
        for file in sorted((self.root / self.kind).glob("*/factors.json")):
            try:
                other = seal.read_object(file)
                other_unit = parse(other["unit"])
            except (seal.Damaged, KeyError, TypeError, ValueError, RecursionError):
                continue
            if not isinstance(other_unit, dict) or other_unit.get("name") != unit["name"]:
                continue
            shapes = "shapes" if other_unit.get("dtype") == unit["dtype"] else "dtype"
            changed = sorted(shapes if name == "unit" else name for name in factors if other.get(name) != factors[name])
            # Nothing differs from an entry that lies under a name that is not its key's
            if changed and (closest is None or len(changed) < len(closest)):
                closest = changed
        if closest is None:
            return "never compiled here"
        return "changed: " + ", ".join(closest)


def damage_note(name: str, damage: str) -> str:
    """What a user is told of a damaged entry."""
    return f"note: the build cache's entry of {name} is damaged, since {damage}; it is dropped and compiled anew"


def _is_text(path: Path) -> bool:
    try:
        os.fsencode(path).decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _drop(entry: Path) -> None:
    """Take away what lies in an entry's place, whatever it is."""
    if entry.is_symlink() or not entry.is_dir():
        entry.unlink()
    else:
        shutil.rmtree(entry)


def sync_file(file: Path) -> None:
    """Flush a file to disk."""
    with file.open("rb") as stream:
        os.fsync(stream.fileno())


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
