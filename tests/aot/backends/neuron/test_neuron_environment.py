"""Which Python lowers, and what it is told: named, this one, the usual one, or a sentence that says what is missing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import aot
from aot.backends.neuron.environment import PACKAGES, USUAL, LoweringPython, find_python, worker_environment
from runtime.bundle.errors import HostError

REAL = Path(sys.executable)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory, and this interpreter without torch-xla."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "executable", str(interpreter(tmp_path / "this-python", torch_xla="")))
    return folder


def interpreter(file: Path, torch: str = "2.9.1", torch_xla: str = "2.9.0") -> Path:
    """A program that answers as a Python with these releases does."""
    answer = json.dumps({"python": "3.11.9", "torch": torch, "torch-xla": torch_xla})
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\necho '{answer}'\n", encoding="utf-8")
    file.chmod(0o755)
    return file


def test_a_named_one_is_taken_from_the_current_directory_first(here: Path, tmp_path: Path) -> None:
    base = tmp_path / "configs"
    interpreter(base / "env" / "python", torch_xla="2.8.0")
    assert find_python(Path("env/python"), base).executable == str(base / "env" / "python")
    interpreter(here / "env" / "python")
    found = find_python(Path("env/python"), base)
    assert found == LoweringPython(str(here / "env" / "python"), "3.11.9", "2.9.1", "2.9.0")


def test_a_name_without_a_folder_is_the_file_here_and_no_command(here: Path, tmp_path: Path) -> None:
    """ "python3" on the PATH is another one, and has no torch-xla."""
    interpreter(here / "python3")
    assert find_python(Path("python3"), tmp_path).executable == str(here / "python3")


def test_a_link_is_called_as_it_is(here: Path, tmp_path: Path) -> None:
    """A virtual environment's interpreter knows its packages by the link's place."""
    (here / "link").symlink_to(interpreter(tmp_path / "elsewhere" / "python"))
    assert find_python(here / "link", tmp_path).executable == str(here / "link")


def test_this_one_before_the_usual_one(here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = interpreter(here / USUAL)
    assert find_python(None, tmp_path).executable == str(usual)
    monkeypatch.setattr(sys, "executable", str(interpreter(tmp_path / "with-xla")))
    assert find_python(None, tmp_path).executable == str(tmp_path / "with-xla")


def refusal(named: Path | None, base: Path) -> HostError:
    with pytest.raises(HostError) as refused:
        find_python(named, base)
    assert refused.value.exit_code == 4
    assert "make neuron-env" in refused.value.repair
    return refused.value


def test_none_at_all(tmp_path: Path) -> None:
    error = refusal(None, tmp_path)
    assert "No Python here can lower graphs for Neuron" in error.sentence()
    assert error.found == "none in this one and no .venv-neuron/bin/python"


def test_a_name_of_no_file(tmp_path: Path) -> None:
    error = refusal(Path("missing/python"), tmp_path)
    assert (error.found, error.expected) == ("missing/python", "an interpreter")


@pytest.mark.parametrize(
    ("torch", "torch_xla", "found"),
    [("2.9.1", "", "no torch-xla"), ("", "2.9.0", "no torch"), ("", "", "no torch and no torch-xla")],
)
def test_one_without_what_lowers(torch: str, torch_xla: str, found: str, tmp_path: Path) -> None:
    error = refusal(interpreter(tmp_path / "python", torch, torch_xla), tmp_path)
    assert error.found == found
    assert "backend.python cannot lower" in error.sentence()


def test_a_usual_one_without_torch_xla_is_named(here: Path, tmp_path: Path) -> None:
    interpreter(here / USUAL, torch_xla="")
    assert ".venv-neuron/bin/python cannot lower" in refusal(None, tmp_path).sentence()


@pytest.mark.parametrize("content", ["#!/bin/sh\nexit 1\n", "#!/bin/sh\necho hello\n", "no program"])
def test_a_file_that_is_no_python(content: str, tmp_path: Path) -> None:
    file = tmp_path / "python"
    file.write_text(content, encoding="utf-8")
    file.chmod(0o755)
    assert refusal(file, tmp_path).found == "no Python at all"


def test_a_real_interpreter_is_asked_without_an_import(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The releases are those of the packages' metadata, which a folder on the path is enough for."""
    for name, release in (("torch", "2.9.1"), ("torch_xla", "2.9.0")):
        info = tmp_path / f"{name}-{release}.dist-info"
        info.mkdir()
        text = f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {release}\n"
        (info / "METADATA").write_text(text, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = find_python(REAL, tmp_path)
    assert (found.torch, found.torch_xla) == ("2.9.1", "2.9.0")
    assert found.python == ".".join(str(part) for part in sys.version_info[:3])


def test_the_worker_s_environment_has_nothing_that_changes_a_lowering(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("XLA_FLAGS", "XLA_USE_BF16", "XLA_HLO_DEBUG", "PJRT_DEVICE", "PJRT_NPROC", "PT_XLA_DEBUG"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("PYTHONPATH", "/some/where")
    monkeypatch.setenv("HOME_OF_MINE", "kept")
    given = worker_environment(tmp_path)
    assert {name: value for name, value in given.items() if name.startswith(("XLA_", "PJRT_", "PT_XLA_"))} == {
        "PJRT_DEVICE": "CPU"
    }
    assert given["HOME_OF_MINE"] == "kept"
    assert given["PYTHONPATH"] == f"{tmp_path}:/some/where"
    monkeypatch.delenv("PYTHONPATH")
    assert worker_environment(tmp_path)["PYTHONPATH"] == str(tmp_path)


def test_m8_the_worker_finds_our_packages_and_nothing_that_lies_beside_them(tmp_path: Path) -> None:
    """As where both lie in site-packages, with another interpreter's torch."""
    installed = tmp_path / "site-packages"
    installed.mkdir()
    for name in PACKAGES:
        shutil.copytree(Path(aot.__path__[0]).parent / name, installed / name)
    (installed / "torch.py").write_text("raise ImportError('the torch of another interpreter')")
    asked = (
        "import sys; from pathlib import Path; from aot.backends.neuron.environment import worker_environment\n"
        "print(worker_environment(Path(sys.argv[1]))['PYTHONPATH'])"
    )
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    path = run_python(asked, str(tmp_path / "packages"), env=environment).partition(os.pathsep)[0]
    assert sorted(entry.name for entry in Path(path).iterdir()) == sorted(PACKAGES)
    look = "import aot.backends.neuron.worker as w, importlib.util as u; print(w.__file__, u.find_spec('torch').origin)"
    worker, torch = run_python(look, env={**os.environ, "PYTHONPATH": path}).split()
    assert worker == f"{path}/aot/backends/neuron/worker.py"
    assert not torch.startswith(str(tmp_path))


def run_python(script: str, *arguments: str, env: dict[str, str]) -> str:
    done = subprocess.run(
        [str(REAL), "-c", script, *arguments], env=env, cwd="/", capture_output=True, text=True, check=True
    )
    return done.stdout
