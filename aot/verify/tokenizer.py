"""The first proof of a build: its tokenizer and chat template open exactly as eagle3-run will open them.

Before anything compiles, since a bundle whose text cannot be read is found out at its first use otherwise.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from aot.checkpoint.source import ModelSource
from aot.checkpoint.tokenizer import write_tokenizer
from runtime.bundle.errors import ConfigError, IntegrityError, UsageError
from runtime.text import Tokenizer


def place_tokenizer(source: ModelSource, folder: Path, vocab_size: int) -> None:
    """Write the tokenizer of the model at `source` into `folder` and open it there; nothing for a model without one.

    Args:
        vocab_size: the model's.

    Raises:
        ConfigError: there is a tokenizer or a chat template, and it cannot be read, opened or used.
        HostError: converting it needs a package that is not installed.
    """
    if not write_tokenizer(source, folder):
        return
    try:
        tokenizer = Tokenizer.load(folder)
        if tokenizer.has_chat_template:
            _compile_template(tokenizer)
        ids = tokenizer.encode("a b")
        tokenizer.decode(ids)
        # Of an answer that begins with special tokens there is no text yet
        tokenizer.decode([])
    except (IntegrityError, UsageError) as error:
        raise _refusal(source, error.what, error.found) from None
    # The library fails on some files only when a text is encoded, with exceptions of any type
    except Exception as error:
        raise _refusal(source, "A text cannot be encoded", str(error)) from None
    if ids and max(ids) >= vocab_size:
        what = "The tokenizer belongs to another model"
        raise _refusal(source, what, f"ids {ids} for a short text, of {vocab_size} that the model has")


def _compile_template(tokenizer: Tokenizer) -> None:
    """A template that refuses this one message, or that needs more than one, is its author's to write."""
    with contextlib.suppress(UsageError):
        tokenizer.apply_chat_template([{"role": "user", "content": "Hello"}])


def _refusal(source: ModelSource, what: str, found: str) -> ConfigError:
    return ConfigError(
        f"eagle3-run could not use the tokenizer of {source.name}",
        expected="tokenizer and chat template files that the runtime can open",
        found=f"{what[:1].lower()}{what[1:]}" + (f" ({' '.join(found.split())[:300]})" if found else ""),
        repair="fetch the model's tokenizer files again, or mend the one that is named",
    )
