"""The compiler is found, asked for its version once, and told from a package that only has its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from aot.backends.neuron.compiler import Compiler, find, is_placeholder, missing, parse_release, placeholders
from runtime.bundle.errors import HostError
from tests.aot.backends.neuron import stand_in
from tests.aot.backends.neuron.conftest import Install


def script(tools: Path, text: str) -> Path:
    file = tools / "neuronx-cc"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return file


def distribution(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, version: str) -> None:
    """Install a package of that name which holds its metadata alone."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    monkeypatch.syspath_prepend(str(folder))


def test_nothing_on_the_path_is_no_compiler(tools: Path) -> None:
    assert find() is None
    error = missing()
    assert (error.what, error.found) == ("There is no Neuron compiler", "no such program")
    assert "AWS's Neuron package repository" in error.repair


def test_the_version_is_read_once(compiler: Install, tools: Path) -> None:
    found = compiler()
    assert found == Compiler(str(tools / "neuronx-cc"), "2.27.5334.0+standin (stand-in)")
    assert found.release == (2, 27, 5334, 0)
    assert found.stand_in
    assert [call["event"] for call in stand_in.calls(tools)] == ["version"]


@pytest.mark.parametrize("stream", [1, 2])
def test_a_real_answer_is_understood_on_either_stream(tools: Path, stream: int) -> None:
    # The form of the answer is that of neuronx-cc 2.27 as others have published it
    script(tools, f'printf "NeuronX Compiler version 2.27.5334.0+f702b353\\n\\nPython version 3.13.7\\n" >&{stream}')
    found = find()
    assert found is not None
    assert found.version == "2.27.5334.0+f702b353"
    assert not found.stand_in


@pytest.mark.parametrize("answer", ["echo hello", "exit 1", "echo NeuronX Compiler version 2.27.1; exit 3"])
def test_another_answer_is_an_error(tools: Path, answer: str) -> None:
    file = script(tools, answer)
    with pytest.raises(HostError, match="does not answer as neuronx-cc does"):
        find()
    with pytest.raises(HostError, match="does not answer as neuronx-cc does"):
        find(str(file))


def test_a_named_compiler_must_exist(tools: Path) -> None:
    with pytest.raises(HostError, match=r"does not exist.*found /nowhere/neuronx-cc"):
        find("/nowhere/neuronx-cc")


def test_the_placeholder_is_recognised(tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distribution(monkeypatch, tmp_path / "site", "neuronx-cc", "1.0.post1")
    distribution(monkeypatch, tmp_path / "site2", "torch-neuronx", "1.0")
    error = missing()
    assert error.sentence() == (
        "The installed package neuronx-cc is a placeholder without content: expected neuronx-cc from AWS's Neuron "
        "package repository, found neuronx-cc 1.0.post1 from the public package index."
    )
    assert error.repair.startswith("pip uninstall neuronx-cc, then install it from AWS's Neuron package repository")
    assert [problem.found.partition(" from")[0] for problem in placeholders()] == [
        "neuronx-cc 1.0.post1",
        "torch-neuronx 1.0",
    ]


def test_a_real_package_whose_program_is_off_the_path(
    tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distribution(monkeypatch, tmp_path / "site", "neuronx-cc", "2.27.5334.0+f702b353")
    assert missing().found == "no such program, though the package 2.27.5334.0+f702b353 is installed"
    assert placeholders() == []


@pytest.mark.parametrize(
    ("name", "version", "is_one"),
    [
        ("neuronx-cc", "1.0.post1", True),
        ("neuronx-cc", "1.0", True),
        ("neuronx-cc", "1.0.0", True),
        ("neuronx-cc", "2.22.12471.0+b4a00d10", False),
        ("torch-neuronx", "1.13.1.1.15.0", False),
        ("torch-neuronx", "2.9.0.2.15.32035", False),
        ("libneuronxla", "3.0.5356.0", False),
        ("libtorch-neuronx-lite", "0.0.1", True),
        ("libtorch-neuronx-lite", "2.11.0.1.0.1284", False),
    ],
)
def test_versions_of_placeholders(name: str, version: str, is_one: bool) -> None:
    assert is_placeholder(name, version) is is_one


def test_releases_are_the_leading_numbers() -> None:
    assert parse_release("2.27.5334.0+f702b353") == (2, 27, 5334, 0)
    assert parse_release("unknown") == ()
