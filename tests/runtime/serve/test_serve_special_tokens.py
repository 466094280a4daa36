"""C6: add_special_tokens is honoured at both addresses, and a prompt never gets a second BOS."""

from __future__ import annotations

from typing import Any

import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, processors

from runtime.sampling.params import GREEDY
from runtime.serve.chat import read_chat
from runtime.serve.completions import read_completion
from runtime.serve.errors import ApiError
from runtime.serve.generation import Served
from runtime.text import Tokenizer
from runtime.text.pieces import Pieces
from runtime.text.tokenizer import TokenizerInfo

WORDS = {"<s>": 0, "</s>": 1, "<unk>": 2, "hello": 3, "world": 4}
WITH_BOS = "{{ bos_token }} {{ messages[0].content }}"
WITHOUT = "{{ messages[0].content }}"


@pytest.fixture(params=[False, True], ids=["plain", "adds bos by itself"])
def by_itself(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def served(template: str, by_itself: bool = False) -> Served:
    backend = tokenizers.Tokenizer(models.WordLevel(WORDS, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.add_special_tokens(["<s>", "</s>"])
    if by_itself:
        backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    info = TokenizerInfo(bos_token="<s>", eos_token="</s>", pad_token=None, add_bos=True, eos_token_ids=(1,))
    tokenizer = Tokenizer(backend, info, template)
    return Served(("toy",), "none", tokenizer, Pieces(tokenizer), 64, 5, GREEDY)


@pytest.mark.parametrize(
    ("given", "ids"),
    [({}, (0, 3)), ({"add_special_tokens": True}, (0, 3)), ({"add_special_tokens": False}, (3,))],
)
def test_a_text_begins_with_bos_unless_it_is_asked_not_to(
    given: dict[str, Any], ids: tuple[int, ...], by_itself: bool
) -> None:
    with_words = served(WITHOUT, by_itself)
    assert read_completion({"prompt": "hello", **given}, with_words).prompts == (ids,)
    # Typed by the client, it is there once in every case
    assert read_completion({"prompt": "<s> hello", **given}, with_words).prompts == ((0, 3),)
    # Ids are taken as they are
    assert read_completion({"prompt": [3, 4], **given}, with_words).prompts == ((3, 4),)


@pytest.mark.parametrize(
    ("given", "template", "ids"),
    [
        ({}, WITH_BOS, (0, 3)),
        ({}, WITHOUT, (3,)),
        ({"add_special_tokens": True}, WITH_BOS, (0, 3)),
        ({"add_special_tokens": True}, WITHOUT, (0, 3)),
        ({"add_special_tokens": False}, WITH_BOS, (0, 3)),
    ],
)
def test_a_chat_begins_with_one_bos_where_its_template_or_the_client_wants_one(
    given: dict[str, Any], template: str, ids: tuple[int, ...], by_itself: bool
) -> None:
    messages = [{"role": "user", "content": "hello"}]
    made = read_chat({"messages": messages, **given}, served(template, by_itself))
    assert made.prompts == (ids,)


def test_it_is_true_or_false() -> None:
    for read, body in (
        (read_completion, {"prompt": "hello"}),
        (read_chat, {"messages": [{"role": "user", "content": "a"}]}),
    ):
        with pytest.raises(ApiError) as caught:
            read({**body, "add_special_tokens": "no"}, served(WITHOUT))
        assert caught.value.param == "add_special_tokens"
