"""A bundle opens when it is what its manifest says; otherwise every deviation is named, before anything is loaded."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.bundle import host
from runtime.bundle import open as open_module
from runtime.bundle.errors import Eagle3Error, ErrorGroup, HostError
from runtime.bundle.manifest import Manifest, loads
from runtime.bundle.open import MANIFEST, file_problems, open_bundle, read_manifest, sha256_file

UNIT = "graphs/target_embed.t8/unit.so"
HEAD = "graphs/target_head.t8/unit.so"
TOKENIZER = "tokenizer/tokenizer.json"
WEIGHTS = "weights/target.safetensors"
AGAIN = "get the bundle again from where it was built, or rebuild it with eagle3-build"

REPOSITORY = Path(__file__).parents[3]

Data = dict[str, Any]
Reseal = Callable[[Callable[[Data], None]], Manifest]


def refusal(path: Path) -> Eagle3Error:
    """The integrity error with which `path` is refused."""
    with pytest.raises(Eagle3Error) as caught:
        open_bundle(path, host=False)
    assert caught.value.exit_code == 5
    return caught.value


def file_refusals(path: Path, *, verify: bool = True) -> list[str]:
    """The sentences about files with which `path` is refused."""
    with pytest.raises(ErrorGroup) as caught:
        open_bundle(path, verify=verify, host=False)
    assert caught.value.sentence() == f"The bundle {path.name} is damaged."
    assert caught.value.exit_code == 5
    return [problem.sentence() for problem in caught.value.problems]


# No manifest, or none that can be read


def test_a_missing_folder(tmp_path: Path) -> None:
    error = refusal(tmp_path / "none")
    assert error.sentence() == f"There is no bundle at {tmp_path / 'none'}: expected a folder, found nothing."
    assert error.repair == "build one with eagle3-build --config FILE.yaml"


def test_a_file_in_place_of_the_folder(bundle: Path) -> None:
    error = refusal(bundle / UNIT)
    assert error.sentence() == f"There is no bundle at {bundle / UNIT}: expected a folder, found a file."


def test_a_folder_without_a_manifest(bundle: Path) -> None:
    (bundle / MANIFEST).unlink()
    error = refusal(bundle)
    assert error.sentence() == f"{bundle} is not a bundle: expected manifest.json, found no such file in it."


def test_a_folder_in_place_of_the_manifest(bundle: Path) -> None:
    (bundle / MANIFEST).unlink()
    (bundle / MANIFEST).mkdir()
    assert refusal(bundle).what == f"{bundle} is not a bundle"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_pipe_in_place_of_the_manifest_does_not_hang(bundle: Path) -> None:
    (bundle / MANIFEST).unlink()
    os.mkfifo(bundle / MANIFEST)
    assert refusal(bundle).what == f"{bundle} is not a bundle"


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "Expecting value"),
        (b'{"format_version": 1,', "Expecting property name"),
        (b"\xff\xfe", "can't decode"),
        (b'\xef\xbb\xbf{"format_version": 1}', "BOM"),
        (b'{"format_version": 1, "format_version": 2}', "the key 'format_version' twice in one object"),
        (b'{"format_version": NaN}', "NaN, which is not a JSON number"),
        (b"[" * 200_000 + b"]" * 200_000, "lists and objects nested too deeply"),
    ],
)
def test_a_manifest_that_is_not_strict_json(bundle: Path, content: bytes, found: str) -> None:
    (bundle / MANIFEST).write_bytes(content)
    error = refusal(bundle)
    assert error.what == f"{bundle / MANIFEST} is not readable"
    assert error.expected == "JSON text"
    assert found in error.found


@pytest.mark.parametrize(
    ("content", "found"), [("[1, 2]", "list"), ("7", "7"), ("null", "None"), ('"text"', "'text'"), ("true", "True")]
)
def test_a_manifest_that_is_no_object(bundle: Path, content: str, found: str) -> None:
    (bundle / MANIFEST).write_text(content)
    assert refusal(bundle).sentence() == f"manifest is not readable: expected an object, found {found}."


def test_a_manifest_of_absurd_size_is_not_read(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_module, "MAX_MANIFEST_BYTES", 1000)
    size = (bundle / MANIFEST).stat().st_size
    assert refusal(bundle).sentence() == (
        f"{bundle / MANIFEST} is not readable: expected at most 1000 bytes, found {size} bytes."
    )


# Below the interpreter's limit the parser may be content, and what walks over its result is not.
@pytest.mark.parametrize("depth", [sys.getrecursionlimit() - 100, 5000, 200_000])
def test_a_configuration_nested_too_deeply(bundle: Path, golden_json: Data, depth: int) -> None:
    golden_json["target"]["config"] = {"deep": "@"}
    text = json.dumps(golden_json).replace('"@"', "[" * depth + "]" * depth)
    (bundle / MANIFEST).write_text(text)
    error = refusal(bundle)
    assert error.what == f"{bundle / MANIFEST} is not readable"
    assert error.found == "lists and objects nested too deeply"


# Another format, or a changed manifest


@pytest.mark.parametrize(("version", "found"), [(2, "2"), (0, "0"), ("1", "'1'"), (None, "None"), ([1], "[1]")])
def test_another_format_version(bundle: Path, golden_json: Data, version: object, found: str) -> None:
    (bundle / MANIFEST).write_text(json.dumps({**golden_json, "format_version": version}))
    error = refusal(bundle)
    assert error.sentence() == (
        f"The bundle golden has a format that this version does not read: expected format_version 1, found {found}."
    )
    assert error.repair == "rebuild it, or run it with the version of eagle3-run that built it"


def test_another_format_is_refused_before_its_unknown_keys_are(bundle: Path) -> None:
    (bundle / MANIFEST).write_text('{"format_version": 2, "shards": []}')
    assert refusal(bundle).what == "The bundle golden has a format that this version does not read"


@pytest.mark.parametrize("version", [True, 1.0])
def test_what_merely_equals_the_version_is_refused(bundle: Path, golden_json: Data, version: object) -> None:
    (bundle / MANIFEST).write_text(json.dumps({**golden_json, "format_version": version}))
    assert refusal(bundle).what == "manifest.format_version is not readable"


def test_an_edited_manifest(bundle: Path, golden_json: Data) -> None:
    golden_json["limits"]["max_num_seqs"] = 64
    (bundle / MANIFEST).write_text(json.dumps(golden_json))
    error = refusal(bundle)
    assert error.what == "The manifest of golden was changed after it was built"
    assert error.expected == f"content with the id {golden_json['bundle_id'][:16]}"
    assert error.found.startswith("content with the id ")
    assert error.found != error.expected
    assert error.repair == "get the bundle again from where it was built, or rebuild it"


def test_a_reformatted_manifest_is_the_same_manifest(bundle: Path, golden: Manifest, golden_json: Data) -> None:
    (bundle / MANIFEST).write_text(json.dumps(golden_json, indent=8))
    assert open_bundle(bundle, host=False).manifest == golden


def test_a_name_that_is_no_unicode_text(bundle: Path, golden_text: str) -> None:
    (bundle / MANIFEST).write_text(golden_text.replace('"name": "golden"', '"name": "\\ud800"'))
    assert refusal(bundle).what == "The manifest holds a value that cannot be stored"


def test_an_unknown_row_convention(bundle: Path, reseal: Reseal) -> None:
    reseal(lambda data: data["speculation"].update(row_convention="feature_i_token_i"))
    assert refusal(bundle).sentence() == (
        "The bundle golden pairs features and tokens in an unknown way: "
        "expected feature_i_token_i_plus_1_at_position_i, found feature_i_token_i."
    )


def test_a_bundle_that_is_lowered_only(bundle: Path, reseal: Reseal) -> None:
    reseal(lambda data: data.update(state="lowered"))
    error = refusal(bundle)
    assert error.sentence().endswith(": expected state ready, found state lowered.")
    assert "device compiler" in error.repair
    assert read_manifest(bundle).state == "lowered"


# Files


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
    data = json.loads((Path(__file__).parent / "golden" / "manifest-v1.json").read_text(encoding="utf-8"))
    data["files"] = {WEIGHTS: data["files"][WEIGHTS]}
    return root, loads(data)


@pytest.mark.parametrize("link_to", ["other.so", "/dev/zero", "nowhere"])
def test_a_symbolic_link_in_place_of_a_file(bundle: Path, link_to: str) -> None:
    (bundle / UNIT).rename((bundle / UNIT).with_name("other.so"))
    (bundle / UNIT).symlink_to(link_to)
    assert [sentence.partition(":")[0] for sentence in file_refusals(bundle)] == [
        f"Refusing to load since the manifest names an unsafe path '{UNIT}'"
    ]


def test_a_symbolic_link_in_place_of_a_folder(bundle: Path) -> None:
    (bundle / "weights").rename(bundle / "elsewhere")
    (bundle / "weights").symlink_to("elsewhere")
    assert [sentence.partition(": ")[2] for sentence in file_refusals(bundle)] == [
        "expected a plain relative path inside the bundle, found a symbolic link."
    ]


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "a\\b", "a//b", "a" * 5000])
def test_an_unsafe_path_in_a_sealed_manifest(bundle: Path, reseal: Reseal, path: str) -> None:
    reseal(lambda data: data["files"].update({path: {"size": 1, "sha256": "0" * 64}}))
    [sentence] = file_refusals(bundle)
    assert sentence.startswith(f"Refusing to load since the manifest names an unsafe path {path!r}")


@pytest.mark.parametrize("size", [-1, 0, 2**63, 10**100])
def test_a_size_that_no_file_has(bundle: Path, reseal: Reseal, size: int) -> None:
    reseal(lambda data: data["files"][TOKENIZER].update(size=size))
    assert file_refusals(bundle) == [f"{TOKENIZER} is changed: expected {size} bytes, found 3 bytes."]


@pytest.mark.parametrize("digest", ["", "0" * 64, "not hexadecimal"])
def test_a_digest_of_something_else(bundle: Path, reseal: Reseal, digest: str) -> None:
    reseal(lambda data: data["files"][TOKENIZER].update(sha256=digest))
    assert file_refusals(bundle) == [
        f"{TOKENIZER} is changed: expected sha256 {digest[:16]}, found sha256 ca3d163bab055381."
    ]


def test_a_file_that_may_not_be_read(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(file: Path) -> str:
        raise PermissionError(13, "Permission denied", str(file))

    # Not by its mode: the superuser, as whom containers run tests, reads every file.
    monkeypatch.setattr(open_module, "sha256_file", forbidden)
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


def test_a_file_that_the_manifest_does_not_list_is_ignored(bundle: Path, golden: Manifest) -> None:
    (bundle / "build.json").write_text("{}")
    (bundle / "graphs" / "unlisted.so").write_bytes(b"never opened")
    (bundle / "unlisted").symlink_to("/etc")
    assert open_bundle(bundle, host=False).manifest == golden


def test_the_digest_of_a_file(tmp_path: Path) -> None:
    # FIPS 180-2's example
    (tmp_path / "abc").write_bytes(b"abc")
    assert sha256_file(tmp_path / "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


# The order of the stages


def test_the_host_is_looked_at_last(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "torch_release", lambda: "2.9.0")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setattr(host, "cpu_features", lambda: frozenset({"avx2", "fma"}))
    with pytest.raises(HostError) as caught:
        open_bundle(bundle)
    assert caught.value.exit_code == 4
    (bundle / UNIT).unlink()
    with pytest.raises(ErrorGroup) as damaged:
        open_bundle(bundle)
    assert damaged.value.exit_code == 5


def test_a_bundle_named_by_a_dot_is_called_by_its_folder(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (bundle / UNIT).unlink()
    monkeypatch.chdir(bundle)
    assert refusal(Path(".")).sentence() == "The bundle golden is damaged."


def test_opening_imports_no_torch(bundle: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from runtime.bundle.open import open_bundle;"
        f"open_bundle(Path({str(bundle)!r}), host=False); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    assert done.stdout == "False\n"
