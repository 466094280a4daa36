"""Which trainer's form a draft's config.json is in, and its keys under one spelling.

    safeailab     the original; `architectures` names a plain LlamaForCausalLM, fields lie at the top
    specforge     `LlamaForCausalLMEagle3` and its relatives (AngelSlim); ids and flags also under `eagle_config`
    modelopt      the same with ModelOpt's own flags under `eagle_config`
    speculators   `speculators_model_type`; the decoder layer's shape lies in `transformer_layer_config`

The form matters where trainers give one key two meanings, or leave out a key with other defaults in mind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from aot.checkpoint.fields import Fields, brief
from runtime.bundle.errors import ConfigError

Form = Literal["safeailab", "specforge", "modelopt", "speculators"]

# Only ModelOpt writes these.
_MODELOPT_FLAGS = ("use_aux_hidden_state", "use_input_layernorm_in_first_layer", "use_last_layernorm")
# A draft's decoder layer is Llama's, with what the weights add to it, whatever the target is called here.
_FAMILIES = ("llama", "llama4_text", "mistral", "qwen2", "qwen3")

# What a speculators file says at its top of the draft as a whole, and in its layer's config of that class alone
_EACH_ITS_OWN = {"architectures", "auto_map", "dtype", "model_type", "tie_word_embeddings", "torch_dtype"} | {
    "transformers_version",
    "use_cache",
}


@dataclass(frozen=True)
class DraftFields:
    """A draft's config.json under one spelling.

    Attributes:
        top: its keys; those of `transformer_layer_config` among them where there is one.
        eagle: what lies under `eagle_config`, empty where there is none.
    """

    form: Form
    top: Fields
    eagle: Fields

    @property
    def where(self) -> str:
        """What errors call the file."""
        return self.top.where

    def holder(self, key: str) -> Fields:
        """Where `key` stands: at the top or under eagle_config; at the top where it stands nowhere.

        Raises:
            ConfigError: both places have it, with different values.
        """
        if self.top.has(key) and self.eagle.has(key) and self.top.raw[key] != self.eagle.raw[key]:
            raise ConfigError(
                f"{key} stands in {self.where} twice, with different values",
                found=f"{brief(self.top.raw[key])} and, under eagle_config, {brief(self.eagle.raw[key])}",
                repair="remove the wrong one",
            )
        return self.eagle if self.eagle.has(key) else self.top

    def has(self, key: str) -> bool:
        """Whether `key` stands at either place with a value other than null."""
        return self.top.has(key) or self.eagle.has(key)

    def flag(self, key: str, default: bool) -> bool:
        """`key` at either place, true or false."""
        return self.holder(key).flag(key, default)


def draft_fields(config: Fields) -> DraftFields:
    """The form and the keys of a draft's config.json.

    Raises:
        ConfigError: it is no EAGLE3 draft's, or its decoder layer is of a family that is not known.
    """
    eagle = config.mapping("eagle_config")
    top, form = config, _form(config, eagle)
    if form == "speculators":
        kind = config.text("speculators_model_type")
        if kind != "eagle3":
            what = "parallel drafting (P-EAGLE)" if kind == "peagle" else "another method than EAGLE3"
            raise unsupported(f"{what} (speculators_model_type: {kind!r})", config.where)
        layer = config.mapping("transformer_layer_config")
        top = Fields(_Both(config, layer), config.where)
    _refuse_other_models(top)
    return DraftFields(form, top, eagle)


class _Both(Mapping[str, Any]):
    """The keys of a speculators file's wrapper and of its layer's config, as one object.

    A key that both have with different values is refused when it is read, not before: transformers writes many that
    say nothing of a draft, and wrapper and layer differ in them.
    """

    def __init__(self, wrapper: Fields, layer: Fields) -> None:
        # A key at the top is about the draft as a whole and goes before the layer's; null says nothing
        said = {key: value for key, value in wrapper.raw.items() if value is not None}
        # The reader's keys are those of the one layer; the wrapper's own architectures and family say nothing of it
        self._one = {**layer.raw, **said, "model_type": layer.raw.get("model_type", "llama")}
        self._wrapper, self._layer = wrapper, layer

    def __getitem__(self, key: str) -> Any:
        wrapper, layer = self._wrapper, self._layer
        doubled = key not in _EACH_ITS_OWN and wrapper.has(key) and layer.has(key)
        if doubled and wrapper.raw[key] != layer.raw[key]:
            raise ConfigError(
                f"{key} stands in {wrapper.where} twice, with different values",
                found=f"{brief(wrapper.raw[key])} and, under transformer_layer_config, {brief(layer.raw[key])}",
                repair="remove the wrong one",
            )
        return self._one[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._one)

    def __len__(self) -> int:
        return len(self._one)


def unsupported(what: str, where: str) -> ConfigError:
    """The refusal of a variant that is known and not supported."""
    return ConfigError(
        f"{where} asks for {what}, which is not supported yet",
        repair="choose a draft without it under speculative_config.model",
    )


def _form(config: Fields, eagle: Fields) -> Form:
    if config.has("speculators_model_type"):
        return "speculators"
    if any(eagle.has(key) for key in _MODELOPT_FLAGS):
        return "modelopt"
    names = config.raw.get("architectures") or ["LlamaForCausalLM"]
    return "safeailab" if names == ["LlamaForCausalLM"] else "specforge"


def _refuse_other_models(config: Fields) -> None:
    names = config.raw.get("architectures") or ["LlamaForCausalLM"]
    listed = names if isinstance(names, list) else [names]
    if listed != ["LlamaForCausalLM"] and not re.search("eagle_?3", " ".join(map(str, listed)), re.IGNORECASE):
        raise ConfigError(
            f"the architecture in {config.where} is not an EAGLE3 draft's",
            expected="LlamaForCausalLMEagle3, Eagle3Speculator or another name with Eagle3 in it, or LlamaForCausalLM",
            found=", ".join(map(brief, listed[:4])) or "none",
            repair="check that speculative_config.model names the draft and not a target",
        )
    family = config.text("model_type", "llama")
    if family not in _FAMILIES:
        raise unsupported(f"a draft layer of the family {family!r}", config.where)
