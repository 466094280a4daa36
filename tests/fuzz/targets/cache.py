"""The build cache: entries damaged between two builds of the same units; each unit must come out as it was compiled.

The compiler is a stand-in that writes a file. What the cache hands out is compared byte for byte, so a damaged entry
that is trusted is a wrong answer, and one that is told and compiled anew a right one.
"""

from __future__ import annotations

import hashlib
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.fuzz.mutations import spoil_folder
from tests.fuzz.target import linked_copy

NAMES = ("embed", "layer", "head")


class StandIn:
    """A backend whose compiler writes the unit's name a thousand times."""

    files = ("unit.json", "unit.so")

    def compile(self, spec: Any, staged: Path, workers: Any, scratch: Path) -> int:
        (staged / "unit.so").write_bytes(spec.name.encode() * 1000)
        (staged / "unit.json").write_text(f'{{"name": "{spec.name}"}}')
        (staged / "log.txt").write_text("compiled")
        return 0

    def complete(self, spec: Any, staged: Path) -> None:
        """Nothing to add."""


class Caches:
    """A cache of three units, one of its entries spoiled, read by a build that wants all three."""

    seconds = 20.0

    def prepare(self, folder: Path) -> None:
        _build(folder / "cache", folder / "taken")

    def load(self) -> None:
        import aot.build.pool
        import aot.cache  # noqa: F401

    def copy(self, pristine: Path, folder: Path) -> None:
        linked_copy(pristine / "cache", folder / "cache")

    def spoil(self, rng: random.Random, folder: Path) -> str:
        outside = folder / "outside"
        outside.write_text("{}")
        entries = folder / "cache" / "units"
        return spoil_folder(rng, rng.choice([entries, *sorted(entries.iterdir())]), outside)

    def run(self, folder: Path) -> int:
        from runtime.bundle.errors import Eagle3Error, render

        try:
            print(_build(folder / "cache", folder / "taken"))
        except Eagle3Error as error:
            print("\n".join(render(error)))
            return error.exit_code
        return 0

    def answer(self, out: str) -> str:
        return out


def _build(root: Path, taken: Path) -> str:
    """What a build does with a cache: look, say why not, compile what it lacks, take; the digest of what it took."""
    from aot.build.pool import compile_all
    from aot.cache import Cache, key_of

    cache, backend = Cache(root), StandIn()
    units = []
    for name in NAMES:
        factors = {"unit": f'{{"name": "{name}", "dtype": "float32"}}', "torch": "2"}
        units.append(SimpleNamespace(spec=SimpleNamespace(name=name), key=key_of(factors), factors=factors))
    missing: list[Any] = [unit for unit in units if not cache.has(unit.key)]
    for unit in missing:
        cache.explain_miss(unit.factors)
    if missing:
        results = compile_all(missing, backend, cache, taken.with_name("logs"), 1)  # type: ignore[arg-type]
        assert all(result.ok for result in results)
    digest = hashlib.sha256()
    for unit in units:
        where = cache.take(unit.key, taken / unit.spec.name)
        for file in sorted(where.iterdir()):
            digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()
