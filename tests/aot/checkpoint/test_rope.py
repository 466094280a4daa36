"""Rotary embedding: every type's frequencies are transformers', in both of its spellings; other types are refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from aot.checkpoint.fields import Fields
from aot.checkpoint.rope import ROPE_TYPES, attention_factor, inverse_frequencies, reach, read_rope
from aot.models.layers import rotary_table
from runtime.bundle.errors import ConfigError

Json = dict[str, Any]

HEAD_DIM, THETA, TRAINED = 64, 5e5, 4096
LLAMA3: Json = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}

SCALINGS: dict[str, Json] = {
    "default": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 2.5},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "llama3": {"rope_type": "llama3", **LLAMA3, "original_max_position_embeddings": 1024},
    "llama3 of its own length": {"rope_type": "llama3", **LLAMA3},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024},
    "yarn of its own length": {"rope_type": "yarn", "factor": 4.0},
    "yarn without truncation": {
        "rope_type": "yarn",
        "factor": 32.0,
        "original_max_position_embeddings": 1024,
        "beta_fast": 16.0,
        "beta_slow": 2.0,
        "truncate": False,
    },
    "yarn with an attention factor": {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 1024,
        "attention_factor": 0.75,
    },
    "yarn with DeepSeek's weights": {
        "rope_type": "yarn",
        "factor": 40.0,
        "original_max_position_embeddings": 1024,
        "mscale": 1.0,
        "mscale_all_dim": 0.8,
    },
    "yarn of the ratio": {"rope_type": "yarn", "factor": None, "original_max_position_embeddings": 1024},
}


def spelled(scaling: Json, transformers: int) -> Json:
    """config.json keys for `scaling`; the oldest files of transformers 4 call the type `type`."""
    if transformers == 5:
        return {"rope_parameters": {"rope_theta": THETA, **scaling}}
    rest = {key: value for key, value in scaling.items() if key != "rope_type"}
    return {"rope_theta": THETA, "rope_scaling": {"type": scaling["rope_type"], **rest}}


def config(**keys: Any) -> Json:
    return {"max_position_embeddings": TRAINED, **keys}


def read(raw: Json) -> tuple[float, Json | None, bool]:
    return read_rope(Fields(raw, "config.json"))


def transformers_rope(raw: Json) -> tuple[torch.Tensor, float]:
    """transformers' own inverse frequencies and attention factor for the same config.json."""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    copied = {key: dict(value) if isinstance(value, dict) else value for key, value in raw.items()}
    rotary = LlamaRotaryEmbedding(LlamaConfig(hidden_size=4 * HEAD_DIM, num_attention_heads=4, **copied))
    return rotary.inv_freq, rotary.attention_scaling


@pytest.mark.parametrize("transformers", [4, 5])
@pytest.mark.parametrize("name", SCALINGS)
def test_frequencies_and_attention_factor_are_transformers(name: str, transformers: int) -> None:
    """F1, F2: no type is read as another, and theta is found where either release puts it."""
    raw = config(**spelled(SCALINGS[name], transformers))
    theta, scaling, given = read(raw)
    theirs, factor = transformers_rope(raw)
    assert (theta, given) == (THETA, True)
    torch.testing.assert_close(inverse_frequencies(HEAD_DIM, theta, scaling), theirs, rtol=2e-6, atol=0)
    assert attention_factor(scaling) == pytest.approx(factor, rel=1e-12)


