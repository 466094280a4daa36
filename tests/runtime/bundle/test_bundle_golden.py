"""Manifests of the present format keep loading, and keep their ids; those of an older one are refused with the command
that rebuilds them. Golden files are never rewritten.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime.bundle.errors import IntegrityError
from runtime.bundle.manifest import FORMAT_VERSION, Check, Manifest, TensorSpec, WeightRef
from runtime.bundle.open import MANIFEST, file_problems, open_bundle, read_manifest
from tests.runtime.bundle.conftest import GOLDEN

BUNDLE_ID = "d6f257a1cf5209e700f73c96c975920fb912b6f6d6e93b6c87fc9660016cdc0b"


def test_it_loads_with_every_kind_of_field(golden: Manifest) -> None:
    prefill, draft = golden.graphs
    assert golden.format_version == FORMAT_VERSION == 2
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


def test_a_bundle_of_an_older_format_is_refused_with_the_reason_and_the_command(bundle: Path) -> None:
    """N1: its graphs cannot say that a request's logits are not finite."""
    (bundle / MANIFEST).write_bytes((GOLDEN.parent / "manifest-v1.json").read_bytes())
    with pytest.raises(IntegrityError) as caught:
        open_bundle(bundle, host=False)
    error = caught.value
    assert (error.exit_code, error.expected, error.found) == (5, "format_version 2", "1")
    assert "not finite" in error.what
    assert "eagle3-build --config" in error.repair
