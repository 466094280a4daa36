"""Every family of target models that is supported, by model_type."""

from __future__ import annotations

from collections.abc import Mapping

from aot.checkpoint.families.family import Family
from aot.checkpoint.families.llama import LLAMA
from aot.checkpoint.families.mistral import MISTRAL
from aot.checkpoint.families.qwen2 import QWEN2
from aot.checkpoint.families.qwen3 import QWEN3
from runtime.bundle.errors import ConfigError

# model_type of config.json, general.architecture of a GGUF file
FAMILIES: Mapping[str, Family] = {"llama": LLAMA, "mistral": MISTRAL, "qwen2": QWEN2, "qwen3": QWEN3}


def family_named(name: str, where: str, *, gguf: bool = False) -> Family:
    """The family called `name`.

    Args:
        where: the file that names it, for errors.
        gguf: it must be one that is read from GGUF.

    Raises:
        ConfigError: there is none, with the list of those that there are.
    """
    known = {key: family for key, family in FAMILIES.items() if family.gguf or not gguf}
    if name not in known:
        raise ConfigError(
            f"the model family in {where} is not supported yet",
            expected=" or ".join(known),
            found=name or "without a model_type",
            repair="choose a target of a supported family, or add one: docs/add-a-model.md",
        )
    return known[name]
