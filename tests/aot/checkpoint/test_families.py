"""What sets each target family apart is read from its config, and its tensors are exactly transformers' own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aot.checkpoint.families.registry import FAMILIES
from aot.checkpoint.gguf_names import hugging_face_name
from aot.checkpoint.random_weights import random_target_weights
from aot.checkpoint.source import ModelSource
from aot.checkpoint.target import (
    TargetConfig,
    load_target_weights,
    read_target_config,
    target_config_from_json,
    target_shapes,
)
from aot.models.layers import rotary_table
from runtime.bundle.errors import ConfigError

Json = dict[str, Any]


@pytest.fixture
def shape(target_json: Json) -> Json:
    """The toy config without what names a family."""
    return {key: value for key, value in target_json.items() if key not in ("model_type", "architectures")}


def read(shape: Json, family: str, **keys: Any) -> TargetConfig:
    return target_config_from_json({**shape, "model_type": family, **keys})


def features(config: TargetConfig) -> tuple[bool, bool, bool, tuple[int, ...]]:
    return config.qkv_bias, config.o_bias, config.qk_norm, config.windows


def refusal(shape: Json, family: str, **keys: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        read(shape, family, **keys)
    assert caught.value.repair
    return caught.value.sentence()


def test_what_each_family_adds_to_llama(shape: Json) -> None:
    assert features(read(shape, "llama")) == (False, False, False, ())
    assert features(read(shape, "llama", attention_bias=True)) == (True, True, False, ())
    assert features(read(shape, "mistral", sliding_window=16)) == (False, False, False, (16,) * 8)
    assert features(read(shape, "qwen2")) == (True, False, False, ())
    assert features(read(shape, "qwen3")) == (False, False, True, ())
    assert features(read(shape, "qwen3", attention_bias=True)) == (True, True, True, ())


def test_a_config_of_any_family_survives_json(shape: Json) -> None:
    for family in FAMILIES:
        config = read(shape, family, rope_scaling={"type": "linear", "factor": 2.0})
        assert TargetConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


def test_a_config_stored_before_there_were_families_still_reads(shape: Json) -> None:
    config = read(shape, "llama")
    older = {key: value for key, value in config.to_json().items() if key not in ("qkv_bias", "o_bias", "qk_norm")}
    del older["windows"]
    assert TargetConfig.from_json(older) == config


@pytest.mark.parametrize("family", FAMILIES)
def test_absent_keys_mean_what_transformers_means(family: str, shape: Json) -> None:
    import transformers

    optional = {"num_key_value_heads", "max_position_embeddings", "rms_norm_eps", "head_dim", "eos_token_id"}
    raw = {key: value for key, value in shape.items() if key not in optional}
    raw |= {"num_attention_heads": 32, "hidden_size": 256}
    name = FAMILIES[family].architecture.removesuffix("ForCausalLM")
    theirs = getattr(transformers, f"{name}Config")(**raw)
    ours = read(raw, family)
    assert ours.num_kv_heads == theirs.num_key_value_heads
    assert ours.head_dim == (getattr(theirs, "head_dim", None) or 256 // 32)
    assert ours.max_position_embeddings == theirs.max_position_embeddings
    assert ours.rms_norm_eps == theirs.rms_norm_eps
    assert ours.rope_theta == theirs.rope_parameters["rope_theta"]
    assert ours.tie_word_embeddings == theirs.tie_word_embeddings
    assert (ours.windows or (0,))[0] == (getattr(theirs, "sliding_window", None) or 0)


def test_null_key_heads_are_as_many_as_query_heads(shape: Json) -> None:
    for family in FAMILIES:
        assert read(shape, family, num_key_value_heads=None).num_kv_heads == 4


ANYTHING = st.sampled_from([None, True, -1, 0, float("inf"), float("nan"), "", {}, [{}] * 8])
NUMBERS = st.sampled_from([0.5, 1, 1.0, 2, 4.0, 32, 64])
KINDS = st.lists(st.sampled_from(["full_attention", "sliding_attention"]), min_size=8, max_size=8)
TYPES = ["default", "linear", "dynamic", "llama3", "yarn"]
ROPE_KEYS = """rope_theta factor low_freq_factor high_freq_factor beta_fast beta_slow truncate mscale mscale_all_dim
    attention_factor original_max_position_embeddings"""
ROPE = st.builds(
    lambda kind, rest: {"rope_type": kind, "factor": 2.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **rest},
    st.sampled_from(TYPES),
    st.dictionaries(st.sampled_from(ROPE_KEYS.split()), NUMBERS | NUMBERS | ANYTHING, max_size=2),
)
KEYS = st.fixed_dictionaries(
    {},
    optional={
        "head_dim": st.sampled_from([2, 8, 16]),
        "layer_types": KINDS | KINDS | ANYTHING,
        "sliding_window": NUMBERS | ANYTHING,
        "use_sliding_window": st.booleans(),
        "max_window_layers": st.integers(0, 9),
        "max_position_embeddings": st.integers(1, 99),
    },
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(family=st.sampled_from([*FAMILIES, "gemma3"]), keys=KEYS, rope=ROPE, four=st.booleans())
def test_any_config_is_read_or_refused_in_one_sentence(
    family: str, keys: Json, rope: Json, four: bool, shape: Json
) -> None:
    """Nothing else comes out, and what is read survives JSON and has a rotary table."""
    raw = {**shape, "model_type": family, **keys, ("rope_scaling" if four else "rope_parameters"): rope}
    try:
        config = target_config_from_json(raw)
    except ConfigError:
        return
    assert TargetConfig.from_json(json.loads(json.dumps(config.to_json()))) == config
    table = rotary_table(8, config.head_dim, config.rope_theta, config.rope_scaling)
    assert bool(table.isfinite().all())
    assert config.max_length >= 1


# Windows


def test_mistral_has_a_window_unless_its_config_says_null(shape: Json) -> None:
    """The first release says 4096, later ones null; an absent key is transformers' 4096."""
    assert read(shape, "mistral", sliding_window=None).windows == ()
    assert read(shape, "mistral").windows == (4096,) * 8
    assert read(shape, "mistral", sliding_window=16).window(7) == 16
    assert read(shape, "mistral", sliding_window=None).window(7) == 0


