"""Our acceptance beside vLLM's: shares from counts, differences in points, and the verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aot.checkpoint.source import resolve
from aot.checkpoint.target import read_target_config, target_config_from_json
from bench.vllm_acceptance import check_built_from
from bench.vllm_table import Acceptance, Comparison, Pair, compare
from bench.vllm_target import hugging_face_config
from runtime.bundle.errors import UsageError
from runtime.bundle.manifest import Model

NAMES = ["writing-01", "math-01", "code-01"]


def answer(token_ids: list[int], num_drafts: int, *accepted: int) -> dict[str, Any]:
    return {"token_ids": token_ids, "num_drafts": num_drafts, "num_accepted_tokens_per_pos": list(accepted)}


OURS = [answer([5, 6, 2], 60, 30, 12, 6), answer([7, 2], 40, 14, 8, 4), answer([8, 9], 25, 11, 5, 5)]
# The last text parts from ours, and its steps with it
VLLM = [answer([5, 6, 2], 60, 30, 12, 6), answer([7, 2], 40, 14, 7, 4), answer([8, 4], 25, 9, 5, 5)]
TOTAL = Acceptance(125, (0.44, 0.2, 0.12))


def test_shares_are_of_all_steps_that_held_a_draft() -> None:
    found = Acceptance.of(OURS, positions=3)
    assert (found.num_drafts, found.unconditional) == (125, (0.44, 0.2, 0.12))
    assert found.mean_acceptance_length == pytest.approx(1.76)


def test_a_side_that_never_drafted_that_far_accepted_nothing_there() -> None:
    assert Acceptance.of([answer([1], 4, 2), answer([1], 0)], positions=2).unconditional == (0.5, 0.0)
    assert Acceptance.of([answer([1], 0)], positions=2).unconditional == (0.0, 0.0)


def test_differences_are_in_percentage_points_ours_less_vllms() -> None:
    pair = Pair(Acceptance(10, (0.4, 0.1)), Acceptance(10, (0.35, 0.125)))
    assert pair.points == pytest.approx((5.0, -2.5))
    assert pair.largest == pytest.approx(5.0)
    assert Pair(pair.vllm, pair.ours).largest == pytest.approx(5.0)


def test_the_result_for_people() -> None:
    assert compare(NAMES, TOTAL, OURS, VLLM, plain=VLLM, tolerance=3.0).lines() == [
        "All 3 prompts",
        "                      ours    vLLM  points",
        "accepted at 1        44.0%   42.4%    +1.6",
        "accepted at 2        20.0%   19.2%    +0.8",
        "accepted at 3        12.0%   12.0%    +0.0",
        "acceptance length    1.760   1.736  +0.024",
        "steps with drafts      125     125",
        "",
        "Texts equal on 2 of 3 prompts. They part at: code-01.",
        "Texts equal to vLLM's without speculation: ours 2, vLLM's 3.",
        "",
        "The 2 with equal texts",
        "                      ours    vLLM  points",
        "accepted at 1        44.0%   44.0%    +0.0",
        "accepted at 2        20.0%   19.0%    +1.0",
        "accepted at 3        10.0%   10.0%    +0.0",
        "acceptance length    1.740   1.730  +0.010",
        "steps with drafts      100     100",
        "",
        "agree: at most 1.6 points apart, tolerance 3",
    ]


def test_the_result_for_machines() -> None:
    assert compare(NAMES, TOTAL, OURS, VLLM, plain=None, tolerance=3.0).to_json() == {
        "prompts": 3,
        "total": {
            "ours": {"num_drafts": 125, "mean_acceptance_length": 1.76, "unconditional_per_pos": [0.44, 0.2, 0.12]},
            "vllm": {"num_drafts": 125, "mean_acceptance_length": 1.736, "unconditional_per_pos": [0.424, 0.192, 0.12]},
            "points_per_pos": [1.6, 0.8, 0.0],
        },
        "equal_texts": 2,
        "parted": ["code-01"],
        "over_equal_texts": {
            "ours": {"num_drafts": 100, "mean_acceptance_length": 1.74, "unconditional_per_pos": [0.44, 0.2, 0.1]},
            "vllm": {"num_drafts": 100, "mean_acceptance_length": 1.73, "unconditional_per_pos": [0.44, 0.19, 0.1]},
            "points_per_pos": [0.0, 1.0, 0.0],
        },
        "equal_to_plain_vllm": None,
        "tolerance_points": 3.0,
        "largest_points": 1.6,
        "agree": True,
    }


def test_equal_texts_everywhere_need_no_second_table() -> None:
    lines = compare(NAMES, TOTAL, OURS, OURS, plain=None, tolerance=3.0).lines()
    assert lines[-3:] == ["Texts equal on 3 of 3 prompts.", "", "agree: at most 0.0 points apart, tolerance 3"]


def test_where_every_text_parts_there_is_nothing_alike_to_show() -> None:
    parted = [{**one, "token_ids": [0]} for one in OURS]
    comparison = compare(NAMES, TOTAL, OURS, parted, plain=None, tolerance=3.0)
    assert comparison.alike is None
    assert comparison.agree
    assert comparison.to_json()["over_equal_texts"] is None


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        ((0.53125, 0.25), "agree: at most 3.1 points apart, tolerance 3.125"),
        ((0.46875, 0.25), "agree: at most 3.1 points apart, tolerance 3.125"),
        ((0.5, 0.29), "DIFFER: +4.0 at position 2, tolerance 3.125 points"),
        ((0.46, 0.2), "DIFFER: -4.0 at position 1, -5.0 at position 2, tolerance 3.125 points"),
    ],
)
def test_the_verdict_names_every_position_beyond_the_tolerance(ours: tuple[float, ...], verdict: str) -> None:
    """Either way, and a difference of just the tolerance agrees."""
    comparison = Comparison(("q",), Pair(Acceptance(8, ours), Acceptance(8, (0.5, 0.25))), (True,), None, None, 3.125)
    assert comparison.verdict() == verdict
    assert comparison.agree == verdict.startswith("agree")


def test_a_bundle_of_another_draft_is_refused() -> None:
    built = Model("drafts/old", "a" * 64, 32, 8, (2,), {})
    check_built_from("draft", built, "a" * 64)
    with pytest.raises(UsageError) as refused:
        check_built_from("draft", built, "b" * 64)
    assert refused.value.sentence() == (
        "The bundle was built from another draft than the configuration names: "
        "expected fingerprint bbbbbbbbbbbbbbbb, found aaaaaaaaaaaaaaaa (drafts/old)."
    )


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}


@pytest.mark.parametrize(
    "keys",
    [
        {"model_type": "llama", "tie_word_embeddings": True},
        {"model_type": "llama", "attention_bias": True, "rope_scaling": {"type": "dynamic", "factor": 2.0}},
        {"model_type": "qwen2", "rope_scaling": YARN},
        {"model_type": "qwen3", "use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1},
        {"model_type": "mistral", "sliding_window": 16},
        {"model_type": "mistral", "sliding_window": None},
    ],
)
def test_the_folders_config_reads_back_as_the_target_it_was_made_from(keys: dict[str, Any], tmp_path: Path) -> None:
    config = target_config_from_json(
        {
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "vocab_size": 128,
            "rms_norm_eps": 1e-5,
            "rope_theta": 100000.0,
            "max_position_embeddings": 256,
            "eos_token_id": [2, 7],
            "bos_token_id": 1,
            **keys,
        }
    )
    (tmp_path / "config.json").write_text(json.dumps(hugging_face_config(config, "bfloat16")), encoding="utf-8")
    assert read_target_config(resolve(str(tmp_path), key="model", base=tmp_path)) == config
