"""The tokenizer folder of a bundle: what it must hold, and what encode, decode and special tokens mean."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, processors

from runtime.bundle.errors import IntegrityError, UsageError
from runtime.bundle.panics import asked
from runtime.text import Tokenizer, has_tokenizer

INFO = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "pad_token": None,
    "add_bos": True,
    "eos_token_ids": [1],
    "chat_template_sha256": None,
}


def words_backend() -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(
        models.WordLevel({"<s>": 0, "</s>": 1, "<unk>": 2, "hello": 3, "world": 4}, unk_token="<unk>")
    )
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.add_special_tokens(["<s>", "</s>"])
    return backend


def write(folder: Path, backend: tokenizers.Tokenizer, info: object = INFO, template: str | None = None) -> Path:
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_info.json").write_text(json.dumps(info))
    if template is not None:
        (folder / "chat_template.jinja").write_text(template)
    return folder


def test_bos_is_added_once_whether_or_not_the_tokenizer_adds_it_itself(tmp_path: Path) -> None:
    plain = Tokenizer.load(write(tmp_path, words_backend()))
    assert plain.encode("hello world") == [0, 3, 4]
    backend = words_backend()
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    assert Tokenizer.load(write(tmp_path, backend)).encode("hello world") == [0, 3, 4]


def test_no_special_token_is_added_to_a_text_that_a_template_made(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(write(tmp_path, words_backend()))
    assert tokenizer.encode("<s> hello", add_special_tokens=False) == [0, 3]


def test_a_model_without_bos_gets_none(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(write(tmp_path, words_backend(), {**INFO, "add_bos": False}))
    assert tokenizer.encode("hello") == [3]


def test_the_models_declaration_overrules_the_tokenizers_own_bos(tmp_path: Path) -> None:
    backend = words_backend()
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer = Tokenizer.load(write(tmp_path, backend, {**INFO, "add_bos": False}))
    assert tokenizer.encode("hello") == [3]
    assert tokenizer.encode("<s> hello") == [0, 3]


@pytest.mark.parametrize("by_itself", [False, True])
@pytest.mark.parametrize("add_bos", [False, True])
@pytest.mark.parametrize(
    ("text", "ids"),
    [("<s> hello", [0, 3]), ("<s>hello", [0, 3]), ("<s>", [0]), ("<s><s> hello", [0, 0, 3]), ("hello <s>", [3, 0])],
)
def test_C6_a_text_that_begins_with_bos_gets_no_second_one(
    by_itself: bool, add_bos: bool, text: str, ids: list[int], tmp_path: Path
) -> None:
    """However tokenizer.json was written: with a rule of its own that adds BOS, or without."""
    backend = words_backend()
    if by_itself:
        backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer = Tokenizer.load(write(tmp_path, backend, {**INFO, "add_bos": add_bos}))
    assert tokenizer.encode(text) == ([0, *ids] if add_bos and ids[0] != 0 else ids)
    assert tokenizer.encode(text, add_special_tokens=False) == ids
    # What tokenizer.json adds at the end stays
    if by_itself and add_bos:
        backend.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
        )
        tokenizer = Tokenizer.load(write(tmp_path, backend, {**INFO, "add_bos": True}))
        assert tokenizer.encode(text) == [*([] if ids[0] == 0 else [0]), *ids, 1]


def test_decode_leaves_special_tokens_out_unless_asked(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(write(tmp_path, words_backend()))
    assert tokenizer.decode([0, 3, 4, 1]) == "hello world"
    assert tokenizer.decode([3, 1], skip_special_tokens=False) == "hello </s>"


def test_ids_of_a_padded_vocabulary_decode_to_nothing(tmp_path: Path) -> None:
    assert Tokenizer.load(write(tmp_path, words_backend())).decode([3, 4000]) == "hello"


def test_truncation_and_padding_for_training_do_not_touch_a_prompt(tmp_path: Path) -> None:
    backend = words_backend()
    backend.enable_truncation(2)
    backend.enable_padding(length=8)
    tokenizer = Tokenizer.load(write(tmp_path, backend, {**INFO, "add_bos": False}))
    assert tokenizer.encode("hello world hello") == [3, 4, 3]


def test_a_lone_surrogate_is_refused(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(write(tmp_path, words_backend()))
    with pytest.raises(UsageError, match=r"^The prompt is not valid Unicode text: .*U\+D800 at character 3\.$"):
        tokenizer.encode("hel\ud800")


def test_special_tokens_reach_the_template_only_where_the_model_has_them(tmp_path: Path) -> None:
    template = "{{ bos_token }}|{{ pad_token is defined }}|{{ messages[0].content }}"
    tokenizer = Tokenizer.load(write(tmp_path, words_backend(), template=template))
    assert tokenizer.apply_chat_template([{"role": "user", "content": "hello"}]) == "<s>|False|hello"


def test_a_model_without_a_template_says_to_pass_raw(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(write(tmp_path, words_backend()))
    assert not tokenizer.has_chat_template
    with pytest.raises(UsageError, match="no chat template") as caught:
        tokenizer.apply_chat_template([{"role": "user", "content": "hello"}])
    assert "--raw" in caught.value.repair


def test_a_folder_without_tokenizer_json_has_no_tokenizer(tmp_path: Path) -> None:
    assert not has_tokenizer(tmp_path)
    assert has_tokenizer(write(tmp_path, words_backend()))


@pytest.mark.parametrize(
    ("info", "sentence"),
    [
        ([], "expected a JSON object, found list."),
        ({**INFO, "bos_token": 7}, "expected bos_token to be text or null, found 7."),
        ({**INFO, "add_bos": "yes"}, "expected add_bos to be true or false, found 'yes'."),
        ({**INFO, "eos_token_ids": [True]}, "expected eos_token_ids to be a list of ids, found [True]."),
    ],
)
def test_a_wrong_info_file_names_the_field(tmp_path: Path, info: object, sentence: str) -> None:
    with pytest.raises(IntegrityError) as caught:
        Tokenizer.load(write(tmp_path, words_backend(), info))
    assert caught.value.sentence() == f"The bundle's tokenizer_info.json is not readable: {sentence}"


def test_a_broken_tokenizer_file_is_an_integrity_error(tmp_path: Path) -> None:
    write(tmp_path, words_backend())
    (tmp_path / "tokenizer.json").write_text('{"version": "1.0"}')
    with pytest.raises(IntegrityError, match=r"^The bundle's tokenizer\.json is not readable"):
        Tokenizer.load(tmp_path)


PANICS = {
    "normaliser that does not parse": ("normalizer", {"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
    "pieces of no length": ("pre_tokenizer", {"type": "FixedLength", "length": 0}),
    "unknown special token": (
        "post_processor",
        {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "zz", "type_id": 0}}],
            "pair": [],
            "special_tokens": {},
        },
    ),
    "strip of an empty text": (
        "decoder",
        {"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 0, "stop": 1}]},
    ),
}


@pytest.mark.parametrize("name", PANICS)
def test_n2_a_panic_of_the_library_is_an_integrity_error(name: str, tmp_path: Path) -> None:
    """A panic is no Exception: it would end the engine's thread instead of one request."""
    part, value = PANICS[name]
    write(tmp_path, words_backend())
    data = json.loads((tmp_path / "tokenizer.json").read_text())
    (tmp_path / "tokenizer.json").write_text(json.dumps(data | {part: value}))

    def use() -> None:
        tokenizer = Tokenizer.load(tmp_path)
        tokenizer.encode("hello")
        tokenizer.decode([0])  # which is special, so nothing is left

    with pytest.raises(IntegrityError, match=r"tokenizer\.json"):
        use()


def test_an_interrupt_is_none_of_the_library_s_failures() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asked(interrupted)
