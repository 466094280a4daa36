"""Room for workers: the machine's, or the container's where that is less."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from aot.backends.neuron.neffs import default_workers
from aot.build import machine, pool
from aot.build.machine import cores, free_memory, own_threads
from aot.build.pool import default_jobs
from tests.runtime.bundle.cgroups import cgroups

GIB = 1 << 30


def with_meminfo(root: Path, gib: int) -> Path:
    (root / "proc").mkdir(exist_ok=True)
    (root / "proc" / "meminfo").write_text(f"MemTotal: 99 kB\nMemAvailable: {gib << 20} kB\n")
    return root


@pytest.mark.parametrize(
    ("limit", "used", "free"),
    [(str(4 * GIB), str(GIB), 3 * GIB), ("max", str(GIB), 16 * GIB), (str(64 * GIB), "0", 16 * GIB), ("1", "5", 0)],
    ids=["container is smaller", "no limit", "machine is smaller", "over its limit"],
)
def test_memory_is_what_machine_and_container_leave(tmp_path: Path, limit: str, used: str, free: int) -> None:
    files = {"memory.max": limit, "memory.current": used}
    assert free_memory(with_meminfo(cgroups(tmp_path, "/", files), 16)) == free


def test_m6_memory_of_version_1_and_of_the_levels_above_counts(tmp_path: Path) -> None:
    files = {
        "pod/memory.limit_in_bytes": str(6 * GIB),
        "pod/memory.usage_in_bytes": str(2 * GIB),
        "pod/one/memory.limit_in_bytes": "9223372036854771712",
        "pod/one/memory.usage_in_bytes": str(GIB),
    }
    root = cgroups(tmp_path, "/pod/one", files, version=1, controller="memory", mount="/sys/fs/cgroup/memory")
    assert free_memory(with_meminfo(root, 16)) == 4 * GIB


def test_m6_files_that_the_kernel_keeps_in_memory_are_free(tmp_path: Path) -> None:
    files = {
        "memory.max": str(4 * GIB),
        "memory.current": str(3 * GIB),
        "memory.stat": f"anon 5\ninactive_file {2 * GIB}",
    }
    assert free_memory(with_meminfo(cgroups(tmp_path, "/", files), 16)) == 3 * GIB


def test_a_system_that_does_not_tell_gets_a_guess(tmp_path: Path) -> None:
    assert free_memory(tmp_path) == 8 * GIB


def test_m6_jobs_are_bounded_by_the_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = cgroups(tmp_path, "/", {"cpu.max": "250000 100000"})
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    monkeypatch.setattr(machine.cores, "__defaults__", (root,))
    monkeypatch.setattr(pool, "free_memory", lambda: 999 * GIB)
    monkeypatch.setattr("aot.backends.neuron.neffs.free_memory", lambda: 999 * GIB)
    assert (default_jobs(1), default_workers(1)) == (2, 2)


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
