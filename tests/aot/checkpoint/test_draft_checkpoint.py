"""A published draft is read in any of its spellings; what our graphs do not do is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from aot.checkpoint.draft import (
    DraftConfig,
    draft_config_from_json,
    draft_shapes,
    load_draft_weights,
    read_draft_config,
)
from aot.checkpoint.random_weights import random_draft_weights
from aot.checkpoint.source import ModelSource
from aot.checkpoint.target import TargetConfig, target_config_from_json
from runtime.bundle.errors import ConfigError

Json = dict[str, Any]
Tensors = dict[str, torch.Tensor]
Writer = Callable[..., ModelSource]


def sentence_of(config: Json, target: TargetConfig) -> str:
    with pytest.raises(ConfigError) as caught:
        draft_config_from_json(config, target)
    assert caught.value.repair
    return caught.value.sentence()


@pytest.mark.parametrize("form", ["safetensors", "bin"])
@pytest.mark.parametrize("prefix", ["midlayer.", "layers.0.", "model.layers.0."])
def test_every_spelling_loads_the_same_weights(
    form: str,
    prefix: str,
    draft_json: Json,
    draft_tensors: Tensors,
    target: TargetConfig,
    write_draft: Writer,
) -> None:
    renamed = {name.replace("midlayer.", prefix): tensor for name, tensor in draft_tensors.items()}
    source = write_draft(draft_json, renamed, form)
    config = read_draft_config(source, target)
    weights = load_draft_weights(source, config, target, torch.float32)
    assert set(weights) == {*draft_shapes(config), "d2t"}
    for name, tensor in weights.items():
        assert torch.equal(tensor, draft_tensors[name]), name


def test_the_facts_of_a_config_that_leaves_most_open(
    draft_json: Json, draft_tensors: Tensors, target: TargetConfig, write_draft: Writer
) -> None:
    """SafeAILab's form: no head_dim, no RoPE, no auxiliary ids."""
    del draft_json["draft_vocab_size"]
    config = read_draft_config(write_draft(draft_json, draft_tensors), target)
    assert config == DraftConfig(
        hidden_size=32,
        intermediate_size=40,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        vocab_size=64,
        draft_vocab_size=16,
        rms_norm_eps=1e-5,
        rope_theta=10000.0,
        rope_scaling=None,
        max_position_embeddings=2048,
        target_hidden_size=32,
        num_aux=3,
        aux_layers=(2, 4, 5),
        norm_before_residual=False,
        sources={
            "aux_layers": "default",
            "head_dim": "weights",
            "draft_vocab_size": "weights",
            "rope_theta": "default",
            "norm_before_residual": "default",
        },
    )
    assert DraftConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


def test_rope_theta_is_found_in_both_spellings(draft_json: Json, target: TargetConfig) -> None:
    for spelled in ({"rope_theta": 5e5}, {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}):
        config = draft_config_from_json(draft_json | spelled, target)
        assert (config.rope_theta, config.rope_scaling, config.sources["rope_theta"]) == (5e5, None, "config")


def test_an_explicit_head_dim_is_not_hidden_size_over_heads(
    draft_json: Json, draft_tensors: Tensors, target: TargetConfig, write_draft: Writer
) -> None:
    draft_json["head_dim"] = 16
    config = draft_config_from_json(draft_json, target)
    shapes = draft_shapes(config)
    assert shapes["midlayer.self_attn.q_proj.weight"] == (64, 64)
    assert shapes["midlayer.self_attn.o_proj.weight"] == (32, 64)
    with pytest.raises(ConfigError, match=r"q_proj.weight of the draft checkpoint has the wrong shape: expected"):
        read_draft_config(write_draft(draft_json, draft_tensors), target)


def test_a_draft_keeps_its_own_embedding(
    draft_json: Json, draft_tensors: Tensors, target: TargetConfig, write_draft: Writer
) -> None:
    draft_tensors["embed_tokens.weight"] = torch.rand(64, 32)
    source = write_draft(draft_json, draft_tensors)
    weights = load_draft_weights(source, read_draft_config(source, target), target, torch.bfloat16)
    assert torch.equal(weights["embed_tokens.weight"], draft_tensors["embed_tokens.weight"].bfloat16())
    assert weights["fc.weight"].dtype == torch.bfloat16
    assert weights["d2t"].dtype == torch.int64


# Auxiliary layers


