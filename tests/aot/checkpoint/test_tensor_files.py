"""The index of a checkpoint is followed, headers may be anybody's, and values are finite in the build's dtype."""

from __future__ import annotations

import json
import struct
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from aot.checkpoint.draft import load_draft_weights, read_draft_config
from aot.checkpoint.headers import read_headers
from aot.checkpoint.random_weights import random_target_weights
from aot.checkpoint.source import ModelSource
from aot.checkpoint.target import TargetConfig, load_target_weights, read_target_headers
from aot.checkpoint.tensors import cast, cast_note, read_tensors
from runtime.bundle.errors import ConfigError

Json = dict[str, Any]
Tensors = dict[str, torch.Tensor]
INDEX = {"safetensors": "model.safetensors.index.json", "bin": "pytorch_model.bin.index.json"}


def write_sharded(folder: Path, shards: dict[str, Tensors], weight_map: dict[str, str], form: str) -> None:
    """Shards `part-NAME` and an index over them."""
    for name, held in shards.items():
        path = folder / f"part-{name}.{form}"
        save_file(held, path) if form == "safetensors" else torch.save(held, path)
    placed = {tensor: f"part-{name}.{form}" for tensor, name in weight_map.items()}
    (folder / INDEX[form]).write_text(json.dumps({"weight_map": placed}))


def refusal(folder: Path) -> str:
    for read in (read_headers, read_tensors):
        with pytest.raises(ConfigError) as caught:
            read(folder)
        assert caught.value.repair
    return caught.value.sentence()


@pytest.mark.parametrize("form", ["safetensors", "bin"])
@pytest.mark.parametrize("named", ["a", "b"])
def test_C3_of_two_shards_the_one_that_the_index_names_is_read_and_it_is_said(
    named: str, form: str, tmp_path: Path
) -> None:
    shards = {"a": {"fc.weight": torch.zeros(2), "x": torch.ones(1)}, "b": {"fc.weight": torch.ones(2)}}
    if named == "a":
        shards["b"]["y"] = torch.ones(1)
    placed = {"fc.weight": named, "x": "a"} | ({"y": "b"} if named == "a" else {})
    write_sharded(tmp_path, shards, placed, form)
    assert torch.equal(read_tensors(tmp_path)["fc.weight"], shards[named]["fc.weight"])
    (note,) = read_headers(tmp_path).notes
    assert "fc.weight" in note


@pytest.mark.parametrize("form", ["safetensors", "bin"])
def test_C3_an_index_that_misplaces_or_omits_a_tensor_is_refused_by_its_name(form: str, tmp_path: Path) -> None:
    shards = {"a": {"fc.weight": torch.zeros(2)}, "b": {"norm.weight": torch.ones(2)}}
    write_sharded(tmp_path, shards, {"fc.weight": "b", "norm.weight": "b"}, form)
    assert f"names part-b.{form} for fc.weight" in refusal(tmp_path)
    write_sharded(tmp_path, shards, {"fc.weight": "a", "norm.weight": "b", "gone.weight": "a"}, form)
    assert "gone.weight" in refusal(tmp_path)
    shards["a"]["extra.weight"] = torch.zeros(1)
    write_sharded(tmp_path, shards, {"fc.weight": "a", "norm.weight": "b"}, form)
    assert "leaves out extra.weight" in refusal(tmp_path)


def test_C3_one_file_beside_an_index_is_read_and_it_is_said(tmp_path: Path) -> None:
    write_sharded(tmp_path, {"a": {"fc.weight": torch.zeros(2)}}, {"fc.weight": "a"}, "safetensors")
    save_file({"fc.weight": torch.ones(2)}, tmp_path / "model.safetensors")
    assert read_tensors(tmp_path)["fc.weight"].tolist() == [1.0, 1.0]
    assert len(read_headers(tmp_path).notes) == 1


def header(content: object) -> bytes:
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    return struct.pack("<Q", len(text)) + text


ONE = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00" * 7,
        struct.pack("<Q", 2**63) + b"{}",
        header(b"{"),
        header(b"\xff\xfe"),
        header([]),
        header({"a": 1}),
        header({"a": ONE | {"dtype": "F9"}}) + b"0000",
        header({"a": ONE | {"shape": [10**30]}}) + b"0000",
        header({"a": ONE | {"shape": [-1]}}) + b"0000",
        header({"a": ONE | {"shape": [2**62, 8]}}) + b"0000",
        header({"a": ONE | {"data_offsets": [4, 0]}}) + b"0000",
        header({"a": ONE, "b": ONE}) + b"0000",
        header({"a": ONE}),
        header(b'{"a":' + b"[" * 5000),
        header({"__metadata__": {"x": 1}, "a": ONE}) + b"0000",
    ],
)
def test_B14_a_broken_safetensors_header_is_one_sentence(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    assert "model.safetensors cannot be read" in refusal(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        {1: torch.zeros(2)},
        {"fc.weight": {"nested": torch.zeros(2)}},
        {"fc.weight": [1.0]},
        [torch.zeros(2)],
        torch.zeros(2),
        {"fc.weight": torch.eye(2).to_sparse()},
        {"fc.weight": torch.zeros(2, device="meta")},
        OrderedDict({None: torch.zeros(2)}),
    ],
)
def test_B10_a_bin_file_of_something_else_is_one_sentence(content: object, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "pytorch_model.bin")
    assert "pytorch_model.bin" in refusal(tmp_path)


