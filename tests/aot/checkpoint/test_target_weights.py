"""A target's tensors are read from every published form, and must be exactly those of its config."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from aot.checkpoint.random_weights import random_target_weights
from aot.checkpoint.source import ModelSource
from aot.checkpoint.target import TargetConfig, load_target_weights, target_shapes
from runtime.bundle.errors import ConfigError

Tensors = dict[str, torch.Tensor]


@pytest.fixture
def tensors(target: TargetConfig) -> Tensors:
    return random_target_weights(target, 0, torch.float32)


@pytest.fixture
def source(tmp_path: Path) -> ModelSource:
    return ModelSource("model", "folder", tmp_path)


def write_shards(folder: Path, tensors: Tensors, form: str) -> None:
    """Two shards and their index, as transformers writes large models."""
    names = sorted(tensors)
    suffix, index = {
        "safetensors": (".safetensors", "model.safetensors.index.json"),
        "bin": (".bin", "pytorch_model.bin.index.json"),
    }[form]
    weight_map = {name: f"part-{position % 2}{suffix}" for position, name in enumerate(names)}
    for shard in set(weight_map.values()):
        held = {name: tensors[name] for name in names if weight_map[name] == shard}
        save_file(held, folder / shard) if form == "safetensors" else torch.save(held, folder / shard)
    (folder / index).write_text(json.dumps({"weight_map": weight_map}))


@pytest.mark.parametrize("form", ["model.safetensors", "pytorch_model.bin", "safetensors", "bin"])
def test_every_form_of_a_checkpoint_loads(
    form: str, tensors: Tensors, source: ModelSource, target: TargetConfig
) -> None:
    if form == "model.safetensors":
        save_file(tensors, source.path / form)
    elif form == "pytorch_model.bin":
        torch.save(tensors, source.path / form)
    else:
        write_shards(source.path, tensors, form)
    loaded = load_target_weights(source, target, torch.float32)
    assert list(loaded) == list(target_shapes(target))
    assert all(torch.equal(loaded[name], tensors[name]) for name in tensors)


def test_weights_are_cast_and_safetensors_come_before_bin(
    tensors: Tensors, source: ModelSource, target: TargetConfig
) -> None:
    save_file(tensors, source.path / "model.safetensors")
    torch.save({}, source.path / "pytorch_model.bin")
    loaded = load_target_weights(source, target, torch.bfloat16)
    assert all(torch.equal(loaded[name], tensors[name].bfloat16()) for name in tensors)


def test_rotary_buffers_and_a_tied_head_are_passed_over(
    tensors: Tensors, source: ModelSource, target: TargetConfig
) -> None:
    tied = dataclasses.replace(target, tie_word_embeddings=True)
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.zeros(4)
    save_file(tensors, source.path / "model.safetensors")
    loaded = load_target_weights(source, tied, torch.float32)
    assert "lm_head.weight" not in loaded
    assert set(loaded) == set(target_shapes(tied))


def refusal(source: ModelSource, target: TargetConfig) -> str:
    with pytest.raises(ConfigError) as caught:
        load_target_weights(source, target, torch.float32)
    assert caught.value.repair
    return caught.value.sentence()


def test_missing_unknown_and_misshapen_tensors_are_named(
    tensors: Tensors, source: ModelSource, target: TargetConfig
) -> None:
    path = source.path / "model.safetensors"
    norm = tensors.pop("model.norm.weight")
    save_file(tensors, path)
    assert refusal(source, target) == "the target checkpoint lacks model.norm.weight."
    save_file(tensors | {"model.norm.weight": norm, "model.extra": norm.clone()}, path)
    assert refusal(source, target) == (
        "the target checkpoint holds tensors that its architecture lacks, model.extra."
    )
    save_file(tensors | {"model.norm.weight": norm[:5].clone()}, path)
    assert refusal(source, target) == (
        "model.norm.weight of the target checkpoint has the wrong shape: expected [32], found [5]."
    )
    save_file({"model.norm.weight": norm}, path)
    assert refusal(source, target) == (
        "the target checkpoint lacks lm_head.weight, model.embed_tokens.weight, "
        "model.layers.0.input_layernorm.weight, model.layers.0.mlp.down_proj.weight and 70 more."
    )


def test_a_folder_without_weights_and_a_damaged_file_are_refused(
    source: ModelSource, target: TargetConfig
) -> None:
    assert "holds no weights" in refusal(source, target)
    (source.path / "model.safetensors").write_bytes(b"\xff" * 40)
    assert refusal(source, target).startswith("the weights in model.safetensors cannot be read: found ")


@pytest.mark.parametrize(
    ("shard", "what"),
    [
        ("../outside.safetensors", "names a shard outside its folder: found ../outside.safetensors."),
        ("shard.pkl", "names a shard outside its folder: found shard.pkl."),
        ("gone.safetensors", "names a shard that is missing: found gone.safetensors."),
    ],
)
def test_an_index_cannot_lead_elsewhere(
    shard: str, what: str, source: ModelSource, target: TargetConfig
) -> None:
    index = {"weight_map": {"model.norm.weight": shard}}
    (source.path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert refusal(source, target) == f"model.safetensors.index.json {what}"


def test_random_weights_are_those_of_their_seed(target: TargetConfig) -> None:
    first, again = (random_target_weights(target, 7, torch.bfloat16) for _ in range(2))
    other = random_target_weights(target, 8, torch.bfloat16)
    assert {name: tuple(tensor.shape) for name, tensor in first.items()} == target_shapes(target)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not any(torch.equal(first[name], other[name]) for name in first)
