"""The tokenizer files of a bundle, written so that the runtime needs no transformers.

    tokenizer.json          the `tokenizers` library's own format
    chat_template.jinja     where the model has one
    tokenizer_info.json     bos_token, eos_token, pad_token (text or null), add_bos (raw text begins with
    bos_token),
                            eos_token_ids, chat_template_sha256 (null without a template)

A folder's files are copied as they are. A GGUF file, or a folder that has only a slow tokenizer's files, is
converted by transformers, which is imported only then.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from aot.checkpoint.endings import special_tokens, token_text
from aot.checkpoint.gguf_header import read_gguf_header
from aot.checkpoint.source import ModelSource
from aot.checkpoint.target import read_target_config
from runtime.bundle.errors import ConfigError, HostError
from runtime.bundle.panics import asked

# Files of tokenizers that are not yet in tokenizer.json's form.
_SLOW_FILES = ("tokenizer.model", "vocab.json", "vocab.txt")


def write_tokenizer(source: ModelSource, out: Path) -> bool:
    """Write the tokenizer of the model at `source` into the folder `out`, which is made if need be.

    Returns:
        False, with nothing written, for a folder that has no tokenizer (a random toy model).

    Raises:
        ConfigError: there is a tokenizer and it cannot be read.
        HostError: converting it needs a package that is not installed.
    """
    if source.kind == "gguf":
        tokenizer, facts = _converted(source.path.parent, source.path.name)
        facts["add_bos_token"] = read_gguf_header(source.path).metadata.get("tokenizer.ggml.add_bos_token")
    elif (source.path / "tokenizer.json").is_file():
        tokenizer, facts = (source.path / "tokenizer.json").read_bytes(), _facts_of_folder(source.path)
    elif any((source.path / name).is_file() for name in _SLOW_FILES):
        tokenizer, facts = _converted(source.path, None)
    else:
        return False
    template = facts.get("chat_template")
    _check_text(facts, source)
    bos = token_text(facts.get("bos_token"))
    declared = facts.get("add_bos_token")
    info = {
        "bos_token": bos,
        "eos_token": token_text(facts.get("eos_token")),
        "pad_token": token_text(facts.get("pad_token")),
        # The declaration wins: transformers itself rebuilds the post-processor from it.
        "add_bos": declared if isinstance(declared, bool) else _begins_with(tokenizer, bos, source),
        "eos_token_ids": list(read_target_config(source).eos_token_ids),
        "chat_template_sha256": None if template is None else hashlib.sha256(template.encode()).hexdigest(),
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / "tokenizer.json").write_bytes(tokenizer)
    if template is not None:
        (out / "chat_template.jinja").write_bytes(template.encode())
    (out / "tokenizer_info.json").write_text(json.dumps(info, indent=2, ensure_ascii=False) + "\n", "utf-8")
    return True


def _facts_of_folder(folder: Path) -> dict[str, Any]:
    """Special tokens, add_bos_token and the chat template, from the files transformers keeps them in."""
    facts = special_tokens(folder)
    template_file = folder / "chat_template.jinja"
    if template_file.is_file():
        try:
            facts["chat_template"] = template_file.read_bytes().decode("utf-8")
        except UnicodeDecodeError as error:
            raise _broken(f"chat_template.jinja of {folder.name} is not UTF-8 text", error) from None
    elif isinstance(facts.get("chat_template"), list):
        facts["chat_template"] = _default_template(facts["chat_template"], folder)
    elif not isinstance(facts.get("chat_template"), str | None):
        raise ConfigError(
            f"chat_template of {folder.name}/tokenizer_config.json is wrong",
            expected="a template or a list of named templates",
            repair="put the template into chat_template.jinja beside it",
        )
    return facts


def _default_template(named: list[Any], folder: Path) -> str:
    """The template called "default" of a list of {name, template}."""
    for entry in named:
        if isinstance(entry, dict) and entry.get("name") == "default" and isinstance(entry.get("template"), str):
            return str(entry["template"])
    raise ConfigError(
        f"{folder.name}/tokenizer_config.json has several chat templates and none is named default",
        repair="put the one to use into chat_template.jinja beside it",
    )


def _begins_with(tokenizer: bytes, bos: str | None, source: ModelSource) -> bool:
    """Whether the tokenizer itself puts `bos` before raw text."""
    from tokenizers import Tokenizer

    try:
        loaded = asked(Tokenizer.from_str, tokenizer.decode("utf-8"))
        first: list[int] = asked(loaded.encode, "a").ids[:1]
    except Exception as error:
        raise _broken(f"tokenizer.json of {source.name} cannot be read", error) from error
    return bos is not None and first == [loaded.token_to_id(bos)]


def _check_text(facts: dict[str, Any], source: ModelSource) -> None:
    """Refuse lone surrogates, which JSON can spell and no UTF-8 file can hold."""
    texts = {name: token_text(facts.get(name)) for name in ("bos_token", "eos_token", "pad_token", "chat_template")}
    for name, text in texts.items():
        try:
            (text or "").encode("utf-8")
        except UnicodeEncodeError as error:
            raise _broken(f"{name} of {source.name} is not Unicode text", error) from None


def _broken(what: str, error: Exception) -> ConfigError:
    found = " ".join(str(error).split())[:300] or type(error).__name__
    return ConfigError(what, found=found, repair="fetch the model's tokenizer files again")


def _converted(folder: Path, gguf_file: str | None) -> tuple[bytes, dict[str, Any]]:
    """tokenizer.json's bytes and the facts of a tokenizer that transformers has to convert first."""
    what = gguf_file or folder.name
    try:
        from transformers import AutoTokenizer

        if gguf_file:
            import gguf  # noqa: F401
    except ImportError as error:
        raise HostError(
            f"converting the tokenizer of {what} needs the package {error.name}",
            repair="pip install 'eagle3-aot[demo]'",
        ) from None
    try:
        options = {"gguf_file": gguf_file} if gguf_file else {}
        loaded = asked(AutoTokenizer.from_pretrained, folder, trust_remote_code=False, **options)
        tokenizer = loaded.backend_tokenizer.to_str(pretty=True).encode()
    # Conversion fails in as many ways as there are tokenizers; the library's own message says which.
    except Exception as error:
        raise ConfigError(
            f"the tokenizer of {what} cannot be converted to tokenizer.json",
            found=str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__,
            repair="give a checkpoint that has tokenizer.json",
        ) from error
    names = ("bos_token", "eos_token", "pad_token", "add_bos_token", "chat_template")
    facts = {name: getattr(loaded, name, None) for name in names}
    if isinstance(facts["chat_template"], dict):
        facts["chat_template"] = facts["chat_template"].get("default")
    return tokenizer, facts
