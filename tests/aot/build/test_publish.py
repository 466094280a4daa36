"""An output folder is replaced only when it is a bundle, and never lost on the way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aot.build import assemble
from aot.build.assemble import check_output, publish
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
    output, staging = (
        folder(tmp_path / "out", kept_txt="old"),
        folder(tmp_path / ".out.eagle3-staging-1", kept_txt="new"),
    )
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


BUNDLE = {"manifest_json": json.dumps({"format_version": 99, "bundle_id": "x"})}


@pytest.mark.parametrize("manifest", ["[" * 100_000, "[]", "\udcff", '{"format_version": 1, "format_version": 1}'])
def test_b9_a_manifest_that_no_reader_takes_is_damaged_or_foreign_and_never_a_traceback(
    tmp_path: Path, manifest: str
) -> None:
    output = folder(tmp_path / "out")
    (output / "manifest.json").write_bytes(manifest.encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError):
        check_output(output)


def mounts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, point: Path) -> None:
    """Let the system's table list a mount at `point`."""
    table = tmp_path / "mountinfo"
    shown = str(point.resolve()).replace("\\", "\\134").replace(" ", "\\040")
    table.write_text(f"22 1 0:20 / / rw - ext4 /dev/root rw\n36 22 8:1 /x {shown} rw,noatime - ext4 /dev/sda1 rw\n")
    listed = assemble._mount_in
    monkeypatch.setattr(assemble, "_mount_in", lambda output: listed(output, table))


@pytest.mark.parametrize("point", ["out put", "out put/weights"])
@pytest.mark.parametrize("held", [{}, BUNDLE])
def test_m3_an_output_on_a_mount_point_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, held: dict[str, str]
) -> None:
    output = folder(tmp_path / "out put", **held)
    if held:
        (tmp_path / point).mkdir(exist_ok=True)
    mounts(monkeypatch, tmp_path, tmp_path / point)
    with pytest.raises(UsageError) as caught:
        check_output(output)
    assert str((tmp_path / point).resolve()) in caught.value.found
    assert str(output / "bundle") in caught.value.repair


@pytest.mark.parametrize("point", [".", "out put 2", "elsewhere"])
def test_a_mount_around_or_beside_an_output_is_none_of_its_business(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    output = folder(tmp_path / "out put", **BUNDLE)
    mounts(monkeypatch, tmp_path, tmp_path / point)
    check_output(output)


@pytest.mark.skipif(not Path("/proc/self/mountinfo").is_file(), reason="the system's table of mounts is read")
def test_m3_the_systems_own_table_is_read() -> None:
    assert assemble._mount_in(Path("/proc")) == "/proc"


def test_m3_a_folder_that_only_its_owner_may_rename_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in /tmp: root aside, nobody renames another user's folder there."""
    output = folder(tmp_path / "around" / "out", **BUNDLE)
    check_output(output)
    (tmp_path / "around").chmod(0o1777)
    monkeypatch.setattr("os.geteuid", lambda: output.stat().st_uid + 1)
    with pytest.raises(UsageError) as caught:
        check_output(output)
    assert "another user" in caught.value.found
    (tmp_path / "around").chmod(0o777)
    check_output(output)