@pytest.mark.parametrize("nested", [False, True])
def test_auxiliary_ids_are_read_at_either_place(nested: bool, draft_json: Json, target: TargetConfig) -> None:
    ids = {"eagle_aux_hidden_state_layer_ids": [2, 4, 8]}
    draft_json |= {"eagle_config": ids} if nested else ids
    config = draft_config_from_json(draft_json, target)
    assert (config.aux_layers, config.num_aux, config.sources["aux_layers"]) == ((2, 4, 8), 3, "config")


def test_an_override_comes_before_the_config(draft_json: Json, target: TargetConfig) -> None:
    draft_json["eagle_aux_hidden_state_layer_ids"] = [2, 4, 8]
    config = draft_config_from_json(draft_json, target, aux_layers=[0, 1])
    assert (config.aux_layers, config.num_aux, config.sources["aux_layers"]) == ((0, 1), 2, "override")


def test_ids_that_begin_with_1_are_refused_until_their_meaning_is_stated(
    draft_json: Json, target: TargetConfig
) -> None:
    draft_json["eagle_aux_hidden_state_layer_ids"] = [1, 3, 4]
    with pytest.raises(ConfigError) as caught:
        draft_config_from_json(draft_json, target)
    assert caught.value.sentence() == (
        "eagle_aux_hidden_state_layer_ids of draft_config begins with 1, which can mean a layer's input or "
        "output: "
        "found [1, 3, 4]."
    )
    assert caught.value.repair == (
        'add "aux_layers": [2, 4, 5] if the ids mean outputs (SpecForge), or "aux_layers": [1, 3, 4] if '
        "they mean "
        "inputs (vLLM)"
    )
    assert draft_config_from_json(draft_json | {"aux_layers": [2, 4, 5]}, target).aux_layers == (2, 4, 5)


@pytest.mark.parametrize("ids", [[2, 4, 9], [2, 4, 4], [5, 2, 4], []])
def test_ids_outside_the_target_repeated_or_unsorted_are_refused(
    ids: list[int], draft_json: Json, target: TargetConfig
) -> None:
    draft_json["eagle_aux_hidden_state_layer_ids"] = ids
    assert sentence_of(draft_json, target) == (
        "the auxiliary layers of draft_config do not fit a target of 8 layers: expected different ascending "
        "positions "
        f"from 0 to 8, found {ids}."
    )


@pytest.mark.parametrize(("layers", "default"), [(4, [2, 2, 1]), (6, [2, 3, 3])])
def test_the_default_ids_are_refused_for_a_target_too_small_for_them(
    layers: int, default: list[int], draft_json: Json, target_json: Json
) -> None:
    small = target_config_from_json(target_json | {"num_hidden_layers": layers})
    assert sentence_of(draft_json, small) == (
        f"the default auxiliary layers do not fit a target of {layers} layers: expected different ascending "
        f"positions "
        f"from 0 to {layers}, found {default}."
    )


def test_an_fc_for_another_number_of_states_is_refused(
    draft_json: Json, draft_tensors: Tensors, target: TargetConfig, write_draft: Writer
) -> None:
    draft_tensors["fc.weight"] = torch.zeros(32, 4 * 32)
    with pytest.raises(ConfigError) as caught:
        read_draft_config(write_draft(draft_json, draft_tensors), target)
    assert caught.value.sentence() == (
        "fc.weight of the draft takes 4 auxiliary states, and its config names 3: expected fc.weight of "
        "width 96, "
        "found 128."
    )


# What is not supported yet


