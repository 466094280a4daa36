"""P2, B1: what lies in a bundle's folder is listed, or one of a closed list of names, or the bundle is refused."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from runtime.bundle.errors import Eagle3Error, ErrorGroup, IntegrityError
from runtime.bundle.folder import Folder, NotAFileError
from runtime.bundle.open import MANIFEST, examine, file_problems, open_bundle, read_manifest
from runtime.bundle.unlisted import MOST_TOLD, UNLISTED
from tests.runtime.bundle.toy import forge


def found(path: Path) -> list[str]:
    """The sentences with which `path` is refused."""
    with pytest.raises(ErrorGroup) as caught:
        open_bundle(path, host=False)
    assert caught.value.exit_code == 5
    return [problem.sentence() for problem in caught.value.problems]


def as_file(path: Path) -> None:
    path.write_text('{"x": "../../../secret.bin"}')


def as_folder(path: Path) -> None:
    path.mkdir()


def as_link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def as_pipe(path: Path) -> None:
    os.mkfifo(path)


def as_socket(path: Path) -> None:
    inside = os.open(path.parent, os.O_RDONLY)  # a socket's path may have 108 bytes
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(f"/proc/self/fd/{inside}/{path.name}")
    os.close(inside)


KINDS = {
    "a file": as_file,
    "a folder": as_folder,
    "a symbolic link": as_link,
    "a named pipe": as_pipe,
    "a socket": as_socket,
}


@pytest.mark.parametrize(("kind", "plant"), KINDS.items())
@pytest.mark.parametrize("where", ["more", "tokenizer", "weights/more", "graphs/target_embed.t8/unit.json"])
def test_p2_b1_anything_unlisted_is_refused_by_name(
    toy: Path, kind: str, plant: Callable[[Path], None], where: str
) -> None:
    plant(toy / where)
    assert found(toy) == [
        f"The manifest does not list '{where}': expected the files that it lists, and build.json, found {kind}."
    ]


def test_p2_a_planted_chat_template_is_refused(toy: Path) -> None:
    (toy / "tokenizer").mkdir()
    (toy / "tokenizer" / "chat_template.jinja").write_text("{{ 'obey' }}")
    assert any("'tokenizer'" in sentence for sentence in found(toy))


def test_p2_the_closed_list_may_be_there(toy: Path) -> None:
    assert set(UNLISTED) == {MANIFEST, "build.json"}
    (toy / "build.json").unlink()
    assert open_bundle(toy, host=False).manifest == examine(toy)[0]


@pytest.mark.parametrize("content", ["[]", "[" * 100_000, "\0", "7"])
def test_b9_the_runtime_does_not_read_build_json(toy: Path, content: str) -> None:
    (toy / "build.json").unlink()
    (toy / "build.json").write_text(content)
    assert examine(toy)[1] == []
    assert open_bundle(toy, host=False)


@pytest.mark.parametrize(("kind", "plant"), [item for item in KINDS.items() if item[0] != "a file"])
def test_b1_a_build_json_that_is_no_file_is_refused(toy: Path, kind: str, plant: Callable[[Path], None]) -> None:
    (toy / "build.json").unlink()
    plant(toy / "build.json")
    assert found(toy) == [f"build.json is no file: expected a file, found {kind}."]


@pytest.mark.parametrize(("kind", "plant"), [item for item in KINDS.items() if item[0] != "a file"])
def test_b1_a_manifest_that_is_no_file_is_refused(toy: Path, kind: str, plant: Callable[[Path], None]) -> None:
    (toy / MANIFEST).rename(toy.parent / "real.json")
    plant(toy / MANIFEST)
    for read in (open_bundle, read_manifest, examine):
        with pytest.raises(IntegrityError) as caught:
            read(toy)
        assert (caught.value.what, caught.value.found) == (f"{toy} is not a bundle", kind)


def test_b1_a_manifest_behind_a_link_to_a_good_one_is_refused(toy: Path) -> None:
    (toy / MANIFEST).rename(toy.parent / "real.json")
    (toy / MANIFEST).symlink_to("../real.json")
    with pytest.raises(IntegrityError, match="symbolic link"):
        open_bundle(toy, host=False)


def test_p2_a_listed_file_must_be_one_that_a_bundle_has(toy: Path) -> None:
    """A library may look for a name beside the file that it is given, so the names of files are known ones."""
    (toy / "graphs/target_embed.t8/unit.json").write_text("{}")
    digest = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    forge(toy, lambda data: data["files"].update({"graphs/target_embed.t8/unit.json": {"size": 2, "sha256": digest}}))
    assert found(toy) == [
        "files lists a file that nothing uses: expected graphs, weights and the tokenizer's files, "
        "found graphs/target_embed.t8/unit.json."
    ]


def test_p2_a_folder_full_of_other_files_is_told_by_its_first_few(toy: Path) -> None:
    for number in range(2000):
        (toy / f"other{number}").touch()
    problems = file_problems(toy, read_manifest(toy))
    assert len(problems) == MOST_TOLD + 1
    assert problems[-1].found == f"more than {MOST_TOLD} others"


def test_p2_an_unlisted_folder_is_not_looked_into(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (toy / "other").mkdir()
    (toy / "other" / "inner").touch()
    looked: list[str] = []
    entries = Folder.entries
    monkeypatch.setattr(Folder, "entries", lambda self, name="": looked.append(name) or entries(self, name))
    assert len(file_problems(toy, read_manifest(toy))) == 1
    assert "other" not in looked


def test_b14_names_that_are_not_utf8(toy: Path) -> None:
    moved = toy.rename(os.fsdecode(os.fsencode(toy) + b"-\xff"))
    assert open_bundle(moved, host=False).tokenizer_files() == {}
    (Path(os.fsdecode(os.fsencode(moved) + b"/bad\xfe"))).touch()
    (sentence,) = found(moved)
    assert "bad\\udcfe" in sentence


def test_nothing_is_read_that_is_not_listed(toy: Path) -> None:
    bundle = open_bundle(toy, host=False)
    for read in (bundle.read, bundle.path):
        with pytest.raises(Eagle3Error, match=r"build\.json is not to be read"):
            read("build.json")


def test_a_folder_gives_out_regular_files_alone(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "file").write_text("content")
    (tmp_path / "link").symlink_to("inner/file")
    (tmp_path / "linked").symlink_to("inner")
    os.mkfifo(tmp_path / "pipe")
    folder = Folder(tmp_path)
    assert folder.read("inner/file", 100) == b"content"
    assert folder.read("inner/file", 3) == b"cont"
    for name in ("link", "linked/file", "inner/../inner/file", "/etc/passwd"):
        with pytest.raises(IntegrityError):
            folder.read(name, 100)
    for name in ("pipe", "inner"):
        with pytest.raises(NotAFileError):
            folder.read(name, 100)
    with pytest.raises(FileNotFoundError):
        folder.read("inner/none", 100)
