"""Every name that a manifest uses is defined in it, and nothing is opened that has no digest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runtime.bundle.errors import ErrorGroup, IntegrityError
from runtime.bundle.manifest import Manifest, loads
from runtime.bundle.open import open_bundle
from runtime.bundle.references import reference_problems

Data = dict[str, Any]
Edit = Callable[[Data], None]


def unlisted_artifact(data: Data) -> None:
    data["units"][0]["artifact"] = "graphs/other.so"


def unlisted_weights(data: Data) -> None:
    data["weights"]["target.head.lm_head.weight"]["packed"]["file"] = "weights/other.safetensors"


def unknown_unit(data: Data) -> None:
    data["graphs"][0]["calls"][1]["unit"] = "target_head.t16"


def unit_twice(data: Data) -> None:
    data["units"].append(data["units"][0])


def graph_twice(data: Data) -> None:
    data["graphs"].append(data["graphs"][0])


def value_before_it_is_made(data: Data) -> None:
    data["graphs"][0]["calls"].reverse()


def output_of_no_call(data: Data) -> None:
    data["graphs"][0]["outputs"][0]["name"] = "logits"


def schedule_above_k(data: Data) -> None:
    data["speculation"]["num_speculative_tokens_per_batch_size"] = [[1, 1, 2], [2, 2, 9]]


CONTRADICTIONS: list[tuple[Edit, str]] = [
    (
        unlisted_artifact,
        "The unit target_embed.t8 lies in a file without a digest: expected a listed file, found graphs/other.so.",
    ),
    (
        unlisted_weights,
        "The weight target.head.lm_head.weight (packed) lies in a file without a digest: "
        "expected a listed file, found weights/other.safetensors.",
    ),
    (
        unknown_unit,
        "The graph target_prefill.t8.c16 calls an unknown unit: "
        "expected a unit of the manifest, found target_head.t16.",
    ),
    (unit_twice, "Several units have one name: expected names that differ, found target_embed.t8 2 times."),
    (graph_twice, "Several graphs have one name: expected names that differ, found target_prefill.t8.c16 2 times."),
    (
        value_before_it_is_made,
        "The graph target_prefill.t8.c16 reads a value before it is made: expected a known value, found hidden.0.",
    ),
    (
        output_of_no_call,
        "The graph target_prefill.t8.c16 returns a value that no call makes: expected a known value, found logits.",
    ),
    (
        schedule_above_k,
        "num_speculative_tokens_per_batch_size asks for more draft tokens than num_speculative_tokens: "
        "expected a K of at most 3, found [2, 2, 9].",
    ),
]


def test_the_golden_manifest_has_no_problems(golden: Manifest) -> None:
    assert reference_problems(golden) == []


@pytest.mark.parametrize(("edit", "sentence"), CONTRADICTIONS, ids=[edit.__name__ for edit, _ in CONTRADICTIONS])
def test_a_contradiction_is_named(golden_json: Data, edit: Edit, sentence: str) -> None:
    edit(golden_json)
    assert [problem.sentence() for problem in reference_problems(loads(golden_json))] == [sentence]


def test_the_kv_pools_are_known_to_every_call(golden_json: Data) -> None:
    golden_json["graphs"][0]["calls"][0]["inputs"].append("kv.1.v")
    assert reference_problems(loads(golden_json)) == []


def test_the_rank_is_known_to_every_call(golden_json: Data) -> None:
    """The backend hands it in, as it does the pools."""
    golden_json["graphs"][0]["calls"][0]["inputs"].insert(0, "rank")
    assert reference_problems(loads(golden_json)) == []


def test_open_reports_all_contradictions_at_once(bundle: Path, reseal: Callable[[Edit], Manifest]) -> None:
    def edit_all(data: Data) -> None:
        for edit in (unlisted_artifact, unlisted_weights, unknown_unit):
            edit(data)

    reseal(edit_all)
    with pytest.raises(ErrorGroup) as caught:
        open_bundle(bundle, host=False)
    assert caught.value.sentence() == "The manifest of golden contradicts itself."
    assert caught.value.exit_code == 5
    assert len(caught.value.problems) == 3
    assert all(isinstance(problem, IntegrityError) for problem in caught.value.problems)
