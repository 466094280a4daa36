"""Whatever happened to a cache entry: it is told in a phrase, dropped and compiled anew, and never loaded (P4, B4)."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aot.backends.aoti.backend import AotiBackend
from aot.backends.aoti.toolchain import Toolchain
from aot.build import run
from aot.build.plan import PlannedUnit
from aot.build.pool import Workers, compile_all
from aot.cache import DAMAGED, Cache, damage_note, key_of
from aot.graphs.units import UnitSpec
from aot.seal import SEAL
from runtime.bundle.errors import IntegrityError

pytestmark = pytest.mark.timeout(60)

BACKEND = AotiBackend(Toolchain("g++", "g++ 12", "x86-64-v3", (), "library", "2.13.0"))
CODE = b"\x7fELF" + bytes(range(256)) * 100


def planned(name: str) -> PlannedUnit:
    factors = {"unit": json.dumps({"name": name, "dtype": "float32"})}
    spec = UnitSpec(name, "target_embed", "float32", {}, (), ())
    return PlannedUnit(spec, key_of(factors), factors, hit=False, reason="never compiled here")


UNIT, OTHER = planned("one"), planned("two")


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the units that the compiler was called for; what it makes is CODE."""
    names: list[str] = []

    def compile_unit(workers: Workers, job: dict[str, Any], out: Path, environment: dict[str, str]) -> int:
        names.append(job["unit"]["name"])
        (out / "log.txt").write_text("log")
        (out / "unit.so").write_bytes(CODE + job["unit"]["name"].encode())
        (out / "unit.json").write_text('{"constants": []}')
        return 0

    monkeypatch.setattr(Workers, "run", compile_unit)
    return names


@pytest.fixture
def cache(tmp_path: Path, compiled: list[str]) -> Cache:
    """A cache that holds both units."""
    made = Cache(tmp_path / "cache")
    compile_all([UNIT, OTHER], BACKEND, made, tmp_path / "logs", 1)
    compiled.clear()
    return made


def written(name: str, data: bytes) -> Callable[[Path, Path], None]:
    return lambda entry, other: (entry / name).write_bytes(data) and None


def cut(entry: Path, other: Path) -> None:
    os.truncate(entry / "unit.so", 1000)


def grown(entry: Path, other: Path) -> None:
    with (entry / "unit.so").open("ab") as stream:
        stream.write(b"\0")


def one_bit(entry: Path, other: Path) -> None:
    data = bytearray((entry / "unit.so").read_bytes())
    data[5000] ^= 1
    (entry / "unit.so").write_bytes(data)


def missing(name: str) -> Callable[[Path, Path], None]:
    return lambda entry, other: (entry / name).unlink()


def another_units_code(entry: Path, other: Path) -> None:
    shutil.copyfile(other / "unit.so", entry / "unit.so")


def another_entry(entry: Path, other: Path) -> None:
    shutil.rmtree(entry)
    shutil.copytree(other, entry)


def link(name: str) -> Callable[[Path, Path], None]:
    """The very file, but elsewhere: who may change that one changes the entry."""

    def replace(entry: Path, other: Path) -> None:
        elsewhere = entry.parent / "elsewhere"
        (entry / name).rename(elsewhere)
        (entry / name).symlink_to(elsewhere)

    return replace


def pipe(name: str) -> Callable[[Path, Path], None]:
    def replace(entry: Path, other: Path) -> None:
        (entry / name).unlink()
        os.mkfifo(entry / name)

    return replace


def folder(name: str) -> Callable[[Path, Path], None]:
    def replace(entry: Path, other: Path) -> None:
        (entry / name).unlink()
        (entry / name).mkdir()

    return replace


def no_folder(make: Callable[[Path], None]) -> Callable[[Path, Path], None]:
    def replace(entry: Path, other: Path) -> None:
        shutil.rmtree(entry)
        make(entry)

    return replace


def linked_entry(entry: Path, other: Path) -> None:
    elsewhere = entry.parent.parent / "elsewhere"
    entry.rename(elsewhere)
    entry.symlink_to(elsewhere, target_is_directory=True)


def sealed(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path, Path], None]:
    def rewrite(entry: Path, other: Path) -> None:
        data = json.loads((entry / SEAL).read_text())
        (entry / SEAL).write_text(json.dumps(change(data)))

    return rewrite


