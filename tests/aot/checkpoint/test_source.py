"""A reference names a folder, a .gguf file, a file in a package or a hub id, or is refused in a sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aot.checkpoint.source import ModelSource, resolve
from runtime.bundle.errors import ConfigError

REPOSITORY = Path(__file__).parents[3]


def model_folder(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "config.json").write_text("{}")
    return path


def refusal(reference: str, base: Path) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        resolve(reference, key="speculative_config.model", base=base)
    assert caught.value.exit_code == 3
    assert caught.value.repair
    return caught.value


def test_a_folder_is_found_from_the_current_directory_before_the_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, base = tmp_path / "here", tmp_path / "base"
    for place in (here, base):
        model_folder(place / "model")
    only_base = model_folder(base / "other")
    monkeypatch.chdir(here)
    assert resolve("model", key="model", base=base) == ModelSource("model", "folder", here / "model")
    assert resolve("other", key="model", base=base).path == only_base
    assert resolve(str(only_base), key="model", base=here).path == only_base


def test_a_gguf_file_is_a_model(tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF")
    assert resolve("tiny.gguf", key="model", base=tmp_path) == ModelSource("tiny.gguf", "gguf", tmp_path / "tiny.gguf")


@pytest.mark.parametrize("reference", ["missing", "a/b/missing", "./org/name", "models/missing.gguf"])
def test_what_does_not_exist_is_refused_with_what_would_do(reference: str, tmp_path: Path) -> None:
    assert refusal(reference, tmp_path).sentence() == (
        "speculative_config.model names a file or folder that does not exist: expected a folder with "
        "config.json, "
        f"a .gguf file, package:NAME/FILE, or a hub id org/name, found {reference}."
    )


def test_a_folder_without_config_json_is_refused_and_a_gguf_inside_is_pointed_out(tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    sentence = "speculative_config.model names a folder without config.json: found bare."
    assert refusal("bare", tmp_path).sentence() == sentence
    (tmp_path / "bare" / "m.gguf").write_bytes(b"GGUF")
    assert refusal("bare", tmp_path).repair == "name the file itself: speculative_config.model: bare/m.gguf"


def test_a_file_that_is_not_gguf_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert refusal("model.safetensors", tmp_path).sentence() == (
        "speculative_config.model names a file that is not a .gguf model: found model.safetensors."
    )


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An importable package that fails when it is imported, with a model file beside its code."""
    root = tmp_path / "site" / "explosive_model"
    root.mkdir(parents=True)
    (root / "__init__.py").write_text("raise RuntimeError('imported')")
    (root / "m.gguf").write_bytes(b"GGUF")
    monkeypatch.syspath_prepend(str(root.parent))
    return root


def test_a_file_in_a_package_is_found_without_importing_it(package: Path, tmp_path: Path) -> None:
    found = resolve("package:explosive_model/m.gguf", key="model", base=tmp_path)
    assert found == ModelSource("package:explosive_model/m.gguf", "gguf", package / "m.gguf")
    assert "explosive_model" not in sys.modules


def test_a_path_out_of_the_package_is_refused(package: Path, tmp_path: Path) -> None:
    (tmp_path / "site" / "secret.gguf").write_bytes(b"GGUF")
    os.symlink(tmp_path / "site" / "secret.gguf", package / "link.gguf")
    for inside in ("../secret.gguf", f"{tmp_path}/site/secret.gguf", "link.gguf"):
        reference = f"package:explosive_model/{inside}"
        assert refusal(reference, tmp_path).sentence() == (
            "speculative_config.model leaves the package explosive_model: "
            f"expected a path inside the package, found {reference}."
        )


@pytest.mark.parametrize(
    ("reference", "what"),
    [
        ("package:explosive_model/n.gguf", "names a file that the package explosive_model does not have"),
        ("package:no_such_pkg/m.gguf", "names the package no_such_pkg, which is not installed"),
        ("package:explosive_model", "is not a file in a package"),
        ("package:explosive_model.sub/m.gguf", "is not a file in a package"),
        ("package:/m.gguf", "is not a file in a package"),
    ],
)
def test_a_wrong_package_reference_says_what_is_wrong(reference: str, what: str, package: Path, tmp_path: Path) -> None:
    assert refusal(reference, tmp_path).what == f"speculative_config.model {what}"


def test_a_hub_id_is_fetched_without_optimizer_states_and_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    asked: list[tuple[str, list[str]]] = []

    def recording_download(reference: str, allow_patterns: list[str]) -> str:
        asked.append((reference, allow_patterns))
        return str(model_folder(tmp_path / "cache"))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", recording_download)
    found = resolve("org/name", key="model", base=tmp_path)
    assert found == ModelSource("org/name", "hub", tmp_path / "cache")
    [(reference, patterns)] = asked
    assert reference == "org/name"
    assert {"*.json", "*.safetensors", "*.jinja", "tokenizer.model"} <= set(patterns)
    assert not {"*", "*.py", "*.bin", "*.pt"} & set(patterns)


def test_an_unreachable_hub_model_names_the_key_and_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    def offline_download(reference: str, allow_patterns: list[str]) -> str:
        raise huggingface_hub.errors.LocalEntryNotFoundError("No network and nothing cached.\nDetails.")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline_download)
    error = refusal("org/name", tmp_path)
    assert error.sentence() == (
        "speculative_config.model is neither a folder nor a hub model that can be fetched: expected a "
        "folder here, or "
        "a hub id that this machine can reach, found org/name (No network and nothing cached)."
    )
    assert "give a folder as speculative_config.model" in error.repair


def test_a_fingerprint_depends_on_names_and_contents_of_model_files_only(tmp_path: Path) -> None:
    one = ModelSource("one", "folder", model_folder(tmp_path / "one"))
    two = ModelSource("two", "folder", model_folder(tmp_path / "deeper" / "two"))
    first = one.fingerprint()
    assert len(first) == 64
    assert two.fingerprint() == first
    (one.path / "README.md").write_text("hello")
    (one.path / "optimizer.pt").write_bytes(b"x")
    assert one.fingerprint() == first
    (one.path / "model.safetensors").write_bytes(b"ab")
    second = one.fingerprint()
    (one.path / "model.safetensors").write_bytes(b"ac")
    third = one.fingerprint()
    (one.path / "model.safetensors").rename(one.path / "model-2.safetensors")
    assert len({first, second, third, one.fingerprint()}) == 4


def test_planning_imports_neither_torch_nor_transformers() -> None:
    """An unchanged rebuild reads configs and fingerprints only, in seconds."""
    code = """
import sys
import aot.checkpoint.draft, aot.checkpoint.random_weights, aot.checkpoint.source
import aot.checkpoint.target, aot.checkpoint.tokenizer
heavy = {"torch", "transformers", "huggingface_hub", "gguf", "tokenizers"} & set(sys.modules)
sys.exit(f"imported {heavy}" if heavy else 0)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_B14_a_folder_whose_name_is_not_utf8_is_read_and_named_in_text(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/m\xff"))
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "n\udcff.json").write_text("{}")
    source = resolve("m\udcff", key="model", base=tmp_path)
    assert source.path == folder
    source.name.encode("utf-8")
    assert len(source.fingerprint()) == 64


@pytest.mark.parametrize("reference", ["x" * 5000, "a\0b", "~nobody-of-this-name/x", "\ud800"])
def test_B10_a_name_that_no_file_system_takes_does_not_exist(reference: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        resolve(reference, key="model", base=tmp_path)
