"""The two models of a build are checked against the configuration before anything is built."""

from __future__ import annotations

from pathlib import Path

import pytest

from aot.build.models import read_models
from aot.config import BuildConfig
from runtime.bundle.errors import ConfigError, ErrorGroup

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
