"""Which ids end an answer: everything that a model's files call an end.

    config.json, generation_config.json    eos_token_id, an id or a list of them; null is no id
    tokenizer_config.json                  eos_token, a text that tokenizer.json gives an id
    a GGUF file                            the ids of the end of text, of a turn (eot) and of a message (eom)

Publishers mend one file and forget another, and chat models end a turn by another token than a text. So the union
counts, as in vLLM, and as in llama.cpp for GGUF: an id too many is a token that no answer should hold anyway, an id too
few lets answers run on past their end. An id outside the vocabulary ends nothing and is left out with a note, unless
nothing else ends an answer: then the file is wrong, and answers would run on without a word.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aot.checkpoint.fields import Fields, read_json
from aot.checkpoint.gguf_header import GgufHeader
from runtime.bundle.errors import ConfigError

NOTHING_ENDS = (
    "nothing ends an answer: neither config.json nor generation_config.json names an eos_token_id, and no tokenizer "
    "file an eos_token that it has; answers go on to max_tokens"
)
# An id that llama.cpp writes for "none"
_NO_TOKEN = 2**32 - 1


def endings(*configs: Fields, token: int | None, vocab_size: int) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The ids from 0 to below `vocab_size` that `configs` name, in their order, then `token`; and notes about others.

    Args:
        token: the tokenizer's end of text, passed over where it lies outside: a tokenizer may have tokens that the
            model cannot give.

    Raises:
        ConfigError: an eos_token_id is no id or list of ids, or ids are named and all of them lie outside.
    """
    named: dict[int, str] = {}
    for config in configs:
        value = config.raw.get("eos_token_id")
        listed = {"eos_token_id": [one for one in value if one is not None] if isinstance(value, list) else value}
        for one in Fields(listed, config.where).integers("eos_token_id", ()):
            named.setdefault(one, config.where)
    inside = [one for one in named if 0 <= one < vocab_size]
    if token is not None and token not in inside and 0 <= token < vocab_size:
        inside.append(token)
    outside = {one: where for one, where in named.items() if one not in inside}
    if outside and not inside:
        one, where = next(iter(outside.items()))
        raise ConfigError(
            f"eos_token_id of {where} lies outside the vocabulary",
            expected=f"ids below {vocab_size}",
            found=str(one),
            repair="correct eos_token_id",
        )
    notes = (
        f"eos_token_id of {where} names {one}, outside the vocabulary of {vocab_size}; it is left out"
        for one, where in outside.items()
    )
    return tuple(inside), tuple(notes)


def eos_of_gguf(header: GgufHeader) -> list[Any]:
    """The ids of a GGUF file that end an answer, as they stand there."""
    found = (special_of_gguf(header, kind) for kind in ("eos", "eot", "eom"))
    return list(dict.fromkeys(one for one in found if one is not None))


def special_of_gguf(header: GgufHeader, kind: str) -> Any:
    """The id of the special token `kind`, such as "bos", as it stands in a GGUF file; None where it has none."""
    found = header.metadata.get(f"tokenizer.ggml.{kind}_token_id")
    return None if found == _NO_TOKEN else found


def eos_of_tokenizer(folder: Path) -> int | None:
    """The id of the tokenizer's eos_token; None where it has none, or the text is no token of its."""
    facts = special_tokens(folder)
    text = token_text(facts.get("eos_token"))
    if text is None:
        return None
    if (folder / "tokenizer.json").is_file():
        tokenizer = read_json(folder / "tokenizer.json")
        added, model = tokenizer.get("added_tokens"), tokenizer.get("model")
        entries = [(entry.get("id"), entry) for entry in _list(added) if isinstance(entry, dict)]
        vocab = model.get("vocab") if isinstance(model, dict) else None
    else:
        # A slow tokenizer's files
        decoder = facts.get("added_tokens_decoder")
        pairs = decoder.items() if isinstance(decoder, dict) else ()
        entries = [(int(key), entry) for key, entry in pairs if key.isdecimal() and len(key) < 10]
        vocab = read_json(folder / "vocab.json") if (folder / "vocab.json").is_file() else None
    found = next((token for token, entry in entries if token_text(entry) == text), None)
    if found is None and isinstance(vocab, dict):
        found = vocab.get(text)
    return found if type(found) is int else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def special_tokens(folder: Path) -> dict[str, Any]:
    """What special_tokens_map.json and tokenizer_config.json say; the latter's word goes before the former's."""
    facts: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if (folder / name).is_file():
            facts |= {key: value for key, value in read_json(folder / name).items() if value is not None}
    return facts


def token_text(token: Any) -> str | None:
    """A special token's text; configs write it as a string or as an object with its text under "content"."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None
