"""Opening a bundle: the manifest is read and doubted first, then files, then references, and the host last."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runtime.bundle import host
from runtime.bundle import open as open_module
from runtime.bundle.errors import Eagle3Error, ErrorGroup, HostError
from runtime.bundle.manifest import Manifest
from runtime.bundle.open import MANIFEST, open_bundle, read_manifest

UNIT = "graphs/target_embed.t8/unit.so"

REPOSITORY = Path(__file__).parents[3]

Data = dict[str, Any]
Reseal = Callable[[Callable[[Data], None]], Manifest]


def refusal(path: Path) -> Eagle3Error:
    """The integrity error with which `path` is refused."""
    with pytest.raises(Eagle3Error) as caught:
        open_bundle(path, host=False)
    assert caught.value.exit_code == 5
    return caught.value


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
    assert refusal(bundle).sentence() == (
        f"{bundle / MANIFEST} is not readable: expected at most 1000 bytes, found more."
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


@pytest.mark.parametrize(("version", "found"), [(3, "3"), (0, "0"), ("1", "'1'"), (None, "None"), ([1], "[1]")])
def test_another_format_version(bundle: Path, golden_json: Data, version: object, found: str) -> None:
    (bundle / MANIFEST).write_text(json.dumps({**golden_json, "format_version": version}))
    error = refusal(bundle)
    assert error.sentence() == (
        f"The bundle golden has a format that this version does not read: expected format_version 2, found {found}."
    )
    assert "eagle3-build --config" in error.repair
    assert "the version of eagle3-run that built it" in error.repair


def test_another_format_is_refused_before_its_unknown_keys_are(bundle: Path) -> None:
    (bundle / MANIFEST).write_text('{"format_version": 3, "shards": []}')
    assert refusal(bundle).what == "The bundle golden has a format that this version does not read"


@pytest.mark.parametrize("version", [2.0])
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


def test_a_reformatted_manifest_is_the_same_manifest(toy: Path) -> None:
    before, text = open_bundle(toy, host=False).manifest, (toy / MANIFEST).read_text()
    (toy / MANIFEST).write_text(json.dumps(json.loads(text), indent=8))
    assert open_bundle(toy, host=False).manifest == before


def test_a_name_that_is_no_unicode_text(bundle: Path, golden_text: str) -> None:
    (bundle / MANIFEST).write_text(golden_text.replace('"name": "golden"', '"name": "\\ud800"'))
    assert refusal(bundle).what == "The manifest holds a value that cannot be stored"


def test_an_unknown_row_convention(bundle: Path, reseal: Reseal) -> None:
    """D3: some runtimes count a draft row's position from its token, ours from its hidden state."""
    reseal(lambda data: data["speculation"].update(row_convention="feature_i_token_i"))
    assert refusal(bundle).sentence() == (
        "The bundle golden pairs features and tokens in an unknown way: "
        "expected feature_i_token_i_plus_1_at_position_i, found feature_i_token_i."
    )


def test_a_bundle_that_is_lowered_only(bundle: Path, reseal: Reseal) -> None:
    reseal(lambda data: data.update(state="lowered"))
    error = refusal(bundle)
    assert error.sentence().endswith(": expected state ready, found state lowered.")
    assert "eagle3-build finish --bundle" in error.repair
    assert "--device sim" in error.repair
    assert read_manifest(bundle).state == "lowered"


# The order of the stages


def test_the_host_is_looked_at_last(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "torch_release", lambda: "2.9.0")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setattr(host, "cpu_features", lambda: frozenset({"avx2", "fma"}))
    with pytest.raises(HostError) as caught:
        open_bundle(toy)
    assert caught.value.exit_code == 4
    next(toy.glob("graphs/*/unit.so")).unlink()
    with pytest.raises(ErrorGroup) as damaged:
        open_bundle(toy)
    assert damaged.value.exit_code == 5


def test_a_bundle_named_by_a_dot_is_called_by_its_folder(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (bundle / UNIT).unlink()
    monkeypatch.chdir(bundle)
    assert refusal(Path(".")).sentence() == "The bundle golden is damaged."


def test_opening_imports_no_torch(toy: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from runtime.bundle.open import open_bundle;"
        f"open_bundle(Path({str(toy)!r}), host=False); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    assert done.stdout == "False\n"