# Values


@pytest.mark.parametrize(
    ("value", "stored", "dtype", "finite"),
    [
        (float("nan"), torch.bfloat16, torch.bfloat16, False),
        (float("inf"), torch.float32, torch.float32, False),
        # Finite as it is stored, infinite in the build's dtype, and the other way round
        (1e5, torch.bfloat16, torch.float16, False),
        (1e5, torch.bfloat16, torch.bfloat16, True),
        (3.38e38, torch.float32, torch.bfloat16, True),
        (3.4e38, torch.float32, torch.bfloat16, False),
        (1e300, torch.float64, torch.float32, False),
    ],
)
def test_N1_a_target_s_weights_are_finite_after_the_cast_or_refused(
    value: float, stored: torch.dtype, dtype: torch.dtype, finite: bool, target: TargetConfig, tmp_path: Path
) -> None:
    source, name = ModelSource("model", "folder", tmp_path), "model.layers.3.mlp.down_proj.weight"
    tensors = random_target_weights(target, 0, stored)
    tensors[name][0, :2] = value
    save_file(tensors, tmp_path / "model.safetensors")
    if finite:
        assert load_target_weights(source, target, dtype)[name].dtype == dtype
        return
    with pytest.raises(ConfigError) as caught:
        load_target_weights(source, target, dtype)
    sentence = caught.value.sentence()
    assert sentence.startswith(f"{name} of the target checkpoint holds values that are not finite")
    assert f"found 2 of {tensors[name].numel()}" in sentence
    assert str(dtype).removeprefix("torch.") in sentence
    # What was lost in the cast alone is mended by another dtype
    assert ("set dtype" in caught.value.repair) == (1e5 <= value < 1e300)


def test_N1_a_draft_s_weights_are_finite_after_the_cast_or_refused(
    draft_json: Json, draft_tensors: Tensors, target: TargetConfig, write_draft: Any
) -> None:
    draft_tensors["midlayer.mlp.up_proj.weight"][3, 3] = 1e5
    source = write_draft(draft_json, draft_tensors)
    config = read_draft_config(source, target)
    load_draft_weights(source, config, target, torch.bfloat16)
    with pytest.raises(ConfigError, match=r"midlayer.mlp.up_proj.weight of the draft .* found 1 of 1280"):
        load_draft_weights(source, config, target, torch.float16)


@pytest.mark.parametrize(
    ("stored", "dtype", "said"),
    [
        ({"float16"}, "bfloat16", True),
        ({"float32"}, "bfloat16", True),
        ({"bfloat16"}, "float16", True),
        ({"bfloat16", "float32"}, "float16", True),
        ({"bfloat16"}, "bfloat16", False),
        ({"float16", "bfloat16"}, "float32", False),
        (set(), "bfloat16", False),
    ],
)
def test_C7_a_cast_that_loses_something_is_said(stored: set[str], dtype: str, said: bool) -> None:
    note = cast_note(frozenset(stored), dtype, what="draft")
    assert bool(note) == said
    assert not said or (dtype in note and any(one in note for one in stored))


def test_a_target_s_shapes_are_checked_before_its_data_is_read(target: TargetConfig, tmp_path: Path) -> None:
    source, tensors = ModelSource("model", "folder", tmp_path), random_target_weights(target, 0, torch.bfloat16)
    save_file(tensors, tmp_path / "model.safetensors")
    assert read_target_headers(source, target).floats == {"bfloat16"}
    del tensors["model.norm.weight"]
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ConfigError, match=r"lacks model\.norm\.weight"):
        read_target_headers(source, target)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("place", [0, 17, 1023, 4098])
def test_N1_one_value_anywhere_is_found(dtype: torch.dtype, value: float, place: int) -> None:
    tensor = torch.linspace(-1, 1, 4099).to(dtype)
    assert torch.equal(cast("x", tensor, dtype, what="draft"), tensor)
    tensor[place] = value
    with pytest.raises(ConfigError, match="found 1 of 4099"):
        cast("x", tensor, dtype, what="draft")
