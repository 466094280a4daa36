"""Paths that a hostile manifest may name: each is refused, and no string leads outside the bundle."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from runtime.bundle.errors import IntegrityError
from runtime.bundle.paths import check_relative, inside

ATTACKS = {
    "absolute": "/etc/passwd",
    "network share": "//server/share/file",
    "parent": "../secret",
    "parent in the middle": "graphs/../../secret",
    "parent at the end": "graphs/..",
    "this folder": "./graphs/unit.so",
    "this folder in the middle": "graphs/./unit.so",
    "nothing": "",
    "empty part": "graphs//unit.so",
    "trailing slash": "graphs/",
    "backslash": "graphs\\unit.so",
    "backslashed parent": "..\\secret",
    "drive": "C:/secret",
    "drive without a slash": "C:secret",
    "drive further in": "graphs/C:/secret",
    "alternate stream": "graphs/unit.so:stream",
    "scheme": "file:///etc/passwd",
    "NUL": "graphs/unit.so\0.txt",
    "line break": "graphs/unit.so\nerror: none",
    "terminal code": "graphs/\x1b[2Junit.so",
    "text that runs backwards": "graphs/\u202eos.tinu",
    "lone surrogate": "graphs/\ud800",
    "byte that is not UTF-8": "graphs/\udcff",
    "name longer than file systems take": "a" * 5000,
}

# Strings that are likelier to be attacks than any text is; `characters()` draws lone surrogates too.
PARTS = st.one_of(
    st.sampled_from(["..", ".", "", "~", "C:", "folder", "file", "link", "linked-folder", "\\", "\0", "a" * 300]),
    st.text(st.characters(), max_size=8),
)
PATHS = st.one_of(st.text(st.characters()), st.lists(PARTS, max_size=6).map("/".join))


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    """A folder with one file, a link to a file outside, and a link to a folder outside."""
    with tempfile.TemporaryDirectory() as name:
        outside, inner = Path(name, "outside"), Path(name, "bundle")
        (inner / "folder").mkdir(parents=True)
        outside.mkdir()
        (outside / "file").write_text("secret")
        (inner / "folder" / "file").write_text("content")
        (inner / "link").symlink_to(outside / "file")
        (inner / "linked-folder").symlink_to(outside)
        (inner / "dangling").symlink_to(outside / "nothing")
        (inner / "folder" / "harmless").symlink_to("file")
        yield inner


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
def test_an_attack_is_refused(root: Path, attack: str) -> None:
    with pytest.raises(IntegrityError) as caught:
        inside(root, attack)
    assert caught.value.what == f"Refusing to load since the manifest names an unsafe path {attack!r}"
    assert caught.value.exit_code == 5


@pytest.mark.parametrize(
    "path",
    ["link", "linked-folder", "linked-folder/file", "linked-folder/new", "dangling", "folder/harmless"],
)
def test_a_symbolic_link_is_refused_wherever_it_leads(root: Path, path: str) -> None:
    with pytest.raises(IntegrityError) as caught:
        inside(root, path)
    assert caught.value.sentence() == (
        f"Refusing to load since the manifest names an unsafe path '{path}': "
        "expected a plain relative path inside the bundle, found a symbolic link."
    )


@pytest.mark.parametrize(
    "path",
    ["folder/file", "manifest.json", "a b/größe-λ", "~/file", "...", "..a/b..", "-rf", "graphs/x.r4.c512/unit.so"],
)
def test_a_plain_path_is_taken_whether_it_exists_or_not(root: Path, path: str) -> None:
    assert inside(root, path) == root / path


def test_the_bundle_itself_may_lie_behind_a_link(root: Path, tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to(root)
    assert inside(tmp_path / "latest", "folder/file").read_text() == "content"


@given(PATHS)
@example("folder/file")
@example("linked-folder/file")
@example("folder/../../outside/file")
@example("file\ud800")
def test_no_string_leads_outside(root: Path, path: str) -> None:
    try:
        found = inside(root, path)
    except IntegrityError:
        return
    assert found.resolve().is_relative_to(root.resolve())
    assert found.resolve() != root.resolve()


@given(st.lists(st.text("abcXYZ019._- λ", min_size=1).filter(lambda part: part not in (".", "..")), min_size=1))
def test_every_plain_path_passes(parts: list[str]) -> None:
    check_relative("/".join(parts))