@pytest.mark.parametrize("name", SCALINGS)
def test_a_table_holds_cosines_and_sines_of_those_frequencies(name: str) -> None:
    raw = config(**spelled(SCALINGS[name], 5))
    theta, scaling, _ = read(raw)
    theirs, factor = transformers_rope(raw)
    angles = torch.arange(40)[:, None] * theirs
    expected = torch.cat([angles.cos(), angles.sin()], dim=-1) * factor
    torch.testing.assert_close(rotary_table(40, HEAD_DIM, theta, scaling), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("length", [40, TRAINED, TRAINED + 1, 3 * TRAINED])
def test_dynamic_is_plain_up_to_its_trained_length_and_then_that_of_the_longest_text(length: int) -> None:
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    raw = config(**spelled(SCALINGS["dynamic"], 5))
    theta, scaling, _ = read(raw)
    theirs, _ = ROPE_INIT_FUNCTIONS["dynamic"](
        LlamaConfig(hidden_size=4 * HEAD_DIM, num_attention_heads=4, **raw), device=None, seq_len=length
    )
    found = inverse_frequencies(HEAD_DIM, theta, scaling, length=length)
    torch.testing.assert_close(found, theirs, rtol=2e-6, atol=0)
    plain = inverse_frequencies(HEAD_DIM, theta, None)
    assert torch.equal(found, plain) == (length <= TRAINED)
    # A table is for texts of as many tokens as it has rows, unless it is told otherwise
    wanted = rotary_table(length, HEAD_DIM, theta, scaling)[:5]
    assert torch.equal(rotary_table(5, HEAD_DIM, theta, scaling, length=length), wanted)
    torch.testing.assert_close(wanted[1, : HEAD_DIM // 2], theirs.cos(), rtol=0, atol=1e-6)


def test_llama3_by_hand() -> None:
    """F1: a head of 8, theta 10000, factor 8 and a trained length of 8192 positions.

    Wavelengths are 6.28, 62.8, 628 and 6283: the first three fit into 8192 / 4 positions and are kept; 6283 lies
    between 2048 and 8192, and of it (8192 / 6283 - 1) / (4 - 1) = 0.1013 is kept.
    """
    scaling = {"rope_type": "llama3", **LLAMA3, "original_max_position_embeddings": 8192}
    found = inverse_frequencies(8, 10000.0, read(config(rope_scaling=scaling))[1])
    kept = (8192 * 0.001 / (2 * math.pi) - 1) / 3
    assert kept == pytest.approx(0.1013, abs=1e-4)
    assert found.tolist() == pytest.approx([1.0, 0.1, 0.01, 0.001 * (kept + (1 - kept) / 8)], rel=1e-5)


def test_where_theta_stands() -> None:
    """F2: at the top, beside the type, or nowhere, which means 10000 and is told apart."""
    assert read(config(rope_theta=5e5)) == (5e5, None, True)
    assert read(config(rope_parameters={"rope_type": "default", "rope_theta": 5e5})) == (5e5, None, True)
    assert read(config()) == (10000.0, None, False)
    assert read(config(rope_theta=1.0, rope_parameters={"rope_theta": 5e5}))[0] == 5e5
    # A transformers 4 file has its theta outside of rope_scaling
    assert read(config(rope_theta=5e5, rope_scaling={"type": "linear", "factor": 2.0}))[0] == 5e5


def test_a_scaling_names_every_number_that_its_frequencies_hang_on() -> None:
    """Nothing but this is stored, so a table can be made from a manifest alone."""
    for name, scaling in SCALINGS.items():
        read_back = read(config(**spelled(scaling, 4)))[1]
        if read_back is not None:
            assert set(read_back) >= {"rope_type", "factor"}, name
    assert read(config(**spelled(SCALINGS["yarn of its own length"], 4)))[1] == {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": TRAINED,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": True,
        "attention_factor": 0.1 * math.log(4.0) + 1.0,
    }


@pytest.mark.parametrize(
    ("scaling", "expected"),
    [
        (SCALINGS["default"], TRAINED),
        (SCALINGS["linear"], 10240),
        (SCALINGS["dynamic"], TRAINED),
        (SCALINGS["llama3"], TRAINED),
        (SCALINGS["yarn"], TRAINED),
        (SCALINGS["yarn of its own length"], 4 * TRAINED),
        (SCALINGS["yarn without truncation"], 32 * 1024),
    ],
)
def test_how_long_a_text_may_become(scaling: Json, expected: int) -> None:
    """Qwen's instructions for long texts add yarn to a config and leave max_position_embeddings as it was."""
    assert reach(TRAINED, read(config(**spelled(scaling, 4)))[1]) == expected


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        (
            {"rope_scaling": {"type": "longrope", "factor": 2.0}},
            f"rope type 'longrope' of config.json is not supported yet: expected {' or '.join(ROPE_TYPES)}, "
            "found longrope.",
        ),
        (
            {"rope_parameters": {"rope_type": "mrope"}},
            f"rope type 'mrope' of config.json is not supported yet: expected {' or '.join(ROPE_TYPES)}, found mrope.",
        ),
        (
            {"rope_parameters": {"full_attention": {"rope_type": "default"}, "sliding_attention": {}}},
            "rope_parameters of config.json differs by kind of layer, which is not supported yet: "
            "expected one rope for all layers, found full_attention, sliding_attention.",
        ),
        (
            {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}},
            "partial_rotary_factor of config.json is not supported yet: expected 1.0, found 0.5.",
        ),
        ({"rope_scaling": {"type": "linear"}}, "rope_scaling of config.json has no factor."),
        (
            {"rope_scaling": {"type": "linear", "factor": 0}},
            "factor of rope_scaling of config.json is wrong: expected a number above 0 and at most 1e+06, found 0.",
        ),
        (
            {"rope_scaling": {"type": "linear", "factor": 0.5}},
            "factor of rope_scaling of config.json is below 1, and a scaling of rope stretches: "
            "expected at least 1, found 0.5.",
        ),
        (
            {"rope_theta": 1.0},
            "rope_theta of config.json is not above 1, so no pair would turn slower than the first: "
            "expected a base such as 10000, found 1.0.",
        ),
        (
            {"rope_scaling": {"rope_type": "llama3", **LLAMA3, "low_freq_factor": 4.0}},
            "low_freq_factor of rope_scaling of config.json is not below its high_freq_factor: found 4.0 and 4.0.",
        ),
        (
            {"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "truncate": "no"}},
            "truncate of rope_scaling of config.json is wrong: expected true or false, found 'no'.",
        ),
    ],
)
def test_what_is_unknown_or_wrong_is_refused_by_name(keys: Json, sentence: str) -> None:
    """F6: an unknown type is an error with the list of known ones."""
    with pytest.raises(ConfigError) as caught:
        read(config(**keys))
    assert caught.value.sentence() == sentence
    assert caught.value.repair


def test_a_caller_may_support_less() -> None:
    with pytest.raises(ConfigError) as caught:
        read_rope(Fields(config(rope_scaling={"type": "linear", "factor": 2.0}), "x"), supported=("default",))
    assert caught.value.sentence() == "rope type 'linear' of x is not supported yet: expected default, found linear."


def test_C2_a_type_in_both_spellings_must_be_one_type() -> None:
    both = {"rope_type": "linear", "type": "linear", "factor": 2.0}
    assert read(config(rope_scaling=both))[1] == {"rope_type": "linear", "factor": 2.0}
    with pytest.raises(ConfigError, match=r"rope_type 'linear' and type 'dynamic'"):
        read(config(rope_scaling=both | {"type": "dynamic"}))
