"""C4, C5: whatever a model's files call an end ends an answer, and where nothing does it is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aot.checkpoint.endings import eos_of_gguf, eos_of_tokenizer
from aot.checkpoint.gguf_config import config_from_gguf
from aot.checkpoint.gguf_header import GgufHeader
from aot.checkpoint.source import ModelSource
from aot.checkpoint.target import read_target_config, target_config_from_json
from runtime.bundle.errors import ConfigError

Json = dict[str, Any]
ADDED = {"added_tokens": [{"id": 1, "content": "<s>"}, {"id": 5, "content": "<end>"}], "model": {"vocab": {"plain": 7}}}


def write(folder: Path, **files: Json) -> ModelSource:
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return ModelSource("model", "folder", folder)


@pytest.mark.parametrize(
    ("config", "generation", "tokenizer", "ids"),
    [
        ({"eos_token_id": 2}, {"eos_token_id": [2, 3]}, {"eos_token": "<end>"}, (2, 3, 5)),
        ({"eos_token_id": 2}, {}, {"eos_token": {"content": "<end>"}}, (2, 5)),
        ({"eos_token_id": None}, {"eos_token_id": None}, {"eos_token": "<end>"}, (5,)),
        ({}, {"eos_token_id": [None]}, {"eos_token": "plain"}, (7,)),
        ({"eos_token_id": [5]}, {}, {"eos_token": "<end>"}, (5,)),
        ({}, {}, {"eos_token": "no token of the tokenizer"}, ()),
        ({}, {}, {"eos_token": None}, ()),
    ],
)
def test_C5_a_folder_s_endings_are_the_union_of_its_files(
    config: Json, generation: Json, tokenizer: Json, ids: tuple[int, ...], target_json: Json, tmp_path: Path
) -> None:
    del target_json["eos_token_id"]
    files = {"generation_config": generation, "tokenizer_config": tokenizer, "tokenizer": ADDED}
    assert read_target_config(write(tmp_path, config=target_json | config, **files)).eos_token_ids == ids


def test_C5_an_eos_token_that_the_model_cannot_give_is_left_out(target_json: Json, tmp_path: Path) -> None:
    far = {"added_tokens": [{"id": 64, "content": "<end>"}]}
    source = write(tmp_path, config=target_json, tokenizer_config={"eos_token": "<end>"}, tokenizer=far)
    assert read_target_config(source).eos_token_ids == (2,)


def test_C5_a_slow_tokenizer_s_files_name_the_id_too(tmp_path: Path) -> None:
    write(tmp_path, tokenizer_config={"eos_token": "</s>", "added_tokens_decoder": {"2": {"content": "</s>"}}})
    assert eos_of_tokenizer(tmp_path) == 2
    write(tmp_path, tokenizer_config={"eos_token": "</s>"}, vocab={"</s>": 3})
    assert eos_of_tokenizer(tmp_path) == 3


@pytest.mark.parametrize("broken", [{}, {"added_tokens": 3, "model": []}, {"added_tokens": [1, {"content": "<end>"}]}])
def test_a_strange_tokenizer_json_names_no_end(broken: Json, tmp_path: Path) -> None:
    write(tmp_path, tokenizer_config={"eos_token": "<end>"}, tokenizer=broken)
    assert eos_of_tokenizer(tmp_path) is None


def test_C4_a_gguf_file_ends_at_eos_eot_and_eom() -> None:
    keys = {"eos": 2, "eot": 7, "eom": 9, "bos": 1, "padding": 0}
    header = GgufHeader({f"tokenizer.ggml.{kind}_token_id": token for kind, token in keys.items()}, {})
    assert eos_of_gguf(header) == [2, 7, 9]
    header.metadata["tokenizer.ggml.eot_token_id"] = 2
    header.metadata["tokenizer.ggml.eom_token_id"] = 2**32 - 1
    assert eos_of_gguf(header) == [2]


def test_C4_the_id_that_llama_cpp_writes_for_none_is_none_for_bos_too() -> None:
    sizes = {"attention.head_count": 4, "embedding_length": 32, "feed_forward_length": 48, "block_count": 2}
    facts = {f"llama.{key}": value for key, value in (sizes | {"context_length": 64}).items()}
    facts |= {"general.architecture": "llama", "llama.attention.layer_norm_rms_epsilon": 1e-5}
    for stored, bos in ((2**32 - 1, None), (1, 1)):
        header = GgufHeader(facts | {"tokenizer.ggml.bos_token_id": stored}, {"token_embd.weight": (64, 32)})
        assert target_config_from_json(config_from_gguf(header, "m.gguf")).bos_token_id == bos


@pytest.mark.parametrize(
    ("config", "generation", "ids", "told"),
    [
        (-1, 2, (2,), "config.json names -1"),
        (64, [2, 3], (2, 3), "config.json names 64"),
        (2, [3, 64], (2, 3), "generation_config.json names 64"),
        ([64, 64], [2, 64], (2,), "config.json names 64"),
    ],
)
def test_C5_an_id_outside_the_vocabulary_is_left_out_and_it_is_said(
    config: object, generation: object, ids: tuple[int, ...], told: str, target_json: Json, tmp_path: Path
) -> None:
    files = {"config": target_json | {"eos_token_id": config}, "generation_config": {"eos_token_id": generation}}
    target = read_target_config(write(tmp_path, **files))
    assert target.eos_token_ids == ids
    (note,) = target.notes
    assert told in note
    assert "notes" not in target.to_json()


def test_C5_the_tokenizer_s_end_stands_where_the_configs_name_none_inside(target_json: Json, tmp_path: Path) -> None:
    files = {"tokenizer_config": {"eos_token": "<end>"}, "tokenizer": ADDED}
    target = read_target_config(write(tmp_path, config=target_json | {"eos_token_id": -1}, **files))
    assert (target.eos_token_ids, len(target.notes)) == ((5,), 1)


@pytest.mark.parametrize(("config", "generation"), [(64, None), (-1, None), (None, [64, -1]), (-1, 64)])
def test_ends_of_text_that_all_lie_outside_the_vocabulary_are_refused(
    config: object, generation: object, target_json: Json, tmp_path: Path
) -> None:
    files = {"config": target_json | {"eos_token_id": config}, "generation_config": {"eos_token_id": generation}}
    with pytest.raises(ConfigError, match="lies outside the vocabulary"):
        read_target_config(write(tmp_path, **files))
