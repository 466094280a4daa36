"""How few tokens a text can have: never more than it has, and enough to refuse a text that is far too long."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from runtime.text.bound import MOST_COMPOSED, TokenBound, byte_alphabet

MERGES = [
    ("t", "h"),
    ("th", "e"),
    ("Ġ", "the"),
    ("Ġ", "Ġ"),
    ("ĠĠ", "ĠĠ"),
    ("1", "2"),
    ("=", "="),
    ("==", "=="),
    ("Ã", "©"),
]
SPACED = [("t", "h"), ("th", "e"), ("▁", "the"), ("▁", "▁"), ("▁▁", "▁▁"), ("1", "2"), ("=", "="), ("é", "é")]
STAND_FOR_THEMSELVES = "the 12=\n"


def byte_level(missing: str = "", merges: list[tuple[str, str]] = MERGES) -> tokenizers.Tokenizer:
    names = [name for name in byte_alphabet() if name not in missing]
    merges = [(a, b) for a, b in merges if not set(a + b) & set(missing)]
    names += [a + b for a, b in merges]
    backend = tokenizers.Tokenizer(models.BPE({name: index for index, name in enumerate(names)}, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return backend


def spaced(fallback: bool, **options: Any) -> tokenizers.Tokenizer:
    names = ["<unk>", *"the▁12=\né", *(a + b for a, b in SPACED)]
    names += [f"<0x{byte:02X}>" for byte in range(256)] if fallback else []
    vocabulary = {name: index for index, name in enumerate(names)}
    backend = tokenizers.Tokenizer(models.BPE(vocabulary, SPACED, byte_fallback=fallback, **options))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return backend


def added(backend: tokenizers.Tokenizer, **options: bool) -> tokenizers.Tokenizer:
    backend.add_special_tokens([AddedToken("<the end of it all>", **options)])
    backend.add_tokens([AddedToken("Å", normalized=True)])
    return backend


def normalised(backend: tokenizers.Tokenizer, normaliser: Any) -> tokenizers.Tokenizer:
    before = [backend.normalizer] if backend.normalizer is not None else []
    backend.normalizer = normalizers.Sequence([*before, normaliser])
    return backend


def split(backend: tokenizers.Tokenizer, first: Any) -> tokenizers.Tokenizer:
    backend.pre_tokenizer = pre_tokenizers.Sequence([first, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    return backend


KNOWN = {
    "byte level": byte_level(),
    "byte level, some bytes": byte_level("12=Ã"),
    "composed": normalised(byte_level(), normalizers.NFC()),
    "composed, short pieces": normalised(byte_level(merges=[("Ã", "©")]), normalizers.NFC()),
    "composed more": normalised(byte_level(), normalizers.NFKC()),
    "decomposed": normalised(byte_level(), normalizers.NFD()),
    "added": added(byte_level()),
    "added, composed": added(normalised(byte_level(), normalizers.NFKC())),
    "added, takes spaces": added(byte_level(), lstrip=True, rstrip=True),
    "words": split(byte_level(), pre_tokenizers.Split(Regex(r"\s+"), "isolated")),
    "spaced": spaced(True),
    "spaced, unknown": spaced(False, unk_token="<unk>", fuse_unk=True),
    "spaced, dropped": spaced(False),
    "spaced, added": added(spaced(True), lstrip=True),
}
LOSSY = {
    "removed": split(byte_level(), pre_tokenizers.Split(Regex(r"\s+"), "removed")),
    "shortened": normalised(byte_level(), normalizers.Replace(Regex("e+"), "e")),
    "replaced": normalised(byte_level(), normalizers.Replace("ee", "")),
    "small": normalised(byte_level(), normalizers.Lowercase()),
    "stripped": normalised(byte_level(), normalizers.Strip()),
    "accents": normalised(byte_level(), normalizers.StripAccents()),
}
TEXTS = st.lists(
    st.sampled_from(
        ["the", " ", "   ", "1", "12", "=" * 9, "\n", "e\u0301", "é", "\ufb03", "\U0001d400", "A\u030a", "\u2003"]
    )
    | st.sampled_from(["<the end of it all>", " " * 99, "<the end", "🙂", "x", "▁", "한", "\u1112\u1161\u11ab"])
    | st.text(max_size=4),
    max_size=30,
).map("".join)


@pytest.mark.parametrize("name", [*KNOWN, *LOSSY])
def test_b5_no_text_has_fewer_tokens(name: str) -> None:
    """B5: so nothing that fits is refused."""
    backend = (KNOWN | LOSSY)[name]
    bound = TokenBound(backend)

    @settings(deadline=None)
    @given(TEXTS, st.integers(1, 20))
    def holds(text: str, times: int) -> None:
        text = (text * times).encode("utf-8", "replace").decode()
        assert bound.least_tokens(text) <= len(backend.encode(text, add_special_tokens=False).ids)

    holds()


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("character", STAND_FOR_THEMSELVES)
def test_b5_a_long_text_is_known_to_be_long(name: str, character: str) -> None:
    if name == "byte level, some bytes" and character in "12=":
        character = "e"
    if character in " \n" and name in ("added, takes spaces", "spaced, added", "spaced, unknown", "spaced, dropped"):
        character = "e"
    # The longest piece has 19 characters, and 13 of them are letters
    assert TokenBound(KNOWN[name]).least_tokens(character * 100_000) >= 100_000 // 19


@pytest.mark.parametrize("name", LOSSY)
def test_b5_where_text_gets_lost_nothing_is_known(name: str) -> None:
    assert TokenBound(LOSSY[name]).least_tokens("the " * 100_000) == 0


def test_b5_other_models_are_not_known() -> None:
    """Of these any number of characters may become one token."""
    for model in (models.WordLevel({"a": 0, "u": 1}, unk_token="u"), models.WordPiece({"a": 0, "u": 1}, unk_token="u")):
        assert TokenBound(tokenizers.Tokenizer(model)).least_tokens("b" * 100_000) == 0
    assert TokenBound(tokenizers.Tokenizer(models.BPE())).least_tokens("b" * 100_000) == 0


def test_b5_no_character_is_shorter_for_what_it_was_composed_of() -> None:
    """MOST_COMPOSED, over all of Unicode: a character of n bytes comes of at most 4 bytes for each of its parts."""
    characters = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    for form in ("NFC", "NFKC"):
        kept = (c for c in characters if unicodedata.is_normalized(form, c))
        assert max(4 * len(unicodedata.normalize("NFD", c)) / len(c.encode()) for c in kept) <= MOST_COMPOSED
