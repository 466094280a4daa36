"""B8: a bundle that is replaced while it is read is read wholly old or wholly new."""

from __future__ import annotations

import hashlib
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from aot.build import assemble
from aot.build.assemble import publish
from aot.exchange import exchange
from runtime.bundle.errors import IntegrityError
from runtime.bundle.folder import Folder
from runtime.bundle.manifest import Manifest
from runtime.bundle.open import MANIFEST, MOST_TRIES, Bundle, examine, open_bundle, read_manifest
from tests.runtime.bundle.toy import copy_of, forge


@pytest.fixture
def two(toy_template: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Two bundles of one folder: the one called `out`, and one of another name and other tokenizer files, staged."""
    old, new = copy_of(toy_template, tmp_path / "out"), copy_of(toy_template, tmp_path / ".out.staging-1")
    (new / "tokenizer").mkdir()
    entries = {}
    for name in ("tokenizer.json", "tokenizer_info.json"):
        (new / "tokenizer" / name).write_text("{}")
        entries[f"tokenizer/{name}"] = {"size": 2, "sha256": hashlib.sha256(b"{}").hexdigest()}
    forge(new, lambda data: (data["files"].update(entries), data.update(name="new")))
    return old, new


def is_whole(bundle: Bundle) -> bool:
    """Whether every listed file has the content that the manifest says."""
    files = bundle.manifest.files
    return all(hashlib.sha256(bundle.read(name)).hexdigest() == entry.sha256 for name, entry in files.items())


def at_call(patch: pytest.MonkeyPatch, number: int, act: Callable[[], object]) -> list[str]:
    """Do `act` before the `number`-th opening of a file; the list fills with what is opened."""
    opened: list[str] = []
    real, lock = Folder.open, threading.Lock()

    def watched(self: Folder, relative: str) -> int:
        with lock:
            opened.append(relative)
            if len(opened) == number:
                act()
        return real(self, relative)

    patch.setattr(Folder, "open", watched)
    return opened


def replace_by(output: Path, staging: Path) -> Callable[[], object]:
    return lambda: publish(staging, output)


@pytest.mark.parametrize("number", [1, 2, 3, 9, 17])
def test_b8_replaced_at_any_file_it_opens_wholly(
    two: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    old, new = two
    opened = at_call(monkeypatch, number, replace_by(old, new))
    bundle = open_bundle(old, host=False)
    assert len(opened) >= number
    assert is_whole(bundle)
    assert ("tokenizer/tokenizer.json" in bundle.manifest.files) == (bundle.manifest.name == "new")


@pytest.mark.parametrize("number", [1, 2, 9])
def test_b8_what_inspect_shows_is_of_one_bundle(
    two: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    old, new = two
    at_call(monkeypatch, number, replace_by(old, new))
    _, problems = examine(old)
    assert problems == []


def test_b8_an_opened_bundle_outlives_its_folder(toy: Path) -> None:
    bundle = open_bundle(toy, host=False)
    shutil.rmtree(toy)
    assert is_whole(bundle)
    name = next(iter(bundle.manifest.files))
    first, second = bundle.path(name), bundle.path(name)
    assert Path(first).read_bytes() == Path(second).read_bytes() == bundle.read(name)
    assert first != second, "the system's loader would take two libraries of one path for one"


def test_b8_a_reader_never_sees_a_writer(two: tuple[Path, Path], tmp_path: Path) -> None:
    """A reader in a loop beside a writer; both go as fast as they can.

    The writer publishes fewer bundles than a reader makes tries, so that no reading can meet one at each of its tries.
    """
    old, new = two
    keep = copy_of(old, tmp_path / "keep-old"), copy_of(new, tmp_path / "keep-new")
    done = threading.Event()

    def write() -> None:
        for turn in range(MOST_TRIES - 1):
            staging = copy_of(keep[turn % 2], tmp_path / f".out.staging-{turn + 2}")
            publish(staging, old)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    names = set()
    while not done.is_set():
        bundle = open_bundle(old, host=False)
        assert is_whole(bundle)
        names.add(bundle.manifest.name)
    writer.join()
    assert names <= {"toy", "new"}


@pytest.mark.parametrize("times", [1, MOST_TRIES - 1, MOST_TRIES])
def test_b8_replaced_at_every_try(
    two: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """A bundle that is replaced under each of `times` readings opens at the next one, if there is one."""
    old, new = two
    keep = copy_of(new, tmp_path / "keep")
    left = iter(range(times))
    real = Folder.open

    def watched(self: Folder, relative: str) -> int:
        fd = real(self, relative)
        if relative == MANIFEST and (turn := next(left, None)) is not None:
            publish(copy_of(keep, tmp_path / f".out.staging-{turn + 2}"), old)
        return fd

    monkeypatch.setattr(Folder, "open", watched)
    if times < MOST_TRIES:
        assert is_whole(open_bundle(old, host=False))
    else:
        with pytest.raises(IntegrityError, match="replaced faster"):
            open_bundle(old, host=False)


def test_b8_a_bundle_that_never_stays_is_told(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (next(toy.glob("graphs/*/unit.so"))).unlink()
    monkeypatch.setattr(Folder, "replaced", lambda self: True)
    with pytest.raises(IntegrityError) as caught:
        open_bundle(toy, host=False)
    assert caught.value.what == "The bundle toy is replaced faster than it can be read"
    assert str(MOST_TRIES) in caught.value.found


def test_b8_publishing_exchanges_the_folders(two: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = two
    if not exchange(old, new):
        pytest.skip("this kernel or file system cannot exchange folders")
    exchange(old, new)
    monkeypatch.setattr(Path, "rename", lambda self, target: pytest.fail("a moment without a bundle"))
    publish(new, old)
    assert read_manifest(old).name == "new"
    assert [path.name for path in old.parent.iterdir()] == ["out"]


def test_b8_publishing_without_an_exchange(two: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = two
    monkeypatch.setattr(assemble, "exchange", lambda first, second: False)
    publish(new, old)
    assert read_manifest(old).name == "new"
    assert [path.name for path in old.parent.iterdir()] == ["out"]


def test_an_exchange_needs_both(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    assert not exchange(tmp_path / "one", tmp_path / "none")
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


def test_b8_a_first_bundle_is_published(toy_template: Path, tmp_path: Path) -> None:
    staged = copy_of(toy_template, tmp_path / ".out.staging-1")
    publish(staged, tmp_path / "out")
    made: Manifest = read_manifest(tmp_path / "out")
    assert made.name == "toy"
