"""What a built bundle holds: code without weights, each weight once, every file listed, no place named."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from aot.build.models import load_weights, read_models
from aot.build.store import digest
from aot.config import load_config
from aot.graphs.geometry import geometry
from aot.graphs.modules import fill_random, module
from aot.graphs.table import graph_table
from runtime.bundle.open import sha256_file

pytestmark = pytest.mark.timeout(900)  # the first test waits for its bundle

ROOT = Path(__file__).parents[3]


@pytest.fixture(params=["tiny_bundle", "smollm2_bundle"])
def bundle(request: pytest.FixtureRequest) -> Path:
    folder: Path = request.getfixturevalue(request.param)
    return folder


def manifest(bundle: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((bundle / "manifest.json").read_text(encoding="utf-8"))
    return read


def data_of(tensor: torch.Tensor) -> bytes:
    return tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def tensors(bundle: Path) -> dict[tuple[str, str], torch.Tensor]:
    """Every stored tensor by (file, name)."""
    found = {}
    for path in sorted((bundle / "weights").glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            names = file.keys()
            found.update({(path.name, name): file.get_tensor(name) for name in names})
    return found


def is_telling(tensor: torch.Tensor) -> bool:
    """Whether a run of the tensor's bytes can only come from it: not so for norms of ones or id tables."""
    return tensor.is_floating_point() and tensor.flatten()[:32].unique().numel() > 16


def test_graph_files_hold_code_and_no_weights(bundle: Path) -> None:
    stored = [data_of(tensor)[:64] for tensor in tensors(bundle).values() if is_telling(tensor)]
    assert len(stored) > 5
    for file in bundle.glob("graphs/*/unit.so"):
        code = file.read_bytes()
        assert len(code) < 1 << 20, file
        assert not [head for head in stored if head in code], file


def test_no_graph_file_holds_the_random_weights_it_was_compiled_with(tiny_config: Path, tiny_bundle: Path) -> None:
    config = load_config(tiny_config)
    models = read_models(config)
    checked = 0
    for spec in graph_table(geometry(config, models.target, models.draft)).units:
        unit = module(spec)
        fill_random(unit)
        code = (tiny_bundle / "graphs" / spec.name / "unit.so").read_bytes()
        for name, weight in unit.named_parameters():
            if weight.is_floating_point():
                checked += 1
                assert data_of(weight)[:64] not in code, f"{spec.name} {name}"
    assert checked > 30


def test_each_distinct_content_is_stored_once(bundle: Path) -> None:
    seen: dict[tuple[str, tuple[int, ...], str], tuple[str, str]] = {}
    for place, tensor in tensors(bundle).items():
        content = (str(tensor.dtype), tuple(tensor.shape), hashlib.sha256(data_of(tensor)).hexdigest())
        assert content not in seen, f"{place} and {seen.get(content)}"
        seen[content] = place
    used = {
        (reference["file"].rpartition("/")[2], reference["tensor"])
        for layouts in manifest(bundle)["weights"].values()
        for reference in layouts.values()
    }
    assert used == set(seen.values()), "every stored tensor is used"


def test_a_tied_embedding_is_one_tensor_for_embedding_head_and_draft(smollm2_bundle: Path) -> None:
    weights = manifest(smollm2_bundle)["weights"]
    embedding = weights["target.embed.embed_tokens.weight"]["plain"]
    assert weights["draft.embed_tokens.weight"]["plain"] == embedding
    head = weights["target.head.lm_head.weight"]
    # A packed head has another layout, and so another content, on hosts with AMX
    assert head.get("plain", embedding) == embedding
    assert tensors(smollm2_bundle)[embedding["file"].rpartition("/")[2], embedding["tensor"]].shape == (49152, 576)


def test_weights_lie_on_cache_lines(bundle: Path) -> None:
    files = sorted((bundle / "weights").iterdir())
    assert files
    for path in files:
        data = path.read_bytes()
        length = int.from_bytes(data[:8], "little")
        assert (8 + length) % 64 == 0, path
        for name, entry in json.loads(data[8 : 8 + length]).items():
            begin, end = entry["data_offsets"]
            assert begin % 64 == 0 or (end - begin) % 64, f"{path.name} {name}"


def test_the_manifest_lists_every_file_with_size_and_digest(bundle: Path) -> None:
    listed = manifest(bundle)["files"]
    there = {path.relative_to(bundle).as_posix() for path in bundle.rglob("*") if path.is_file()}
    assert there == {*listed, "manifest.json", "build.json"}
    for name, entry in listed.items():
        assert entry == {"size": (bundle / name).stat().st_size, "sha256": sha256_file(bundle / name)}


def test_nothing_names_a_place_of_the_build_machine(bundle: Path, build_cache: Path) -> None:
    places = {str(Path.home()), sys.prefix, str(ROOT), str(build_cache), "site-packages", "/tmp/"}
    for path in bundle.rglob("*"):
        if path.is_file() and path.suffix != ".safetensors":
            data = path.read_bytes()
            assert not [place for place in places if place.encode() in data], path


def test_other_users_can_read_a_bundle(bundle: Path) -> None:
    for path in (bundle, *bundle.rglob("*")):
        assert path.stat().st_mode & 0o044 == 0o044, path


def test_every_graph_was_checked_and_the_promise_recorded(bundle: Path) -> None:
    read = manifest(bundle)
    assert all(graph["check"]["tokens_equal"] for graph in read["graphs"])
    assert all(graph["check"]["reference"] for graph in read["graphs"])
    assert max(graph["check"]["max_abs_error"] for graph in read["graphs"]) > 0, "two kernels never agree so well"
    assert read["exactness"]["lossless"] == "exact"
    assert read["exactness"]["scripted_patterns"] > 10


def test_the_manifest_says_who_decided_each_field_of_the_draft(tiny_config: Path, tiny_bundle: Path) -> None:
    """B5: and which vocabulary map and head lie in it, for they belong together."""
    draft = json.loads((tiny_bundle / "manifest.json").read_text())["draft"]["config"]
    assert set(draft["sources"]) == {name for name in draft if name not in ("sources", "notes")} - {
        "d2t_sha256",
        "lm_head_sha256",
    }
    config = load_config(tiny_config)
    _, weights = load_weights(config, read_models(config))
    assert draft["d2t_sha256"] == digest(weights["d2t"])
    assert draft["lm_head_sha256"] == digest(weights["lm_head.weight"])
