"""Manifests of every released format version keep loading, and keep their ids. Golden files are never rewritten."""

from __future__ import annotations

from pathlib import Path

from runtime.bundle.manifest import Check, Manifest, TensorSpec, WeightRef
from runtime.bundle.open import file_problems, read_manifest

BUNDLE_ID = "c978b6b5329a8825fd3d581f98d44e548fcfe42bc3065f2a00527f5676e91f89"


def test_it_loads_with_every_kind_of_field(golden: Manifest) -> None:
    prefill, draft = golden.graphs
    assert golden.format_version == 1
    assert golden.draft.reference == "entwurf/größe-λ"
    assert golden.target.config["rope_theta"] == 10000.0
    assert golden.speculation.aux_layers == (1, 2, 3)
    assert golden.exactness.bitwise_across == ("requests",)
    assert prefill.inputs[1] == TensorSpec("block_table", "int32", (1, "context_blocks"))
    assert prefill.calls[1].inputs == ("hidden.0", "kv.0.k")
    assert prefill.check == Check("eager PyTorch", 0.015625, True)
    assert draft.check is None
    assert golden.sampling == "greedy"
    assert golden.weights["target.head.lm_head.weight"] == {
        "packed": WeightRef("weights/target.safetensors", "head.packed", "d" * 64)
    }


def test_its_id_is_still_computed(golden: Manifest) -> None:
    assert golden.bundle_id == BUNDLE_ID
    assert golden.with_id().bundle_id == BUNDLE_ID


def test_it_is_still_written_byte_for_byte(golden: Manifest, golden_text: str) -> None:
    assert golden.dumps() == golden_text


def test_its_numbers_are_in_range_and_its_files_are_those_of_its_bundle(bundle: Path, golden: Manifest) -> None:
    assert read_manifest(bundle) == golden
    assert file_problems(bundle, golden) == []
