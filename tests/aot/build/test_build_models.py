"""The two models of a build are checked against the configuration before anything is built."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aot.build.models import load_weights, read_models
from aot.build.plan import Models
from aot.checkpoint.draft import draft_config_from_json
from aot.checkpoint.target import target_config_from_json
from aot.config import BuildConfig, load_config
from runtime.bundle.errors import ConfigError, ErrorGroup, HostError
from tests.aot.hostile import DRAFT, TARGET, write_whole

TINY = Path(__file__).parents[3] / "configs" / "tiny"


def config(ranks: int) -> BuildConfig:
    return BuildConfig.model_validate(
        {
            "model_config": TINY / "target.json",
            "draft_config": TINY / "draft.json",
            "random_weights": {"seed": 0},
            "max_model_len": 128,
            "speculative_config": {"num_speculative_tokens": 3},
            "tensor_parallel_size": ranks,
            "backend": {"name": "neuron"},
        }
    )


def test_heads_that_the_ranks_would_cut_are_refused() -> None:
    """Both tiny models have four query heads and two KV heads."""
    with pytest.raises(ErrorGroup) as error:
        read_models(config(3))
    assert [problem.sentence() for problem in error.value.problems] == [
        f"tensor_parallel_size does not fit the heads of {model}, 4 for queries and 2 for keys: "
        "expected one of [1, 2, 4], found 3."
        for model in ("the target", "the draft")
    ]
    assert error.value.exit_code == ConfigError.exit_code


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_ranks_that_cut_none_are_accepted(ranks: int) -> None:
    assert read_models(config(ranks)).target.num_heads == 4


def test_B10_weights_beyond_any_memory_are_a_sentence() -> None:
    """Every number in its range, and 32 TB together."""
    largest = target_config_from_json(TARGET | {"hidden_size": 2**20, "vocab_size": 2**24, "head_dim": 8})
    draft = draft_config_from_json(DRAFT | {"hidden_size": 2**20, "vocab_size": 2**24, "head_dim": 8}, largest)
    speculative = {"num_speculative_tokens": 3}
    plain = BuildConfig.model_validate({"model": "x", "speculative_config": speculative, "random_weights": {"seed": 0}})
    with pytest.raises(HostError) as caught:
        load_weights(plain, Models(None, None, largest, draft))
    assert caught.value.repair


def test_C4_C5_C7_the_plan_carries_what_a_user_should_be_told_of_both_checkpoints(tmp_path: Path) -> None:
    write_whole(tmp_path)
    toy = load_config(tmp_path / "toy.yaml", ["dtype=bfloat16"])
    notes = read_models(toy).notes
    assert sum("bfloat16" in note for note in notes) == 2
    for name in ("config.json", "generation_config.json", "tokenizer_config.json"):
        path = tmp_path / "target" / name
        path.write_text(json.dumps({**json.loads(path.read_text()), "eos_token_id": None, "eos_token": None}))
    assert any("nothing ends an answer" in note for note in read_models(toy).notes)
