"""How many cores a process may use: the least of affinity, quotas of every cgroup above it, and OMP_NUM_THREADS."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runtime.bundle.cores import compute_threads, usable_cores
from runtime.bundle.threads import bound_threads
from tests.runtime.bundle.cgroups import cgroups


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


@pytest.mark.parametrize(
    ("quota", "count"),
    [
        ("150000 100000", 1),
        ("50000 100000", 1),
        ("400000 100000", 4),
        ("max 100000", 8),
        ("9900000 100000", 8),
        ("", 8),
    ],
    ids=["1.5 is 1", "half is 1", "4", "none", "more than there are", "unreadable"],
)
def test_m6_a_quota_of_version_2_is_rounded_down(tmp_path: Path, quota: str, count: int) -> None:
    assert usable_cores(cgroups(tmp_path, "/", {"cpu.max": quota})).count == count


@pytest.mark.parametrize(("quota", "count"), [("150000", 1), ("50000", 1), ("400000", 4), ("-1", 8)])
def test_m6_a_quota_of_version_1_is_rounded_down(tmp_path: Path, quota: str, count: int) -> None:
    files = {"cpu.cfs_quota_us": quota, "cpu.cfs_period_us": "100000"}
    root = cgroups(tmp_path, "/", files, version=1, mount="/sys/fs/cgroup/cpu,cpuacct")
    assert usable_cores(root).count == count


@pytest.mark.parametrize("bounded", ["a/b/c", "a/b", "a", ""])
def test_m6_the_least_quota_of_all_levels_counts(tmp_path: Path, bounded: str) -> None:
    files = {f"{level}/cpu.max": "max 100000" for level in ("a/b/c", "a/b", "a", ".")}
    files |= {f"{bounded or '.'}/cpu.max": "300000 100000", "a/b/other/cpu.max": "100000 100000"}
    found = usable_cores(cgroups(tmp_path, "/a/b/c", files))
    assert (found.count, found.bound) == (3, "quota")
    assert "3 cores" in found.why


@pytest.mark.parametrize(
    ("own", "top", "file"),
    [
        ("/docker/id", "/docker/id", "cpu.max"),  # the container's own cgroup is mounted
        ("/docker/id/unit", "/docker/id", "unit/cpu.max"),
        ("/../other", "/", "cpu.max"),  # of a namespace in which it is not
        ("/pods/one", "/docker/id", "cpu.max"),
    ],
)
def test_m6_a_part_of_the_hierarchy_is_read_from_where_it_is_mounted(
    tmp_path: Path, own: str, top: str, file: str
) -> None:
    root = cgroups(tmp_path, own, {file: "200000 100000"}, top=top, mount="/sys/fs/a group")
    assert usable_cores(root).count == 2


def test_m6_a_system_that_tells_nothing_has_its_affinity(tmp_path: Path) -> None:
    assert usable_cores(tmp_path).count == 8
    assert usable_cores(tmp_path).bound == "affinity"


@pytest.mark.parametrize(
    ("asked", "count", "bound"),
    [("1", 1, "environment"), ("2,1", 2, "environment"), ("3", 3, "quota"), ("64", 3, "quota"), ("none", 3, "quota")],
)
def test_m6_omp_num_threads_can_only_ask_for_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str, count: int, bound: str
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    root = cgroups(tmp_path, "/", {"cpu.max": "300000 100000"})
    assert (compute_threads(root).count, compute_threads(root).bound) == (count, bound)
    assert usable_cores(root).count == 3  # processes, as compile workers are, are no compute threads


@pytest.mark.parametrize(
    ("quota", "asked", "left"),
    [
        ("150000 100000", None, "1"),
        ("150000 100000", "4", "1"),
        ("400000 100000", "2,1", "2,1"),
        ("max 100000", None, None),
        ("max 100000", "2", "2"),
        ("max 100000", "64", "8"),
    ],
)
def test_m6_compute_threads_are_bounded_before_torch_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str, asked: str | None, left: str | None
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", asked or "")
    if asked is None:
        monkeypatch.delenv("OMP_NUM_THREADS")
    bound_threads(cgroups(tmp_path, "/", {"cpu.max": quota}))
    assert os.environ.get("OMP_NUM_THREADS") == left
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


def test_m6_a_quota_does_not_make_threads_of_second_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight CPUs that are four cores, and a quota of six: torch alone would take four threads."""
    root = cgroups(tmp_path, "/", {"cpu.max": "600000 100000"})
    for cpu in range(8):
        topology = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(f"{cpu % 4},{cpu % 4 + 4}\n")
    for asked, left in (("", "4"), ("6", "6"), ("7", "4")):
        monkeypatch.setenv("OMP_NUM_THREADS", asked)
        bound_threads(root)
        assert os.environ["OMP_NUM_THREADS"] == left
        # The user is told of a number only where it is the user's
        told = compute_threads(root)
        assert (told.count, told.bound) == (int(left), "quota")
        assert "OMP_NUM_THREADS" not in told.why
