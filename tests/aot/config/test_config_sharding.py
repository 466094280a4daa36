"""Over how many ranks two models can be shared, and what is said where they cannot."""

from __future__ import annotations

import pytest

from aot.config import BuildConfig, Heads, check_heads
from runtime.bundle.errors import render


def config(ranks: int) -> BuildConfig:
    return BuildConfig.model_validate(
        {
            "model": "a/b",
            "speculative_config": {"model": "c/d", "num_speculative_tokens": 3},
            "tensor_parallel_size": ranks,
            "backend": {"name": "neuron"},
        }
    )


LLAMA_8B = {"the target": Heads(32, 8), "the draft": Heads(32, 8)}


@pytest.mark.parametrize(
    ("heads", "fitting"),
    [
        (Heads(32, 8), [1, 2, 4, 8, 16, 32]),
        (Heads(9, 3), [1, 3, 9]),
        (Heads(12, 2), [1, 2, 4, 6, 12]),
        # Three ranks would cut one of two KV heads
        (Heads(6, 2), [1, 2, 6]),
        (Heads(8, 1), [1, 2, 4, 8]),
    ],
)
def test_ranks_cut_no_head(heads: Heads, fitting: list[int]) -> None:
    assert [ranks for ranks in range(1, 40) if heads.fit(ranks)] == fitting


@pytest.mark.parametrize("ranks", [1, 2, 4, 8, 16, 32])
def test_sizes_that_fit_both_models_are_accepted(ranks: int) -> None:
    assert check_heads(config(ranks), LLAMA_8B) == []


def test_a_size_that_cuts_a_head_names_the_key_and_the_possible_ones() -> None:
    (error,) = check_heads(config(6), {"the target": Heads(12, 2), "the draft": Heads(8, 8)})
    assert error.exit_code == 3
    assert render(error) == [
        "error: tensor_parallel_size does not fit the heads of the draft, 8 for queries and 8 for keys: "
        "expected one of [1, 2, 4], found 6.",
        "hint: set tensor_parallel_size: 4",
    ]


def test_both_models_are_told_of_where_neither_fits() -> None:
    assert len(check_heads(config(64), LLAMA_8B)) == 2