@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
@pytest.mark.parametrize(
    ("keys", "windows"),
    [
        ({"sliding_window": 16}, ()),
        ({"sliding_window": 16, "use_sliding_window": False, "max_window_layers": 0}, ()),
        ({"sliding_window": 16, "use_sliding_window": True, "max_window_layers": 6}, (0,) * 6 + (16, 16)),
        ({"sliding_window": 16, "use_sliding_window": True}, ()),
        ({"use_sliding_window": True, "max_window_layers": 7}, (0,) * 7 + (4096,)),
        ({"use_sliding_window": True, "max_window_layers": 7, "sliding_window": None}, ()),
        (
            {
                "sliding_window": 16,
                "use_sliding_window": True,
                "layer_types": ["sliding_attention", "full_attention"] * 4,
            },
            (16, 0) * 4,
        ),
        ({"layer_types": ["full_attention"] * 8}, ()),
    ],
)
def test_qwen_windows_begin_behind_max_window_layers(
    family: str, keys: Json, windows: tuple[int, ...], shape: Json
) -> None:
    assert read(shape, family, **keys).windows == windows


def test_windows_that_are_none_are_refused(shape: Json) -> None:
    assert refusal(shape, "mistral", sliding_window=0) == (
        "sliding_window of model_config is wrong: expected an integer from 1 to 2147483647, found 0."
    )
    assert refusal(shape, "qwen2", layer_types=["sliding_attention"] * 8) == (
        "layer_types of model_config names windows, and no size is given for them: "
        "expected use_sliding_window: true and sliding_window in tokens."
    )
    assert refusal(shape, "qwen3", layer_types=["full_attention"] * 7 + ["linear_attention"]) == (
        "layer_types of model_config is not supported: expected 8 of full_attention or sliding_attention, found "
        "['full_attention', 'full_attention', 'full_attention', 'full_attention', 'full_attention', "
        "'full_attention', 'full_attention', 'linear_attention']."
    )
    assert refusal(shape, "qwen3", layer_types=["full_attention"]).startswith(
        "layer_types of model_config is not supported: expected 8 of "
    )
    assert refusal(shape, "mistral", layer_types=["full_attention"] * 8).startswith(
        "layer_types of model_config is not supported: expected the same window in every layer, "
    )


# Refused by name


def test_a_family_without_capture_points_is_refused_by_name_and_with_the_list(shape: Json) -> None:
    """A6: when the config is read, not by an assertion at run time."""
    for family in ("gpt_oss", "qwen3_moe", "mamba"):
        assert refusal(shape, family) == (
            "the model family in model_config is not supported yet: "
            f"expected llama or mistral or qwen2 or qwen3, found {family}."
        )


