"""The target model: its config under one spelling, and its weights under Hugging Face's names.

`TargetConfig` holds every fact that shapes the graphs, whether it came from config.json (transformers 4 or 5)
or from a GGUF file's metadata. A family is a name in `FAMILIES`; a model of any other is refused, and so is a
feature of a known family that our graphs lack: a wrong answer is worse than none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aot.checkpoint.fields import Fields, read_json
from aot.checkpoint.gguf_config import config_from_gguf
from aot.checkpoint.gguf_header import read_gguf_header
from aot.checkpoint.rope import read_rope
from aot.checkpoint.source import ModelSource
from aot.checkpoint.tensors import Shapes, check_shapes, read_tensors
from runtime.bundle.errors import ConfigError

if TYPE_CHECKING:
    import torch


# What the graphs of aot/models can rotate by. rope.py and the reference know "llama3" too; add it here once
# aot/models does.
ROPE_TYPES = ("default",)


@dataclass(frozen=True)
class TargetConfig:
    """The facts of a target model that decide its graphs; `rope_scaling` is None or as in rope.py.

    Attributes:
        eos_token_ids: generation ends at any of these; the generation config's where the model has one.
        tie_word_embeddings: the output head is the embedding table, and `lm_head.weight` does not exist.
    """

    family: str
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: dict[str, Any] | None
    max_position_embeddings: int
    tie_word_embeddings: bool
    eos_token_ids: tuple[int, ...]
    bos_token_id: int | None

    def to_json(self) -> dict[str, Any]:
        """`from_json(to_json())` equals self."""
        return {**dataclasses.asdict(self), "eos_token_ids": list(self.eos_token_ids)}

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> TargetConfig:
        """The config that `to_json` wrote."""
        return cls(**{**raw, "eos_token_ids": tuple(raw["eos_token_ids"])})


def read_target_config(source: ModelSource) -> TargetConfig:
    """The config of the model at `source`.

    Raises:
        ConfigError: it cannot be read, or is of a family or has a feature that is not supported.
    """
    if source.kind == "gguf":
        name = source.path.name
        facts = config_from_gguf(read_gguf_header(source.path), name)
        return _from_config(Fields(facts, name), Fields({}, name))
    generation = source.path / "generation_config.json"
    return _from_config(
        Fields(read_json(source.path / "config.json"), f"{source.path.name}/config.json"),
        Fields(
            read_json(generation) if generation.is_file() else {},
            f"{source.path.name}/generation_config.json",
        ),
    )


def target_config_from_json(path_or_dict: Path | str | dict[str, Any]) -> TargetConfig:
    """The config of a model of which only config.json is at hand (the YAML's `model_config:`)."""
    if isinstance(path_or_dict, dict):
        return _from_config(Fields(path_or_dict, "model_config"), Fields({}, "model_config"))
    path = Path(path_or_dict)
    raw = read_json(path, repair="correct model_config; it names the target's config.json")
    return _from_config(Fields(raw, path.name), Fields({}, path.name))


def _from_config(config: Fields, generation: Fields) -> TargetConfig:
    family = config.text("model_type", "")
    if family not in FAMILIES:
        raise _unknown_family(family or "without a model_type", config.where)
    return FAMILIES[family](config, generation)


def _unknown_family(found: str, where: str) -> ConfigError:
    return ConfigError(
        f"the model family in {where} is not supported yet",
        expected=" or ".join(sorted(FAMILIES)),
        found=found,
        repair="choose a target of a supported family",
    )


def refuse_unless(config: Fields, key: str, right: object, default: object) -> None:
    """Refuse a config whose `key` (`default` where absent) is not `right`, naming the key."""
    found = config.raw[key] if config.has(key) else default
    if found != right:
        raise ConfigError(
            f"{key} of {config.where} is not supported yet",
            expected=repr(right),
            found=repr(found),
            repair="choose a model without it",
        )


def _llama(config: Fields, generation: Fields) -> TargetConfig:
    """A LlamaForCausalLM; keys that a config may leave out have transformers' LlamaConfig defaults."""
    architectures = config.raw.get("architectures") or ["LlamaForCausalLM"]
    if architectures != ["LlamaForCausalLM"]:
        raise ConfigError(
            f"the architecture in {config.where} is not a target model that is supported",
            expected="LlamaForCausalLM",
            found=str(architectures),
            repair="give the target model here; the draft belongs under speculative_config.model",
        )
    for key, right, default in (
        ("attention_bias", False, False),
        ("mlp_bias", False, False),
        ("hidden_act", "silu", "silu"),
        ("quantization_config", None, None),
    ):
        refuse_unless(config, key, right, default)
    hidden_size, num_heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    num_kv_heads = config.integer("num_key_value_heads", num_heads)
    theta, scaling, _ = read_rope(config, supported=ROPE_TYPES)
    eos_from = generation if generation.has("eos_token_id") else config
    target = TargetConfig(
        family="llama",
        hidden_size=hidden_size,
        intermediate_size=config.integer("intermediate_size"),
        num_layers=config.integer("num_hidden_layers"),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=config.integer("head_dim", max(1, hidden_size // num_heads)),
        vocab_size=config.integer("vocab_size"),
        rms_norm_eps=config.number("rms_norm_eps", 1e-6),
        rope_theta=theta,
        rope_scaling=scaling,
        max_position_embeddings=config.integer("max_position_embeddings", 2048),
        tie_word_embeddings=config.flag("tie_word_embeddings", False),
        eos_token_ids=eos_from.integers("eos_token_id", ()),
        bos_token_id=config.integer("bos_token_id", least=0) if config.has("bos_token_id") else None,
    )
    return _checked(target, config.where)


def _checked(target: TargetConfig, where: str) -> TargetConfig:
    if target.num_heads % target.num_kv_heads:
        raise ConfigError(
            f"num_attention_heads of {where} is not a multiple of num_key_value_heads",
            found=f"{target.num_heads} and {target.num_kv_heads}",
            repair="correct the config",
        )
    if target.head_dim % 2:
        raise ConfigError(
            f"head_dim of {where} is odd, and rotary embedding needs pairs",
            found=str(target.head_dim),
            repair="correct the config",
        )
    outside = [token for token in target.eos_token_ids if token >= target.vocab_size]
    if outside:
        raise ConfigError(
            f"eos_token_id of {where} lies outside the vocabulary",
            expected=f"ids below {target.vocab_size}",
            found=str(outside[0]),
            repair="correct eos_token_id",
        )
    return target


# model_type of config.json, general.architecture of a GGUF file -> its reader.
FAMILIES: dict[str, Callable[[Fields, Fields], TargetConfig]] = {"llama": _llama}


def target_shapes(config: TargetConfig) -> Shapes:
    """Every tensor of the target with its shape, in the order in which a forward pass meets them.

    Linear weights are [out, in]; `lm_head.weight` is absent when tied.
    """
    hidden, inner = config.hidden_size, config.intermediate_size
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    shapes: Shapes = {"model.embed_tokens.weight": (config.vocab_size, hidden)}
    for layer in range(config.num_layers):
        prefix = f"model.layers.{layer}."
        shapes |= {
            prefix + "input_layernorm.weight": (hidden,),
            prefix + "self_attn.q_proj.weight": (queries, hidden),
            prefix + "self_attn.k_proj.weight": (keys, hidden),
            prefix + "self_attn.v_proj.weight": (keys, hidden),
            prefix + "self_attn.o_proj.weight": (hidden, queries),
            prefix + "post_attention_layernorm.weight": (hidden,),
            prefix + "mlp.gate_proj.weight": (inner, hidden),
            prefix + "mlp.up_proj.weight": (inner, hidden),
            prefix + "mlp.down_proj.weight": (hidden, inner),
        }
    shapes["model.norm.weight"] = (hidden,)
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, hidden)
    return shapes


def load_target_weights(source: ModelSource, config: TargetConfig, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """The target's weights by the names of `target_shapes`, contiguous, on the CPU, cast to `dtype`.

    Quantised GGUF tensors are dequantised in float32 first.

    Raises:
        ConfigError: a tensor is missing, unknown or of the wrong shape, or the weights cannot be read.
    """
    if source.kind == "gguf":
        from aot.checkpoint.gguf_weights import read_gguf_weights

        found = read_gguf_weights(source.path, config)
    else:
        found = read_tensors(source.path)
    expected = target_shapes(config)
    # Older checkpoints carry the rotary buffer of each layer, and tied ones a copy of the embedding table.
    kept = {
        name: tensor
        for name, tensor in found.items()
        if not name.endswith("rotary_emb.inv_freq") and not (name == "lm_head.weight" and config.tie_word_embeddings)
    }
    check_shapes({name: tuple(tensor.shape) for name, tensor in kept.items()}, expected, what="target")
    return {name: kept[name].to(dtype).contiguous() for name in expected}
