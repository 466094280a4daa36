"""An output folder is replaced only when it is a bundle, and never lost on the way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aot.build import assemble
from aot.build.assemble import check_output, publish, remove_leftovers
from runtime.bundle.errors import UsageError


def folder(path: Path, **files: str) -> Path:
    path.mkdir(parents=True)
    for name, text in files.items():
        (path / name.replace("_", ".")).write_text(text)
    return path


def test_a_manifest_of_something_else_is_no_bundle(tmp_path: Path) -> None:
    extension = folder(tmp_path / "extension", manifest_json=json.dumps({"manifest_version": 3, "name": "mine"}))
    with pytest.raises(UsageError) as caught:
        check_output(extension)
    assert caught.value.expected == "a bundle's manifest.json in it, or an empty folder"
    assert caught.value.found == "manifest.json"


def test_a_bundle_of_another_format_may_be_replaced(tmp_path: Path) -> None:
    check_output(folder(tmp_path / "old", manifest_json=json.dumps({"format_version": 99, "bundle_id": "x"})))


def test_a_damaged_bundle_may_be_replaced(tmp_path: Path) -> None:
    damaged = folder(tmp_path / "damaged", manifest_json="{", build_json="{}")
    (damaged / "graphs").mkdir()
    check_output(damaged)


def test_a_failed_publish_leaves_the_old_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output, staging = folder(tmp_path / "out", kept_txt="old"), folder(tmp_path / ".out.staging-1", kept_txt="new")
    rename = Path.rename

    def failing(self: Path, target: Path) -> Path:
        if self == staging:
            raise OSError("no")
        return rename(self, target)

    monkeypatch.setattr(assemble, "exchange", lambda first, second: False)
    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(OSError, match="no"):
        publish(staging, output)
    assert (output / "kept.txt").read_text() == "old"


def test_a_bundle_left_aside_by_a_killed_publish_comes_back(tmp_path: Path) -> None:
    folder(tmp_path / ".out.old-7", kept_txt="old")
    folder(tmp_path / ".out.staging-7", kept_txt="new")
    remove_leftovers(tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out" / "kept.txt").read_text() == "old"
