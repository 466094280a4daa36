"""The stream of deltas is the decoding of all ids, and shows no half character."""

from __future__ import annotations

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers

from runtime.text import StreamDecoder, Tokenizer
from runtime.text.tokenizer import TokenizerInfo

INFO = TokenizerInfo(bos_token=None, eos_token="<eos>", pad_token=None, add_bos=False, eos_token_ids=(0,))


def byte_level() -> Tokenizer:
    """Every byte has a token; merges come from a little text in several scripts."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<eos>", "<pad>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(["the cat and the hat, 你好你好 😀😀 привет привет"] * 3, trainer)
    return Tokenizer(backend, INFO)


def byte_fallback() -> Tokenizer:
    """The decoder of Llama 2 and Mistral: words begin with a mark, unknown characters become bytes."""
    words = ["▁", "▁▁", "▁the", "the", "a", "▁a", "é", "▁é", "�"]
    vocab = {text: index for index, text in enumerate(["<eos>", *[f"<0x{byte:02X}>" for byte in range(256)], *words])}
    backend = tokenizers.Tokenizer(models.BPE(vocab, [], byte_fallback=True, unk_token="<eos>"))
    backend.add_special_tokens([AddedToken("<eos>", special=True)])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return Tokenizer(backend, INFO)


BYTE_LEVEL, BYTE_FALLBACK = byte_level(), byte_fallback()
KINDS = {"byte_level": BYTE_LEVEL, "byte_fallback": BYTE_FALLBACK}


def pushes(tokenizer: Tokenizer) -> st.SearchStrategy[list[list[int]]]:
    """Ids as an engine hands them out: a few at a time, of real text (in pieces) or at random."""
    size = tokenizer._backend.get_vocab_size()
    at_random = st.lists(st.integers(0, size - 1), max_size=6)
    of_text = st.text("the cat é你😀 ", max_size=6).map(lambda text: tokenizer.encode(text, False))
    return st.lists(st.one_of(at_random, of_text, st.just([0])), max_size=25)


def stream(tokenizer: Tokenizer, chunks: list[list[int]], skip: bool = True) -> tuple[list[str], str]:
    decoder = StreamDecoder(tokenizer, skip)
    return [decoder.push(chunk) for chunk in chunks], decoder.flush()


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None)
@given(data=st.data())
def test_deltas_put_together_are_the_decoding_of_all_ids(kind: str, skip: bool, data: st.DataObject) -> None:
    """S1: with special tokens or without."""
    tokenizer = KINDS[kind]
    chunks = data.draw(pushes(tokenizer))
    deltas, rest = stream(tokenizer, chunks, skip)
    assert "".join(deltas) + rest == tokenizer.decode([token for chunk in chunks for token in chunk], skip)


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None)
@given(text=st.text(st.characters(exclude_characters="▁\ufffd", exclude_categories=["Cs"]), max_size=30))
def test_valid_text_one_id_at_a_time_never_shows_a_replacement_character(kind: str, text: str) -> None:
    tokenizer = KINDS[kind]
    deltas, rest = stream(tokenizer, [[token] for token in tokenizer.encode(text, add_special_tokens=False)])
    assert not any("\ufffd" in piece for piece in [*deltas, rest])


def test_a_character_of_four_byte_tokens_appears_with_its_last_byte() -> None:
    ids = [BYTE_LEVEL.encode(text, False)[0] for text in "ab"]
    emoji = [BYTE_LEVEL._backend.token_to_id(mark) for mark in ("ð", "Ł", "ĺ", "Ģ")]
    decoder = StreamDecoder(BYTE_LEVEL)
    assert [decoder.push([token]) for token in [ids[0], *emoji, ids[1]]] == ["a", "", "", "", "😀", "b"]


def test_bytes_that_cannot_become_a_character_are_not_held_back_for_ever() -> None:
    continuation = BYTE_LEVEL._backend.token_to_id("Ģ")  # byte 0x80, which begins no character
    deltas, rest = stream(BYTE_LEVEL, [[continuation]] * 4)
    assert deltas == ["", "\ufffd", "\ufffd", "\ufffd"]
    assert rest == "\ufffd"


def test_a_broken_run_of_byte_tokens_is_held_back_whole() -> None:
    e4, bd, a0, ff, word = (
        BYTE_FALLBACK._backend.token_to_id(t) for t in ("<0xE4>", "<0xBD>", "<0xA0>", "<0xFF>", "▁the")
    )
    good, _ = stream(BYTE_FALLBACK, [[e4], [bd], [a0], [word]])
    assert good == ["", "", "", "你 the"]
    broken, _ = stream(BYTE_FALLBACK, [[e4, bd, a0], [ff], [word]])
    assert broken == ["", "", "\ufffd\ufffd\ufffd\ufffd the"]


def test_spaces_between_words_survive_the_moving_window() -> None:
    the = BYTE_FALLBACK._backend.token_to_id("▁the")
    deltas, rest = stream(BYTE_FALLBACK, [[the]] * 5)
    assert [*deltas, rest] == ["the", " the", " the", " the", " the", ""]


def test_a_push_decodes_a_window_and_not_the_whole_answer() -> None:
    decoder = StreamDecoder(BYTE_LEVEL)
    for token in BYTE_LEVEL.encode("the cat and the hat " * 100, False):
        decoder.push([token])
    assert len(decoder._window) <= 2


def test_an_empty_answer_is_empty_text() -> None:
    assert stream(BYTE_LEVEL, [[], [0]]) == (["", ""], "")