def test_another_model_of_a_known_family_is_refused(shape: Json) -> None:
    assert refusal(shape, "qwen3", architectures=["Qwen3ForSequenceClassification"]) == (
        "the architecture in model_config is not a target model that is supported: "
        "expected Qwen3ForCausalLM, found ['Qwen3ForSequenceClassification']."
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_a_quantised_model_and_another_activation_are_refused(family: str, shape: Json) -> None:
    assert refusal(shape, family, quantization_config={"bits": 4}).startswith("quantization_config of model_config ")
    assert refusal(shape, family, hidden_act="gelu").startswith("hidden_act of model_config is not supported yet")


# Tensors


@pytest.mark.parametrize(
    ("family", "bias"), [*((family, False) for family in FAMILIES), ("llama", True), ("qwen3", True)]
)
def test_tensors_are_those_of_transformers_model(family: str, bias: bool, shape: Json) -> None:
    import transformers

    keys: Json = {"attention_bias": True} if bias else {}
    name = FAMILIES[family].architecture
    config = getattr(transformers, name.replace("ForCausalLM", "Config"))(**shape, **keys)
    with torch.device("meta"):
        model = getattr(transformers, name)(config)
    theirs = {key: tuple(tensor.shape) for key, tensor in model.state_dict().items()}
    assert target_shapes(read(shape, family, **keys)) == theirs


# GGUF


def write_gguf(path: Path, config: TargetConfig, weights: dict[str, torch.Tensor]) -> ModelSource:
    """The target as llama.cpp's converter stores it for families whose rows it leaves in order."""
    arch = {"qwen2": gguf.MODEL_ARCH.QWEN2, "qwen3": gguf.MODEL_ARCH.QWEN3}[config.family]
    names = gguf.get_tensor_name_map(arch, config.num_layers)
    writer = gguf.GGUFWriter(path, config.family)
    writer.add_block_count(config.num_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_heads)
    writer.add_head_count_kv(config.num_kv_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_vocab_size(config.vocab_size)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    for name, tensor in weights.items():
        stem, _, kind = name.rpartition(".")
        writer.add_tensor(f"{names.get_name(stem)}.{kind}", tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return ModelSource(path.name, "gguf", path)


@pytest.mark.parametrize(("family", "head_dim"), [("qwen2", 8), ("qwen3", 16)])
def test_a_gguf_file_of_qwen_gives_config_and_weights(family: str, head_dim: int, shape: Json, tmp_path: Path) -> None:
    config = read(shape, family, head_dim=head_dim, rope_theta=1e6, eos_token_id=None)
    weights = random_target_weights(config, 0, torch.float32)
    source = write_gguf(tmp_path / "m.gguf", config, weights)
    assert read_target_config(source) == config
    loaded = load_target_weights(source, config, torch.float32)
    assert list(loaded) == list(weights)
    assert all(torch.equal(loaded[name], weights[name]) for name in weights)


@pytest.mark.parametrize(("family", "head_dim"), [("qwen2", 8), ("qwen3", 128)])
def test_transformers_reads_the_same_weights_from_it(family: str, head_dim: int, shape: Json, tmp_path: Path) -> None:
    """In particular, no rows of its query and key projections are reordered. transformers takes no other head sizes."""
    from transformers import AutoModelForCausalLM

    config = read(shape, family, head_dim=head_dim, eos_token_id=None)
    source = write_gguf(tmp_path / "m.gguf", config, random_target_weights(config, 0, torch.float32))
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="m.gguf", dtype=torch.float32).state_dict()
    ours = load_target_weights(source, config, torch.float32)
    assert set(theirs) == set(ours)
    assert all(torch.equal(theirs[name], ours[name]) for name in ours)


@pytest.mark.parametrize("family", [name for name, family in FAMILIES.items() if family.gguf])
def test_gguf_names_are_the_packages_own(family: str, shape: Json) -> None:
    arch = {"llama": gguf.MODEL_ARCH.LLAMA, "qwen2": gguf.MODEL_ARCH.QWEN2, "qwen3": gguf.MODEL_ARCH.QWEN3}[family]
    names = gguf.get_tensor_name_map(arch, 8)
    for name in target_shapes(read(shape, family)):
        stem, _, kind = name.rpartition(".")
        assert hugging_face_name(f"{names.get_name(stem)}.{kind}") == name