@pytest.mark.parametrize(
    ("extra", "what"),
    [
        ({"num_hidden_layers": 2}, "draft_config asks for a draft of several layers (num_hidden_layers: 2)"),
        ({"speculators_model_type": "eagle3"}, "the speculators format (speculators_model_type: 'eagle3')"),
        ({"fc_norm": True}, "a norm on each auxiliary state (fc_norm: True)"),
        ({"norm_before_fc": True}, "a norm before fc (norm_before_fc: True)"),
        ({"norm_output": True}, "a recurrent state after the final norm (norm_output: True)"),
        (
            {"eagle_config": {"norm_before_fc": True}},
            "eagle_config of draft_config asks for a norm before fc",
        ),
        ({"eagle_config": {"use_aux_hidden_state": False}}, "a draft on the final hidden state, without fc"),
        ({"eagle_config": {"brand_new": 1}}, "something unknown (brand_new)"),
        ({"attention_bias": True}, "biases in the attention (attention_bias: True)"),
        ({"qkv_bias": True}, "biases in the attention (qkv_bias: True)"),
        ({"mlp_bias": True}, "biases in the MLP (mlp_bias: True)"),
        ({"bias": True}, "a bias in fc (bias: True)"),
        ({"sliding_window": 4096}, "draft_config asks for a sliding window"),
        ({"layer_types": ["sliding_attention"]}, "draft_config asks for a sliding window"),
        ({"quantization_config": {"bits": 4}}, "a quantised draft (quantization_config: {'bits': 4})"),
        ({"logit_scale": 0.5}, "scaled draft logits (logit_scale: 0.5)"),
        ({"mask_token_id": 5}, "parallel drafting (P-EAGLE) (mask_token_id: 5)"),
        ({"hidden_act": "gelu"}, "another activation (hidden_act: 'gelu')"),
        ({"model_type": "qwen3"}, "a draft layer of the family 'qwen3'"),
    ],
)
def test_an_unsupported_config_is_refused_by_name(
    extra: Json, what: str, draft_json: Json, target: TargetConfig
) -> None:
    found = sentence_of(draft_json | extra, target)
    assert what in found
    assert found.endswith("which is not supported yet.")


def test_neutral_values_of_those_keys_are_accepted(draft_json: Json, target: TargetConfig) -> None:
    neutral = {
        "attention_bias": False,
        "sliding_window": None,
        "norm_output": False,
        "tie_word_embeddings": True,
        "eagle_config": {"use_aux_hidden_state": True, "parallel_draft_step": 1},
    }
    assert draft_config_from_json(draft_json | neutral, target) == draft_config_from_json(draft_json, target)


@pytest.mark.parametrize("kind", ["linear", "dynamic", "yarn", "llama3"])
@pytest.mark.parametrize("key", ["type", "rope_type"])
def test_rope_scaling_is_refused_by_name(kind: str, key: str, draft_json: Json, target: TargetConfig) -> None:
    assert sentence_of(draft_json | {"rope_scaling": {key: kind, "factor": 2.0}}, target) == (
        f"rope type '{kind}' of draft_config is not supported yet: expected default, found {kind}."
    )


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("layers.1.mlp.up_proj.weight", "a draft of several layers"),
        ("fc_norm.0.weight", "a norm on each auxiliary state"),
        ("input_norm.weight", "a norm before fc"),
        ("midlayer.self_attn.q_norm.weight", "norms on queries and keys"),
        ("midlayer.self_attn.q_proj.bias", "biases"),
        ("fc.bias", "biases"),
        ("mask_hidden", "parallel drafting (P-EAGLE)"),
        ("midlayer.self_attn.kv_a_proj_with_mqa.weight", "latent attention (MLA)"),
        ("midlayer.mlp.up_proj.weight_scale", "a quantised draft"),
    ],
)
def test_an_unsupported_tensor_is_refused_by_name(
    name: str, what: str, draft_json: Json, draft_tensors: Tensors, target: TargetConfig, write_draft: Writer
) -> None:
    draft_tensors[name] = torch.zeros(1)
    with pytest.raises(ConfigError) as caught:
        read_draft_config(write_draft(draft_json, draft_tensors), target)
    assert caught.value.sentence() == (f"the draft checkpoint asks for {what} ({name}), which is not supported yet.")


def test_an_eagle_1_checkpoint_is_refused_as_what_it_is(
    draft_json: Json, target: TargetConfig, write_draft: Writer
) -> None:
    tensors = {"fc.weight": torch.zeros(32, 64), "layers.0.self_attn.q_proj.weight": torch.zeros(32, 32)}
    with pytest.raises(ConfigError, match="asks for EAGLE-1 or EAGLE-2"):
        read_draft_config(write_draft(draft_json, tensors), target)


# What does not fit


def test_any_missing_tensor_is_named(
    draft_json: Json, draft_tensors: Tensors, target: TargetConfig, write_draft: Writer
) -> None:
    needed = list(draft_shapes(draft_config_from_json(draft_json, target)))
    assert len(needed) == 13
    for name in needed:
        rest = {other: tensor for other, tensor in draft_tensors.items() if other != name}
        with pytest.raises(ConfigError) as caught:
            read_draft_config(write_draft(draft_json | {"head_dim": 8}, rest), target)
        assert caught.value.sentence() == f"the draft checkpoint lacks {name}."


