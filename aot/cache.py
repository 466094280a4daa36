"""The content-addressed cache of compiled code.

    $EAGLE3_CACHE/units/<key>/   unit.so, unit.json, factors.json, log.txt
    $EAGLE3_CACHE/neffs/<key>/   graph.neff, command.json, factors.json, log-neuron-cc.txt

A key is the sha256 over named factors, so a miss can be explained: the factors of the closest entry for the same unit
are compared by name. An entry appears by renaming a complete, synced folder; a failed compile leaves nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout


class GaveUp(Exception):
    """Nobody waits for a lock any longer: the build is ending."""


def cache_root() -> Path:
    """$EAGLE3_CACHE, else $XDG_CACHE_HOME/eagle3, else ~/.cache/eagle3."""
    if explicit := os.environ.get("EAGLE3_CACHE"):
        return Path(explicit)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "eagle3"


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

    def has(self, key: str) -> bool:
        return all((self.entry(key) / name).is_file() for name in self.needed)

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
        entry = self.entry(key)
        entry.parent.mkdir(parents=True, exist_ok=True)
        try:
            staged.rename(entry)
        except OSError:
            if not self.has(key):
                shutil.rmtree(entry, ignore_errors=True)  # an incomplete leftover
                staged.rename(entry)
        sync_folder(entry.parent)

    def explain_miss(self, factors: Mapping[str, str]) -> str:
        """Why there is no entry: the names of the factors that differ from the closest entry of the same unit."""
        unit = json.loads(factors["unit"])
        closest: list[str] | None = None
        for file in sorted((self.root / self.kind).glob("*/factors.json")):
            try:
                other = json.loads(file.read_text(encoding="utf-8"))
                other_unit = json.loads(other.get("unit", "{}"))
            except (OSError, ValueError):
                continue
            if other_unit.get("name") != unit["name"]:
                continue
            shapes = "shapes" if other_unit.get("dtype") == unit["dtype"] else "dtype"
            changed = sorted(shapes if name == "unit" else name for name in factors if other.get(name) != factors[name])
            if closest is None or len(changed) < len(closest):
                closest = changed
        if closest is None:
            return "never compiled here"
        return "changed: " + ", ".join(closest)


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
