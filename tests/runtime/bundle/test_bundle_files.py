"""The files of a bundle are compared with what its manifest lists, and every deviation is reported at once."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.bundle import files as files_module
from runtime.bundle.errors import ErrorGroup
from runtime.bundle.manifest import Manifest, loads
from runtime.bundle.open import file_problems, open_bundle, sha256_file

UNIT = "graphs/target_embed.t8/unit.so"
HEAD = "graphs/target_head.t8/unit.so"
TOKENIZER = "tokenizer/tokenizer.json"
WEIGHTS = "weights/target.safetensors"
AGAIN = "get the bundle again from where it was built, or rebuild it with eagle3-build"

Reseal = Callable[[Callable[[dict[str, Any]], None]], Manifest]


def file_refusals(path: Path, *, verify: bool = True) -> list[str]:
    """The sentences about files with which `path` is refused."""
    with pytest.raises(ErrorGroup) as caught:
        open_bundle(path, verify=verify, host=False)
    assert caught.value.sentence() == f"The bundle {path.name} is damaged."
    assert caught.value.exit_code == 5
    return [problem.sentence() for problem in caught.value.problems]


def test_a_missing_file(bundle: Path) -> None:
    (bundle / UNIT).unlink()
    assert file_refusals(bundle) == [f"{UNIT} is missing: expected a file of 30 bytes, found no file."]


def test_a_folder_in_place_of_a_file(bundle: Path) -> None:
    (bundle / UNIT).unlink()
    (bundle / UNIT).mkdir()
    assert file_refusals(bundle) == [f"{UNIT} is missing: expected a file of 30 bytes, found a folder."]


def test_a_file_in_place_of_a_folder(bundle: Path) -> None:
    (bundle / UNIT).unlink()
    (bundle / UNIT).parent.rmdir()
    (bundle / UNIT).parent.write_text("")
    assert file_refusals(bundle) == [f"{UNIT} is missing: expected a file of 30 bytes, found no file."]


def test_a_truncated_file(bundle: Path) -> None:
    os.truncate(bundle / WEIGHTS, 5)
    assert file_refusals(bundle) == [f"{WEIGHTS} is changed: expected 22 bytes, found 5 bytes."]
    assert file_refusals(bundle, verify=False) == [f"{WEIGHTS} is changed: expected 22 bytes, found 5 bytes."]


@settings(max_examples=30, deadline=None)
@given(position=st.integers(0, 21), bit=st.integers(0, 7))
def test_one_flipped_bit_anywhere(content_and_entry: tuple[Path, Manifest], position: int, bit: int) -> None:
    root, manifest = content_and_entry
    good = b"weights of the target\n"
    bad = bytearray(good)
    bad[position] ^= 1 << bit
    (root / WEIGHTS).write_bytes(bad)
    digests = [hashlib.sha256(content).hexdigest()[:16] for content in (good, bad)]
    assert [problem.sentence() for problem in file_problems(root, manifest)] == [
        f"{WEIGHTS} is changed: expected sha256 {digests[0]}, found sha256 {digests[1]}."
    ]
    assert file_problems(root, manifest, verify=False) == []


@pytest.fixture(scope="module")
def content_and_entry(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Manifest]:
    """A folder for the one file WEIGHTS, and a manifest that lists nothing else."""
    root = tmp_path_factory.mktemp("flipped")
    (root / WEIGHTS).parent.mkdir()
    data = json.loads((Path(__file__).parent / "golden" / "manifest-v2.json").read_text(encoding="utf-8"))
    data["files"] = {WEIGHTS: data["files"][WEIGHTS]}
    return root, loads(data)


@pytest.mark.parametrize("link_to", ["other.so", "/dev/zero", "nowhere"])
def test_a_symbolic_link_in_place_of_a_file(bundle: Path, link_to: str) -> None:
    (bundle / UNIT).rename((bundle / UNIT).with_name("other.so"))
    (bundle / UNIT).symlink_to(link_to)
    assert [sentence.partition(":")[0] for sentence in file_refusals(bundle)] == [
        f"Refusing to load since the manifest names an unsafe path '{UNIT}'",
        "The manifest does not list 'graphs/target_embed.t8/other.so'",
    ]


def test_a_symbolic_link_in_place_of_a_folder(bundle: Path) -> None:
    (bundle / "weights").rename(bundle / "elsewhere")
    (bundle / "weights").symlink_to("elsewhere")
    assert [sentence.partition(": ")[2] for sentence in file_refusals(bundle)] == [
        "expected a plain relative path inside the bundle, found a symbolic link.",
        "expected the files that it lists, and build.json, found a folder.",
    ]


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "a\\b", "a//b", "a" * 5000])
def test_an_unsafe_path_in_a_sealed_manifest(bundle: Path, reseal: Reseal, path: str) -> None:
    reseal(lambda data: data["files"].update({path: {"size": 1, "sha256": "0" * 64}}))
    [sentence] = file_refusals(bundle)
    assert sentence.startswith(f"Refusing to load since the manifest names an unsafe path {path!r}")


@pytest.mark.parametrize("size", [0, 2**50])
def test_a_size_that_the_file_has_not(bundle: Path, reseal: Reseal, size: int) -> None:
    reseal(lambda data: data["files"][TOKENIZER].update(size=size))
    assert file_refusals(bundle) == [f"{TOKENIZER} is changed: expected {size} bytes, found 3 bytes."]


def test_a_digest_of_something_else(bundle: Path, reseal: Reseal) -> None:
    digest = "0" * 64
    reseal(lambda data: data["files"][TOKENIZER].update(sha256=digest))
    assert file_refusals(bundle) == [
        f"{TOKENIZER} is changed: expected sha256 {digest[:16]}, found sha256 ca3d163bab055381."
    ]


def test_a_file_that_may_not_be_read(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(file: int) -> str:
        raise PermissionError(13, "Permission denied", str(file))

    # Not by its mode: the superuser, as whom containers run tests, reads every file.
    monkeypatch.setattr(files_module, "sha256_file", forbidden)
    assert file_refusals(bundle) == [
        f"{UNIT} cannot be read: expected 30 bytes, found Permission denied.",
        f"{HEAD} cannot be read: expected 29 bytes, found Permission denied.",
        f"{TOKENIZER} cannot be read: expected 3 bytes, found Permission denied.",
        f"{WEIGHTS} cannot be read: expected 22 bytes, found Permission denied.",
    ]


def test_everything_that_is_wrong_with_files_is_reported_at_once(bundle: Path, reseal: Reseal) -> None:
    reseal(lambda data: data["files"].update({"../secret": {"size": 1, "sha256": "0" * 64}}))
    (bundle / UNIT).unlink()
    (bundle / HEAD).write_bytes(b"Compiled code of target_head\n")
    os.truncate(bundle / WEIGHTS, 0)
    with pytest.raises(ErrorGroup) as caught:
        open_bundle(bundle, host=False)
    assert [problem.what for problem in caught.value.problems] == [
        "Refusing to load since the manifest names an unsafe path '../secret'",
        f"{UNIT} is missing",
        f"{HEAD} is changed",
        f"{WEIGHTS} is changed",
    ]
    assert [problem.repair for problem in caught.value.problems[1:]] == [AGAIN] * 3


def test_the_digest_of_a_file(tmp_path: Path) -> None:
    # FIPS 180-2's example
    (tmp_path / "abc").write_bytes(b"abc")
    assert sha256_file(tmp_path / "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