DEEP = b"[" * 200_000 + b"]" * 200_000
FORMS: dict[str, Callable[[Path, Path], None]] = {
    "unit.so empty": written("unit.so", b""),
    "unit.so cut": cut,
    "unit.so grown": grown,
    "unit.so one bit": one_bit,
    "unit.so another unit's": another_units_code,
    "unit.so missing": missing("unit.so"),
    "unit.so link": link("unit.so"),
    "unit.so pipe": pipe("unit.so"),
    "unit.so folder": folder("unit.so"),
    "unit.json empty": written("unit.json", b""),
    "unit.json {}": written("unit.json", b"{}"),
    "unit.json deep": written("unit.json", DEEP),
    "unit.json missing": missing("unit.json"),
    "unit.json pipe": pipe("unit.json"),
    "seal missing": missing(SEAL),
    "seal empty": written(SEAL, b""),
    "seal {}": written(SEAL, b"{}"),
    "seal []": written(SEAL, b"[]"),
    "seal deep": written(SEAL, DEEP),
    "seal huge": written(SEAL, b" " * (2 << 20)),
    "seal of 5,000 digits": written(SEAL, b'{"key": ' + b"9" * 5000 + b"}"),
    "seal not text": written(SEAL, b"\xff\xfe"),
    "seal link": link(SEAL),
    "seal pipe": pipe(SEAL),
    "seal names another key": sealed(lambda data: {**data, "key": OTHER.key}),
    "seal lists nothing": sealed(lambda data: {**data, "files": {}}),
    "seal lists a list": sealed(lambda data: {**data, "files": []}),
    "seal of an odd size": sealed(lambda data: {**data, "files": {**data["files"], "unit.so": {"size": "1"}}}),
    "seal of a negative size": sealed(lambda data: {**data, "files": {**data["files"], "unit.so": {"size": -1}}}),
    "seal without a digest": sealed(
        lambda data: {**data, "files": {**data["files"], "unit.so": {"size": data["files"]["unit.so"]["size"]}}}
    ),
    "another entry": another_entry,
    "an empty folder": no_folder(Path.mkdir),
    "a file": no_folder(Path.touch),
    "a pipe": no_folder(os.mkfifo),
    "a link": linked_entry,
    "a link to nothing": no_folder(lambda entry: entry.symlink_to("nowhere")),
    "a link to itself": no_folder(lambda entry: entry.symlink_to(entry.name)),
}


@pytest.mark.parametrize("form", FORMS)
def test_p4_b4_a_damaged_entry_is_told_dropped_and_compiled_anew(
    cache: Cache, tmp_path: Path, compiled: list[str], form: str
) -> None:
    entry, other = cache.entry(UNIT.key), cache.entry(OTHER.key)
    FORMS[form](entry, other)
    assert not cache.has(UNIT.key)
    reason = cache.explain_miss(UNIT.factors)
    assert reason.startswith(DAMAGED)
    assert len(reason) < 120
    assert "\n" not in reason
    with pytest.raises(IntegrityError):
        cache.take(UNIT.key, tmp_path / "taken")

    results = compile_all([UNIT, OTHER], BACKEND, cache, tmp_path / "logs", 1)
    assert all(result.ok for result in results)
    assert compiled == ["one"]
    assert cache.has(UNIT.key)
    taken = cache.take(UNIT.key, tmp_path / "taken again")
    assert (taken / "unit.so").read_bytes() == CODE + b"one"
    assert json.loads((taken / "unit.json").read_text()) == {"constants": []}
    assert cache.has(OTHER.key)


def test_what_lies_beside_an_entrys_files_is_not_taken(cache: Cache, tmp_path: Path) -> None:
    (cache.entry(UNIT.key) / "unit.so.json").write_text("{}")
    assert cache.has(UNIT.key)
    taken = cache.take(UNIT.key, tmp_path / "taken")
    assert sorted(file.name for file in taken.iterdir()) == ["unit.json", "unit.so"]


@pytest.mark.parametrize("form", ["unit.so cut", "unit.so one bit", "another entry"])
def test_p4_an_entry_that_is_damaged_during_the_build_is_not_placed(cache: Cache, tmp_path: Path, form: str) -> None:
    """What was compared is what is copied: nothing in between."""
    assert cache.has(UNIT.key)
    FORMS[form](cache.entry(UNIT.key), cache.entry(OTHER.key))
    with pytest.raises(IntegrityError) as caught:
        cache.take(UNIT.key, tmp_path / "taken")
    assert "again" in caught.value.repair


@pytest.mark.parametrize("made", ["deep", "list", "number", "pipe", "link to itself", "bytes"])
def test_other_entries_factors_do_not_hinder_an_explanation(cache: Cache, made: str) -> None:
    file = cache.entry(OTHER.key) / "factors.json"
    file.unlink()
    texts = {"deep": DEEP, "list": b"[]", "number": b'{"unit": 3}', "bytes": b"\xff"}
    if made == "pipe":
        os.mkfifo(file)
    elif made == "link to itself":
        file.symlink_to(file.name)
    else:
        file.write_bytes(texts[made])
    asked = {"unit": json.dumps({"name": "two", "dtype": "float32", "inputs": [1]})}
    assert cache.explain_miss(asked) == "never compiled here"


def test_p4_a_build_says_which_entry_is_damaged(cache: Cache, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With the name, what is wrong, and what becomes of it, in one line."""
    cut(cache.entry(UNIT.key), cache.entry(OTHER.key))
    reason = cache.explain_miss(UNIT.factors)
    note = damage_note(UNIT.spec.name, reason.removeprefix(DAMAGED))
    assert UNIT.spec.name in note
    assert "unit.so has 1000 bytes" in note
    assert run.damage_note is damage_note
