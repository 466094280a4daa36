"""What a pass hands to graphs that draw tokens, and which requests such graphs cannot serve."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from runtime.sampling.device import device_inputs, unsupported
from runtime.sampling.noise import Purpose, uniforms
from runtime.sampling.params import GREEDY, SamplingParams
from runtime.sampling.sampler import SampledRows


def rows(params: SamplingParams, length: int, drafts: int) -> SampledRows:
    return SampledRows(params, list(range(length)), length, list(range(drafts)), 0, frozenset())


WARM = SamplingParams(temperature=0.7, top_k=40, top_p=0.9, min_p=0.05, seed=3)


def test_each_row_has_the_number_of_the_position_that_it_draws() -> None:
    made = device_inputs([rows(WARM, 10, 2), rows(GREEDY, 5, 3), rows(WARM, 12, 3)], requests=4, rows_each=4)
    assert {name: (value.dtype, tuple(value.shape)) for name, value in made.items()} == {
        "temperature": (torch.float32, (4,)),
        "top_k": (torch.int32, (4,)),
        "top_p": (torch.float32, (4,)),
        "min_p": (torch.float32, (4,)),
        "uniforms": (torch.float32, (16,)),
    }
    assert torch.equal(made["temperature"], torch.tensor([0.7, 0.0, 0.7, 0.0]))
    assert made["top_k"].tolist() == [40, 0, 40, 0]
    assert torch.equal(made["top_p"], torch.tensor([0.9, 1.0, 0.9, 1.0]))
    assert torch.equal(made["min_p"], torch.tensor([0.05, 0.0, 0.05, 0.0]))
    first, greedy, third, padding = made["uniforms"].view(4, 4).tolist()
    assert first[3] == 0.0
    assert greedy == padding == [0.0] * 4
    # Both requests have the same seed: positions 10, 11, 12 and 12, 13, 14, 15
    assert first[2] == third[0]
    host = uniforms(3, 10, 6, Purpose.DRAW)
    assert first[:3] + third[1:] == host


def test_numbers_are_the_same_in_float32_and_below_one() -> None:
    made = device_inputs([rows(dataclasses.replace(WARM, seed=seed), 1, 7) for seed in range(500)], 500, 8)
    wide = made["uniforms"].double() * 2.0**24
    assert torch.equal(wide, wide.floor())
    assert float(wide.min()) >= 0
    assert float(wide.max()) < 2.0**24
    assert len(set(wide.tolist())) > 3990


def test_a_prompt_s_last_chunk_draws_the_token_after_it() -> None:
    made = device_inputs([rows(WARM, 10, 0)], requests=1, rows_each=1)
    verify = device_inputs([rows(WARM, 9, 1)], requests=1, rows_each=2)
    assert made["uniforms"].tolist() == verify["uniforms"].tolist()[1:]


@pytest.mark.parametrize("top_k", [-1, 0, 2**40])
def test_values_that_float32_and_int32_do_not_hold(top_k: int) -> None:
    made = device_inputs([rows(SamplingParams(temperature=1e300, top_k=top_k, seed=0), 1, 0)], 1, 1)
    assert bool(torch.isfinite(made["temperature"]).all())
    assert made["top_k"].tolist() == [0 if top_k < 1 else 2**31 - 1]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("presence_penalty", 0.1),
        ("frequency_penalty", -0.1),
        ("repetition_penalty", 1.1),
        ("logit_bias", {1: 2.0}),
        ("allowed_token_ids", (1,)),
        ("bad_words_token_ids", ((1, 2),)),
        ("min_tokens", 1),
        ("logprobs", 0),
    ],
)
@pytest.mark.parametrize("params", [WARM, GREEDY])
def test_what_needs_logits_on_the_host_is_named(params: SamplingParams, field: str, value: object) -> None:
    assert unsupported(params) is None
    assert unsupported(dataclasses.replace(params, **{field: value})) == field


def test_stops_and_seeds_need_no_logits() -> None:
    assert unsupported(dataclasses.replace(WARM, stop=("x",), stop_token_ids=(3,), seed=None)) is None
