"""A published draft is read in any of its spellings; what our graphs do not do is refused by name.

What each variant is read as: test_draft_facts.py. Auxiliary layers: test_aux_layers.py.
"""

from __future__ import annotations

import dataclasses
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
        sources=config.sources,
        form="safeailab",
        stored_dtype="float32",
        notes=("the draft's config names no auxiliary layers; taken by default: inputs of layers 2, 4, 5",),
    )
    assert {name for name, source in config.sources.items() if source == "config"} == {
        *("hidden_size", "intermediate_size", "num_heads", "num_kv_heads", "num_layers", "vocab_size"),
        *("rms_norm_eps", "form"),
    }
    assert {name for name, source in config.sources.items() if source == "weights"} == {
        *("head_dim", "draft_vocab_size", "num_aux", "stored_dtype", "own_embedding", "own_head", "feature_norm"),
        *("fc_bias", "qkv_bias", "o_bias", "mlp_bias", "qk_norm"),
    }
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


@pytest.mark.parametrize("wrong", [{"head_dim": 16}, {"num_key_value_heads": 1}, {"num_key_value_heads": 4}])
def test_heads_that_the_config_has_wrong_are_the_weights_with_a_note(
    wrong: Json, draft_json: Json, draft_tensors: Tensors, target: TargetConfig, write_draft: Writer
) -> None:
    """docs/drafts.md: sizes that a tensor's shape settles are the tensor's."""
    (key,) = wrong
    config = read_draft_config(write_draft({"head_dim": 8} | draft_json | wrong, draft_tensors), target)
    assert (config.num_heads, config.num_kv_heads, config.head_dim) == (4, 2, 8)
    assert [note.startswith(f"{key} of ") for note in config.notes].count(True) == 1


def test_a_wrong_number_of_query_heads_is_told_by_the_other_two(
    draft_json: Json, draft_tensors: Tensors, target: TargetConfig, write_draft: Writer
) -> None:
    wrong = draft_json | {"head_dim": 8, "num_attention_heads": 8}
    config = read_draft_config(write_draft(wrong, draft_tensors), target)
    assert (config.num_heads, config.num_kv_heads, config.head_dim) == (4, 2, 8)
    assert config.sources["num_heads"] == "weights"


def test_key_heads_that_the_config_leaves_out_are_counted(
    draft_json: Json, draft_tensors: Tensors, target: TargetConfig, write_draft: Writer
) -> None:
    del draft_json["num_key_value_heads"]
    config = read_draft_config(write_draft(draft_json, draft_tensors), target)
    assert (config.num_kv_heads, config.sources["num_kv_heads"]) == (2, "weights")


def test_heads_of_which_no_number_agrees_with_another_are_refused(
    draft_json: Json, draft_tensors: Tensors, target: TargetConfig, write_draft: Writer
) -> None:
    wrong = draft_json | {"head_dim": 16, "num_attention_heads": 8, "num_key_value_heads": 3}
    with pytest.raises(ConfigError, match=r"head_dim 16"):
        read_draft_config(write_draft(wrong, draft_tensors), target)


@pytest.mark.parametrize("said", [36, 40])
def test_C1_the_target_s_number_of_layers_in_a_draft_s_config_is_overruled(
    said: int, draft_json: Json, draft_tensors: Tensors, target: TargetConfig, write_draft: Writer
) -> None:
    """Published configs repeat num_hidden_layers of their target beside one midlayer."""
    config = read_draft_config(write_draft(draft_json | {"num_hidden_layers": said}, draft_tensors), target)
    assert (config.num_layers, config.sources["num_layers"]) == (1, "weights")
    assert any(note.startswith("num_hidden_layers of ") for note in config.notes)
    # Without weights there is nothing to count
    with pytest.raises(ConfigError, match="num_hidden_layers of draft_config is the target's"):
        draft_config_from_json(draft_json | {"num_hidden_layers": said}, target)


def test_C1_a_gap_between_layers_is_named(
    draft_json: Json, draft_tensors: Tensors, target: TargetConfig, write_draft: Writer
) -> None:
    third = {name.replace("midlayer.", "layers.2."): tensor.clone() for name, tensor in draft_tensors.items()}
    del third["layers.2.hidden_norm.weight"]
    gap = draft_tensors | {name: tensor for name, tensor in third.items() if name.startswith("layers.2.")}
    with pytest.raises(ConfigError, match=r"lacks the layer layers\.1"):
        read_draft_config(write_draft(draft_json, gap), target)


def test_a_draft_keeps_its_own_embedding(
    draft_json: Json, draft_tensors: Tensors, target: TargetConfig, write_draft: Writer
) -> None:
    draft_tensors["embed_tokens.weight"] = torch.rand(64, 32)
    source = write_draft(draft_json, draft_tensors)
    weights = load_draft_weights(source, read_draft_config(source, target), target, torch.bfloat16)
    assert torch.equal(weights["embed_tokens.weight"], draft_tensors["embed_tokens.weight"].bfloat16())
    assert weights["fc.weight"].dtype == torch.bfloat16
    assert weights["d2t"].dtype == torch.int64


