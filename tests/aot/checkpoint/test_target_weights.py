"""A target's tensors are read from every published form, and must be exactly those of its config."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import gguf
import pytest
import torch
from safetensors.torch import save_file

from aot.checkpoint.random_weights import random_target_weights
from aot.checkpoint.source import ModelSource
from aot.checkpoint.target import TargetConfig, load_target_weights, read_target_headers, target_shapes
from runtime.bundle.errors import ConfigError, HostError

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


@pytest.mark.parametrize("form", ["safetensors", "bin"])
def test_C3_an_index_may_name_what_nobody_reads_and_no_shard_has(
    form: str, tensors: Tensors, source: ModelSource, target: TargetConfig
) -> None:
    """Exporters drop rotary buffers and a tied head, and keep their entries in the index."""
    tied = dataclasses.replace(target, tie_word_embeddings=True)
    write_shards(source.path, tensors, form)
    (index,) = source.path.glob("*.index.json")
    weight_map = json.loads(index.read_text())["weight_map"]
    shard = weight_map["lm_head.weight"]
    buffer = "model.layers.0.self_attn.rotary_emb.inv_freq"
    held = {name: tensor for name, tensor in tensors.items() if weight_map[name] == shard and name != "lm_head.weight"}
    save_file(held, source.path / shard) if form == "safetensors" else torch.save(held, source.path / shard)
    index.write_text(json.dumps({"weight_map": weight_map | {buffer: shard}}))

    assert set(read_target_headers(source, tied).shapes) == set(target_shapes(tied))
    assert set(load_target_weights(source, tied, torch.float32)) == set(target_shapes(tied))
    assert "lm_head.weight" in refusal(source, target)
    # One that is there lies where the index says, read or not
    other = next(name for name in weight_map.values() if name != shard)
    index.write_text(json.dumps({"weight_map": weight_map | {buffer: other}}))
    path = source.path / shard
    held[buffer] = torch.zeros(4)
    save_file(held, path) if form == "safetensors" else torch.save(held, path)
    assert buffer in refusal(source, tied)


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
    assert refusal(source, target) == ("the target checkpoint holds tensors that its architecture lacks, model.extra.")
    save_file(tensors | {"model.norm.weight": norm[:5].clone()}, path)
    assert refusal(source, target) == (
        "model.norm.weight of the target checkpoint has the wrong shape: expected [32], found [5]."
    )
    save_file({"model.norm.weight": norm}, path)
    assert refusal(source, target) == (
        "the target checkpoint lacks lm_head.weight, model.embed_tokens.weight, "
        "model.layers.0.input_layernorm.weight, model.layers.0.mlp.down_proj.weight and 70 more."
    )


def test_a_folder_without_weights_and_a_damaged_file_are_refused(source: ModelSource, target: TargetConfig) -> None:
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
def test_an_index_cannot_lead_elsewhere(shard: str, what: str, source: ModelSource, target: TargetConfig) -> None:
    index = {"weight_map": {"model.norm.weight": shard}}
    (source.path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert refusal(source, target) == f"model.safetensors.index.json {what}"


def test_random_weights_are_those_of_their_seed(target: TargetConfig) -> None:
    first, again = (random_target_weights(target, 7, torch.bfloat16) for _ in range(2))
    other = random_target_weights(target, 8, torch.bfloat16)
    assert {name: tuple(tensor.shape) for name, tensor in first.items()} == target_shapes(target)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not any(torch.equal(first[name], other[name]) for name in first)


# GGUF


def as_llama_cpp_stores(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows of each head interleaved: row 0 of its first half, row 0 of its second, row 1 of its first, ..."""
    rows = weight.shape[0] // heads
    order = [head * rows + part * rows // 2 + i for head in range(heads) for i in range(rows // 2) for part in (0, 1)]
    return weight[order]


@pytest.fixture
def gguf_source(tensors: Tensors, target: TargetConfig, tmp_path: Path) -> ModelSource:
    """The toy target as llama.cpp stores it: norms in float32, linears in float16."""
    stored = {
        "token_embd.weight": tensors["model.embed_tokens.weight"].half(),
        "output_norm.weight": tensors["model.norm.weight"],
        "output.weight": tensors["lm_head.weight"].half(),
    }
    for layer in range(target.num_layers):
        ours, theirs = f"model.layers.{layer}.", f"blk.{layer}."
        stored |= {
            theirs + "attn_norm.weight": tensors[ours + "input_layernorm.weight"],
            theirs + "ffn_norm.weight": tensors[ours + "post_attention_layernorm.weight"],
            theirs + "attn_q.weight": as_llama_cpp_stores(tensors[ours + "self_attn.q_proj.weight"], 4).half(),
            theirs + "attn_k.weight": as_llama_cpp_stores(tensors[ours + "self_attn.k_proj.weight"], 2).half(),
            theirs + "attn_v.weight": tensors[ours + "self_attn.v_proj.weight"].half(),
            theirs + "attn_output.weight": tensors[ours + "self_attn.o_proj.weight"].half(),
            theirs + "ffn_gate.weight": tensors[ours + "mlp.gate_proj.weight"].half(),
            theirs + "ffn_up.weight": tensors[ours + "mlp.up_proj.weight"].half(),
            theirs + "ffn_down.weight": tensors[ours + "mlp.down_proj.weight"].half(),
        }
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    for name, tensor in stored.items():
        writer.add_tensor(name, tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return ModelSource("model.gguf", "gguf", path)


def test_a_gguf_file_gives_hugging_face_names_and_row_order(
    gguf_source: ModelSource, tensors: Tensors, target: TargetConfig
) -> None:
    loaded = load_target_weights(gguf_source, target, torch.float32)
    assert list(loaded) == list(target_shapes(target))
    for name, tensor in tensors.items():
        assert torch.equal(loaded[name], tensor if tensor.dim() == 1 else tensor.half().float()), name


def test_a_gguf_tensor_without_a_counterpart_is_named(gguf_source: ModelSource, target: TargetConfig) -> None:
    shallower = dataclasses.replace(target, num_layers=7)
    assert refusal(gguf_source, shallower).startswith(
        "the target checkpoint holds tensors that its architecture lacks, model.layers.7.input_layernorm.weight, "
    )


def test_a_gguf_file_that_does_not_fit_its_config_is_told_by_its_header(
    gguf_source: ModelSource, target: TargetConfig
) -> None:
    assert read_target_headers(gguf_source, target).shapes == target_shapes(target)
    with pytest.raises(ConfigError, match=r"lacks model\.layers\.8\.input_layernorm\.weight"):
        read_target_headers(gguf_source, dataclasses.replace(target, num_layers=9))


def test_a_missing_gguf_package_says_what_to_install(
    gguf_source: ModelSource, target: TargetConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(HostError) as caught:
        load_target_weights(gguf_source, target, torch.float32)
    assert caught.value.sentence() == "reading model.gguf needs the gguf package."
    assert caught.value.repair == "pip install 'eagle3-aot[demo]', or pip install gguf"