def test_an_unknown_tensor_is_named(
    draft_json: Json, draft_tensors: Tensors, target: TargetConfig, write_draft: Writer
) -> None:
    draft_tensors["midlayer.surprise.weight"] = torch.zeros(1)
    with pytest.raises(ConfigError) as caught:
        read_draft_config(write_draft(draft_json, draft_tensors), target)
    assert caught.value.sentence() == (
        "the draft checkpoint holds tensors that its architecture lacks, midlayer.surprise.weight."
    )


def test_a_reduced_vocabulary_without_a_map_is_refused_when_the_config_is_read(
    draft_json: Json, draft_tensors: Tensors, target: TargetConfig, write_draft: Writer
) -> None:
    del draft_tensors["d2t"], draft_tensors["t2d"]
    with pytest.raises(ConfigError) as caught:
        read_draft_config(write_draft(draft_json, draft_tensors), target)
    assert caught.value.sentence() == (
        "the draft has a reduced vocabulary and no map to the target's: expected d2t with 16 offsets, "
        "found neither d2t nor t2d."
    )


@pytest.mark.parametrize(
    ("extra", "sentence"),
    [
        (
            {"vocab_size": 63},
            "vocab_size of the draft's draft_config is not the target's: expected 64, found 63.",
        ),
        (
            {"target_hidden_size": 64},
            "target_hidden_size of the draft's draft_config is not the target's: expected 32, found 64.",
        ),
        (
            {"draft_vocab_size": 65},
            "draft_vocab_size of draft_config is larger than the target's vocabulary: expected at most 64, found 65.",
        ),
        (
            {"hidden_size": "32"},
            "hidden_size of draft_config is wrong: expected an integer of at least 1, found '32'.",
        ),
        ({"intermediate_size": None}, "draft_config has no intermediate_size."),
    ],
)
def test_a_draft_of_another_target_is_refused(
    extra: Json, sentence: str, draft_json: Json, target: TargetConfig
) -> None:
    assert sentence_of(draft_json | extra, target) == sentence


def test_a_draft_of_another_width_needs_its_own_embedding(
    draft_json: Json, draft_tensors: Tensors, target_json: Json, write_draft: Writer
) -> None:
    wide = target_config_from_json(target_json | {"hidden_size": 48})
    draft_tensors["fc.weight"] = torch.zeros(32, 3 * 48)
    source = write_draft(draft_json, draft_tensors)
    with pytest.raises(ConfigError) as caught:
        read_draft_config(source, wide)
    assert caught.value.sentence() == (
        "the draft is not as wide as the target and has no embed_tokens.weight of its own: "
        "expected embed_tokens.weight [64, 32]."
    )
    draft_tensors["embed_tokens.weight"] = torch.zeros(64, 32)
    assert read_draft_config(write_draft(draft_json, draft_tensors), wide).target_hidden_size == 48


def test_random_weights_of_a_draft_of_another_width_have_an_embedding(
    draft_json: Json, target: TargetConfig, target_json: Json
) -> None:
    wide = target_config_from_json(target_json | {"hidden_size": 48})
    narrow = random_draft_weights(draft_config_from_json(draft_json, wide), 0, torch.float32)
    assert narrow["embed_tokens.weight"].shape == (64, 32)
    same = random_draft_weights(draft_config_from_json(draft_json, target), 0, torch.float32)
    assert "embed_tokens.weight" not in same


def test_an_embedding_of_nan_is_refused(
    draft_json: Json, draft_tensors: Tensors, target: TargetConfig, write_draft: Writer
) -> None:
    draft_tensors["embed_tokens.weight"] = torch.full((64, 32), float("nan"))
    source = write_draft(draft_json, draft_tensors)
    with pytest.raises(ConfigError) as caught:
        load_draft_weights(source, read_draft_config(source, target), target, torch.float32)
    assert caught.value.sentence() == ("embed_tokens.weight of the draft checkpoint holds values that are not finite.")


def test_a_draft_in_gguf_is_refused(target: TargetConfig) -> None:
    with pytest.raises(ConfigError, match="a draft in GGUF is not supported yet"):
        read_draft_config(ModelSource("d.gguf", "gguf", Path("d.gguf")), target)


def test_a_pickle_that_is_more_than_tensors_is_never_run(
    draft_json: Json, target: TargetConfig, write_draft: Writer
) -> None:
    class Payload:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (exec, ("raise SystemError('the payload ran')",))

    source = write_draft(draft_json, {"fc.weight": Payload()}, "bin")
    with pytest.raises(ConfigError, match=r"the weights in pytorch_model.bin cannot be read"):
        read_draft_config(source, target)