# What is not supported yet


@pytest.mark.parametrize(
    ("extra", "what"),
    [
        ({"speculators_model_type": "peagle"}, "parallel drafting (P-EAGLE) (speculators_model_type: 'peagle')"),
        ({"speculators_model_type": "dflash"}, "another method than EAGLE3 (speculators_model_type: 'dflash')"),
        ({"eagle_config": {"brand_new": 1}}, "something unknown (brand_new)"),
        ({"eagle_config": {"use_last_layernorm": False}}, "a draft without its final norm (use_last_layernorm: False)"),
        ({"eagle_config": {"use_mtp_layernorm": True}}, "the MTP norms (use_mtp_layernorm: True)"),
        (
            {"eagle_config": {"use_input_layernorm_in_first_layer": False}},
            "a draft layer without its input norm (use_input_layernorm_in_first_layer: False)",
        ),
        ({"eagle_config": {"parallel_draft_step": 2}}, "parallel drafting (parallel_draft_step: 2)"),
        (
            {"eagle_config": {"use_aux_hidden_state": False, "norm_before_fc": True}},
            "a draft on the final hidden state with a norm of its own (norm_before_fc: True)",
        ),
        ({"quantization_config": {"bits": 4}}, "a quantised draft (quantization_config: {'bits': 4})"),
        ({"mask_token_id": 5}, "parallel drafting (P-EAGLE) (mask_token_id: 5)"),
        ({"kv_lora_rank": 512}, "latent attention (MLA) (kv_lora_rank: 512)"),
        ({"num_local_experts": 8}, "a draft of experts (num_local_experts: 8)"),
        ({"hidden_act": "gelu"}, "another activation (hidden_act: 'gelu')"),
        ({"model_type": "gpt2"}, "a draft layer of the family 'gpt2'"),
    ],
)
def test_an_unsupported_config_is_refused_by_name(
    extra: Json, what: str, draft_json: Json, target: TargetConfig
) -> None:
    """C4: a flag that nobody knows could cost all acceptance, so an unknown one is no warning but an error."""
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
    found, plain = (draft_config_from_json(draft_json | extra, target) for extra in (neutral, {}))
    assert dataclasses.replace(found, form=plain.form, sources=plain.sources) == plain


def test_a_model_that_is_no_draft_is_refused(draft_json: Json, target: TargetConfig) -> None:
    draft_json["architectures"] = ["Qwen3ForCausalLM"]
    assert sentence_of(draft_json, target) == (
        "the architecture in draft_config is not an EAGLE3 draft's: expected LlamaForCausalLMEagle3, Eagle3Speculator "
        "or another name with Eagle3 in it, or LlamaForCausalLM, found 'Qwen3ForCausalLM'."
    )


def test_an_unknown_rope_is_refused_with_the_known_ones(draft_json: Json, target: TargetConfig) -> None:
    """F6."""
    assert sentence_of(draft_json | {"rope_scaling": {"type": "mrope", "factor": 2.0}}, target) == (
        "rope type 'mrope' of draft_config is not supported yet: "
        "expected default or linear or dynamic or llama3 or yarn, found mrope."
    )


def test_a_quantised_export_is_told_by_its_second_file(
    draft_json: Json, draft_tensors: Tensors, target: TargetConfig, write_draft: Writer
) -> None:
    source = write_draft(draft_json, draft_tensors)
    (source.path / "hf_quant_config.json").write_text("{}")
    with pytest.raises(ConfigError, match="draft is a quantised draft, which is not supported yet: expected no"):
        read_draft_config(source, target)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("mask_hidden", "parallel drafting (P-EAGLE)"),
        ("parallel_draft_heads.0.medusa_layers.0.linear.weight", "parallel drafting"),
        ("midlayer.self_attn.kv_a_proj_with_mqa.weight", "latent attention (MLA)"),
        ("midlayer.mlp.up_proj.weight_scale", "a quantised draft"),
        ("midlayer.mlp.up_proj.qweight", "a quantised draft"),
        ("midlayer.mlp.experts.0.up_proj.weight", "a draft of experts"),
        ("layers.1.hidden_norm.weight", "further layers with a hidden_norm of their own, SGLang's form"),
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
    """B12. Only lm_head.weight may be missing: the target's stands for it."""
    needed = list(draft_shapes(draft_config_from_json(draft_json, target)))
    assert len(needed) == 13
    for name in needed[:-1]:
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
            "hidden_size of draft_config is wrong: expected an integer from 1 to 1048576, found '32'.",
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
    """B7: speculators fills a table with NaN to be replaced at load."""
    draft_tensors["embed_tokens.weight"] = torch.full((64, 32), float("nan"))
    source = write_draft(draft_json, draft_tensors)
    with pytest.raises(ConfigError) as caught:
        load_draft_weights(source, read_draft_config(source, target), target, torch.float32)
    assert caught.value.sentence() == (
        "embed_tokens.weight of the draft checkpoint holds values that are not finite: "
        "expected finite values in float32, found 2048 of 2048 in float32, stored as float32."
    )


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
