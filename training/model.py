"""The target that a command names: found, read, and loaded when its weights are wanted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from aot.checkpoint.source import ModelSource, resolve
from aot.checkpoint.target import TargetConfig, load_target_weights, read_target_config
from aot.checkpoint.tokenizer import write_tokenizer
from runtime.bundle.errors import UsageError
from runtime.text import Tokenizer


@dataclass(frozen=True)
class Target:
    """A target model on this machine; `reference` is what the user wrote."""

    reference: str
    source: ModelSource
    config: TargetConfig

    @classmethod
    def find(cls, reference: str) -> Target:
        """Find the model.

        Args:
            reference: as `model` in a build's YAML.

        Raises:
            ConfigError: it is missing or not supported.
        """
        source = resolve(reference, key="--model", base=Path.cwd())
        return cls(reference, source, read_target_config(source))

    def fingerprint(self) -> str:
        """What tells this model from any other: a digest of its files."""
        return self.source.fingerprint()

    def load(self, dtype: str) -> dict[str, Tensor]:
        """The weights under Hugging Face's names, in "bfloat16" or "float32"."""
        return load_target_weights(self.source, self.config, getattr(torch, dtype))

    def tokenizer(self) -> Tokenizer:
        """The tokenizer as a bundle would hold it.

        Raises:
            ConfigError: it cannot be read.
            UsageError: there is none, or it has no chat template.
        """
        with TemporaryDirectory() as folder:
            if not write_tokenizer(self.source, Path(folder)):
                raise UsageError(f"{self.reference} has no tokenizer", repair="give a model with tokenizer.json")
            tokenizer = Tokenizer.load(Path(folder))
        if not tokenizer.has_chat_template:
            raise UsageError(f"{self.reference} has no chat template", repair="add chat_template.jinja to the model")
        return tokenizer
