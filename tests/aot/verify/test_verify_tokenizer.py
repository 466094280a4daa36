"""B6: a tokenizer or chat template that eagle3-run would refuse is refused before anything compiles."""

from __future__ import annotations

import inspect
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

import aot.build.run as build
from aot.checkpoint.source import ModelSource
from aot.verify.tokenizer import place_tokenizer
from runtime.bundle.errors import ConfigError, Eagle3Error
from runtime.text import Tokenizer as RuntimeTokenizer
from runtime.text import has_tokenizer

TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"


@pytest.fixture
def source(tmp_path: Path) -> ModelSource:
    folder = tmp_path / "model"
    folder.mkdir()
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 8, "num_attention_heads": 4}
    (folder / "config.json").write_text(
        json.dumps({"model_type": "llama", "vocab_size": 8, "eos_token_id": 1, **shape})
    )
    tokenizer = Tokenizer(models.WordLevel({"<s>": 0, "</s>": 1, "a": 2, "b": 3}, unk_token="a"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    facts = {"bos_token": "<s>", "add_bos_token": True, "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(facts))
    return ModelSource("model", "folder", folder)


def test_a_whole_tokenizer_is_placed_and_opens(source: ModelSource, tmp_path: Path) -> None:
    place_tokenizer(source, tmp_path / "out", 8)
    assert RuntimeTokenizer.load(tmp_path / "out").encode("a b") == [0, 2, 3]


def test_a_model_without_a_tokenizer_gets_none(source: ModelSource, tmp_path: Path) -> None:
    (source.path / "tokenizer.json").unlink()
    place_tokenizer(source, tmp_path / "out", 8)
    assert not has_tokenizer(tmp_path / "out")


def test_a_template_that_refuses_a_single_message_is_its_author_s_business(source: ModelSource, tmp_path: Path) -> None:
    (source.path / "chat_template.jinja").write_text("{{ raise_exception('a system message first') }}")
    place_tokenizer(source, tmp_path / "out", 8)


def change(folder: Path, **parts: object) -> None:
    file = folder / "tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | parts))


Break = Callable[[Path], Any]
BROKEN: dict[str, Break] = {
    "template that does not parse": lambda f: (f / "chat_template.jinja").write_text("{% for m in messages %}"),
    "template of other bytes": lambda f: (f / "chat_template.jinja").write_bytes(b"\xff\xfe"),
    "template that leaves its sandbox": lambda f: (f / "chat_template.jinja").write_text(
        "{{ messages.__class__.__mro__[1].__subclasses__() }}"
    ),
    "no tokenizer at all": lambda f: (f / "tokenizer.json").write_text("{}"),
    "half of one": lambda f: (f / "tokenizer.json").write_bytes((f / "tokenizer.json").read_bytes()[:300]),
    "bytes": lambda f: (f / "tokenizer.json").write_bytes(b"\x00" * 100),
    "a surrogate": lambda f: (f / "tokenizer_config.json").write_text(
        '{"bos_token": "\\ud800", "add_bos_token": true}'
    ),
    "facts that are none": lambda f: (f / "tokenizer_config.json").write_text("[]"),
    # The library panics with these, which is no Exception
    "a normaliser that does not parse": lambda f: change(
        f, normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}
    ),
    "pieces of no length": lambda f: change(f, pre_tokenizer={"type": "FixedLength", "length": 0}),
    "a decoder that fails without text": lambda f: change(
        f,
        decoder={
            "type": "Sequence",
            "decoders": [{"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 0, "stop": 1}],
        },
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_B6_what_the_runtime_would_refuse_is_refused_first(name: str, source: ModelSource, tmp_path: Path) -> None:
    BROKEN[name](source.path)
    with pytest.raises(ConfigError) as caught:
        place_tokenizer(source, tmp_path / "out", 8)
    assert (caught.value.exit_code, bool(caught.value.repair)) == (3, True)


def test_B6_a_tokenizer_of_a_larger_vocabulary_is_another_model_s(source: ModelSource, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="another model"):
        place_tokenizer(source, tmp_path / "out", 3)


def test_B6_nothing_is_compiled_before_the_tokenizer_is_opened(
    source: ModelSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The build itself, with its plan, cache and backend left out: the refusal comes before any of them is asked."""

    class Plan:
        class models:
            target_source = source

            class target:
                vocab_size = 8

    def compiled(*_: object) -> None:
        raise AssertionError("compiled")

    monkeypatch.setattr(build, "_compile", compiled)
    monkeypatch.setattr(build, "_load", lambda plan: (None, None))
    arguments: dict[str, Any] = dict.fromkeys(inspect.signature(build._build).parameters)
    staging = tmp_path / "staging"
    staging.mkdir()
    arguments |= {"plan": Plan, "output": tmp_path / "bundle", "staging": staging}
    with pytest.raises(AssertionError, match="compiled"):
        build._build(**arguments)
    shutil.rmtree(staging / "tokenizer")
    (source.path / "chat_template.jinja").write_text("{% for m in messages %}")
    with pytest.raises(Eagle3Error) as caught:
        build._build(**arguments)
    assert caught.value.exit_code == 3
