"""Room for workers: the machine's, or the container's where that is less."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from aot.build.machine import cores, free_memory, own_threads

GIB = 1 << 30


def cgroup(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(f"{text}\n")
    return folder


def meminfo(folder: Path, gib: int) -> Path:
    file = folder / "meminfo"
    file.write_text(f"MemTotal: 99 kB\nMemAvailable: {gib << 20} kB\n")
    return file


@pytest.mark.parametrize(
    ("limit", "used", "free"),
    [(str(4 * GIB), str(GIB), 3 * GIB), ("max", str(GIB), 16 * GIB), (str(64 * GIB), "0", 16 * GIB), ("1", "5", 0)],
    ids=["container is smaller", "no limit", "machine is smaller", "over its limit"],
)
def test_memory_is_what_machine_and_container_leave(tmp_path: Path, limit: str, used: str, free: int) -> None:
    assert free_memory(cgroup(tmp_path, memory_max=limit, memory_current=used), meminfo(tmp_path, 16)) == free


def test_a_system_that_does_not_tell_gets_a_guess(tmp_path: Path) -> None:
    assert free_memory(tmp_path, tmp_path / "none") == 8 * GIB


@pytest.mark.parametrize(("quota", "count"), [("100000 100000", 1), ("50000 100000", 1), ("max 100000", 3), ("", 3)])
def test_cores_are_bounded_by_the_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str, count: int
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1, 2})
    assert cores(cgroup(tmp_path, cpu_max=quota)) == count


def test_t3_a_build_measures_with_its_own_number_of_threads() -> None:
    """A manifest holds what was measured, and sums over other numbers of threads round otherwise."""
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(cores() + 1)
        with own_threads():
            assert torch.get_num_threads() == cores()
        assert torch.get_num_threads() == cores() + 1
    finally:
        torch.set_num_threads(before)
