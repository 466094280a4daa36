"""A host is compared with what the bundle requires, and every mismatch is reported at once."""

from __future__ import annotations

import dataclasses
import importlib.metadata
from pathlib import Path

import pytest

from runtime.bundle import host
from runtime.bundle.errors import ErrorGroup, HostError
from runtime.bundle.host import check_host, cpu_features, torch_release
from runtime.bundle.manifest import Requires

REQUIRES = Requires(
    backend="aoti",
    device="cpu",
    machine="x86_64",
    system="linux",
    cpu_features=("avx2", "avx512f", "amx_tile"),
    torch="2.13.0",
    amx=True,
)


@pytest.fixture(autouse=True)
def fitting_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with all that REQUIRES names, and more."""
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setattr(host, "cpu_features", lambda: frozenset({"avx2", "avx512f", "amx_tile", "fma"}))
    monkeypatch.setattr(host, "torch_release", lambda: "2.13.0")


def test_a_fitting_host_passes() -> None:
    check_host(REQUIRES)


def test_a_bundle_without_cpu_features_runs_where_none_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "cpu_features", lambda: frozenset[str]())
    check_host(dataclasses.replace(REQUIRES, cpu_features=()))


def test_missing_cpu_features_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "cpu_features", lambda: frozenset({"avx2"}))
    with pytest.raises(HostError) as caught:
        check_host(REQUIRES)
    assert caught.value.sentence() == (
        "This CPU lacks instructions that the compiled graphs use: "
        "expected avx2, avx512f, amx_tile, found no amx_tile, avx512f."
    )
    assert caught.value.repair == "rebuild the bundle on a machine of this kind with eagle3-build"
    assert caught.value.exit_code == 4


@pytest.mark.parametrize(
    ("machine", "system", "found"),
    [
        ("aarch64", "Linux", "aarch64 linux"),
        ("x86_64", "Darwin", "x86_64 darwin"),
        ("AMD64", "Windows", "AMD64 windows"),
    ],
)
def test_another_machine_is_refused_and_its_features_are_not_compared(
    monkeypatch: pytest.MonkeyPatch, machine: str, system: str, found: str
) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr("platform.system", lambda: system)
    monkeypatch.setattr(host, "cpu_features", lambda: frozenset({"asimd"}))
    with pytest.raises(HostError) as caught:
        check_host(REQUIRES)
    assert caught.value.sentence() == (
        f"The bundle is for another kind of machine: expected x86_64 linux, found {found}."
    )
    assert caught.value.exit_code == 4


def test_a_bundle_for_another_machine_is_refused_here() -> None:
    with pytest.raises(HostError, match=r"expected aarch64 linux, found x86_64 linux\.$"):
        check_host(dataclasses.replace(REQUIRES, machine="aarch64", cpu_features=()))


@pytest.mark.parametrize("release", ["2.12.0", "2.13.1", "none"])
def test_another_torch_is_refused(monkeypatch: pytest.MonkeyPatch, release: str) -> None:
    monkeypatch.setattr(host, "torch_release", lambda: release)
    with pytest.raises(HostError) as caught:
        check_host(REQUIRES)
    assert caught.value.sentence() == (
        f"The compiled graphs call another release of torch: expected torch 2.13.0, found torch {release}."
    )
    assert caught.value.repair == "pip install torch==2.13.0, or rebuild the bundle"


def test_all_mismatches_are_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "cpu_features", lambda: frozenset({"avx2", "avx512f"}))
    monkeypatch.setattr(host, "torch_release", lambda: "2.9.1")
    with pytest.raises(ErrorGroup) as caught:
        check_host(REQUIRES)
    assert caught.value.sentence() == "This host cannot run the bundle."
    assert caught.value.exit_code == 4
    assert [problem.found for problem in caught.value.problems] == ["no amx_tile", "torch 2.9.1"]


NEURON = Requires("neuron", "trn2", "", "linux", (), "", False, ranks=8, lnc=2)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_a_neuron_bundle_asks_nothing_of_the_cpu_nor_of_torch(monkeypatch: pytest.MonkeyPatch, machine: str) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr(host, "cpu_features", lambda: frozenset[str]())
    monkeypatch.setattr(host, "torch_release", lambda: "2.9.1")
    check_host(NEURON)


def test_a_neuron_bundle_runs_on_linux_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    with pytest.raises(HostError) as caught:
        check_host(NEURON)
    assert caught.value.sentence() == "The bundle is for another kind of machine: expected linux, found darwin."
    assert caught.value.repair == "run it on Linux: the Neuron runtime exists for no other system"


CPUINFO = {
    "x86": ("processor\t: 0\nvendor_id\t: Some\nflags\t\t: fpu avx2 fma\n\nflags\t\t: other\n", {"fpu", "avx2", "fma"}),
    "arm": ("processor\t: 0\nFeatures\t: fp asimd sve\n", {"fp", "asimd", "sve"}),
    "neither": ("processor\t: 0\nisa\t: rv64imafdc\n", set()),
}


@pytest.mark.parametrize(("text", "features"), CPUINFO.values(), ids=CPUINFO.keys())
def test_cpu_features_are_the_flags_of_the_first_processor(
    monkeypatch: pytest.MonkeyPatch, text: str, features: set[str]
) -> None:
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: text)
    assert cpu_features() == features


def test_cpu_features_are_none_where_they_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(*_: object, **__: object) -> str:
        raise FileNotFoundError("no such file")

    monkeypatch.setattr(Path, "read_text", unreadable)
    assert cpu_features() == frozenset()


@pytest.mark.parametrize(("version", "release"), [("2.13.0+cpu", "2.13.0"), ("2.9.1", "2.9.1")])
def test_the_torch_release_has_no_build_suffix(monkeypatch: pytest.MonkeyPatch, version: str, release: str) -> None:
    monkeypatch.setattr(importlib.metadata, "version", {"torch": version}.__getitem__)
    assert torch_release() == release


def test_a_host_without_torch_has_the_release_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert torch_release() == "none"
