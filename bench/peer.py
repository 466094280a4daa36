"""The peer: transformers' generate over the same weights, dequantised from the same GGUF file to bfloat16."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

import torch

from bench.commands import BenchError

PACKAGE = "package:"


def gguf_file(reference: str) -> Path:
    """The file behind a bundle's target reference, `package:NAME/FILE` or a path.

    Raises:
        BenchError: the package is not installed, or the reference names no .gguf file.
    """
    path = Path(reference)
    if reference.startswith(PACKAGE):
        name, _, file = reference.removeprefix(PACKAGE).partition("/")
        spec = find_spec(name)
        folders = list(spec.submodule_search_locations or ()) if spec is not None else []
        if not folders:
            raise BenchError(f"the target's package {name} is not installed: make setup")
        path = Path(folders[0], file)
    if path.suffix != ".gguf" or not path.is_file():
        raise BenchError(f"the peer reads a .gguf file, and the bundle's target is {reference}")
    return path


def load_generate(reference: str) -> Callable[[Sequence[int], int], list[int]]:
    """transformers' greedy generate: (prompt ids, number of new tokens) -> the new ids, end of sequence ignored."""
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.set_verbosity_error()
    file = gguf_file(reference)
    with contextlib.redirect_stderr(io.StringIO()):  # a progress bar that no setting turns off
        model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.bfloat16).eval()
    # Without an end-of-sequence id nothing ends early, and no logits processor has to suppress it
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0

    def generate(prompt: Sequence[int], count: int) -> list[int]:
        ids = torch.tensor([list(prompt)])
        with torch.inference_mode():
            made = model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False, use_cache=True
            )
        new: list[int] = made[0, len(prompt) :].tolist()
        return new

    return generate
