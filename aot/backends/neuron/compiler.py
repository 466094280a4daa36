"""Find neuronx-cc, read its version once, and tell it from the packages that only hold its name.

The public package index has packages with the names of AWS's own, so that nobody else can take them. They install
without an error and hold nothing; the real ones come from AWS's Neuron package repository.
"""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
from dataclasses import dataclass

from runtime.bundle.errors import Eagle3Error, HostError
from runtime.bundle.neff import STAND_IN

COMMAND = "neuronx-cc"
# Real versions of none of them start so (AWS Neuron SDK 2.25 to 2.32 has neuronx-cc 2.20 to 2.27)
PLACEHOLDERS = {"neuronx-cc": "1.0", "torch-neuronx": "1.0", "libneuronxla": "1.0", "libtorch-neuronx-lite": "0.0.1"}
REPOSITORY = "AWS's Neuron package repository (the AWS Neuron documentation says how to add it to pip)"
# "NeuronX Compiler version 2.27.5334.0+f702b353", on standard output or standard error depending on the release
_VERSION = re.compile(r"^NeuronX Compiler version ((\d+(?:\.\d+)+)\S*.*?)\s*$", re.MULTILINE)
# It imports NumPy and its own libraries first, which on a busy machine with a cold disk takes a while
_VERSION_SECONDS = 300


@dataclass(frozen=True)
class Compiler:
    """A compiler that answered.

    command: as it is started.
    version: all that its version line says, "2.27.5334.0+f702b353"; part of every cache key.
    """

    command: str
    version: str

    @property
    def release(self) -> tuple[int, ...]:
        """The numbers of the version, (2, 27, 5334, 0)."""
        return parse_release(self.version)

    @property
    def stand_in(self) -> bool:
        """It says itself that it is a stand-in, for tests, whose output no device can run."""
        return STAND_IN in self.version.lower()


def parse_release(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: "2.27.5334.0+f702b353" gives (2, 27, 5334, 0)."""
    numbers = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in numbers.group().split(".")) if numbers else ()


def find(command: str | None = None) -> Compiler | None:
    """The compiler `command`, by default the neuronx-cc on the PATH; None where there is none on the PATH.

    Runs it once, to read its version.

    Raises:
        HostError: `command` does not exist, or what was found does not answer as neuronx-cc does.
    """
    path = shutil.which(command or COMMAND)
    if path is None and command is None:
        return None
    if path is None:
        raise HostError(
            "The Neuron compiler that was named does not exist",
            expected="a program that can be run",
            found=str(command),
            repair=f"give the path of {COMMAND}, or leave it out to take the one on the PATH",
        )
    return Compiler(path, read_version(path))


def read_version(path: str) -> str:
    """What `path --version` says behind "NeuronX Compiler version".

    Raises:
        HostError: it cannot be run, does not end, or says something else.
    """
    try:
        done = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_VERSION_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _silent(path, str(error)) from None
    said = done.stdout + "\n" + done.stderr
    if done.returncode != 0 or (found := _VERSION.search(said)) is None:
        raise _silent(path, f"exit code {done.returncode} and {said.strip()[-200:]!r}")
    return found.group(1)


def missing() -> HostError:
    """Why there is no compiler: to raise where one is needed, to show where a build ends without it."""
    version = _installed(COMMAND)
    if version is not None and is_placeholder(COMMAND, version):
        return _placeholder(COMMAND, version)
    found = "no such program" if version is None else f"no such program, though the package {version} is installed"
    return HostError(
        "There is no Neuron compiler",
        expected=f"{COMMAND} on the PATH",
        found=found,
        repair=f"install {COMMAND} from {REPOSITORY}, or activate the environment that has it",
    )


def placeholders() -> list[Eagle3Error]:
    """One error for each package of this environment that holds the name of one of AWS's and nothing else."""
    installed = {name: _installed(name) for name in PLACEHOLDERS}
    return [
        _placeholder(name, version)
        for name, version in installed.items()
        if version is not None and is_placeholder(name, version)
    ]


def is_placeholder(name: str, version: str) -> bool:
    """Whether the public index's placeholder has this version: "1.0.post1" yes, "2.27.5334.0+f702b353" no."""
    return re.fullmatch(re.escape(PLACEHOLDERS[name]) + r"(\.?(post|dev|rc|a|b)?\d+)*", version) is not None


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _placeholder(name: str, version: str) -> HostError:
    return HostError(
        f"The installed package {name} is a placeholder without content",
        expected=f"{name} from AWS's Neuron package repository",
        found=f"{name} {version} from the public package index",
        repair=f"pip uninstall {name}, then install it from {REPOSITORY}",
    )


def _silent(path: str, found: str) -> HostError:
    return HostError(
        f"{path} does not answer as {COMMAND} does",
        expected="a line with its version when it is called with --version",
        found=found,
        repair=f"install {COMMAND} from {REPOSITORY}, or activate the environment that has it",
    )
