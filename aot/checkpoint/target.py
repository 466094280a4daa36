"""The target model: its config under one spelling, and its weights under Hugging Face's names.

`TargetConfig` holds every fact that shapes the graphs, whether it came from config.json (transformers 4 or 5)
or from a GGUF file's metadata. What all families have in common is read here; what sets one apart it says
itself, in `aot.checkpoint.families`. A model of any other family is refused, and so is a feature of a known
one that our graphs lack: a wrong answer is worse than none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from aot.checkpoint.endings import endings, eos_of_tokenizer
from aot.checkpoint.families.family import Family, refuse_unless
from aot.checkpoint.families.registry import family_named
from aot.checkpoint.fields import Fields, brief, read_json
from aot.checkpoint.gguf_config import config_from_gguf
from aot.checkpoint.gguf_header import read_gguf_header
from aot.checkpoint.gguf_names import hugging_face_name
from aot.checkpoint.headers import Headers, Shapes, read_headers
from aot.checkpoint.rope import reach, read_rope
from aot.checkpoint.source import ModelSource
from aot.checkpoint.tensors import cast, check_shapes, read_tensors
from runtime.bundle.errors import ConfigError

if TYPE_CHECKING:
    import torch

Found = TypeVar("Found")


@dataclass(frozen=True)
class TargetConfig:
    """The facts of a target model that decide its graphs; `rope_scaling` is None or as in rope.py.

    `qkv_bias` to `windows` are `LayerFeatures` of aot/checkpoint/families/family.py.

    Attributes:
        family: a key of the registry of families.
        eos_token_ids: generation ends at any of these, which are all that the model's files name (endings.py).
        tie_word_embeddings: the output head is the embedding table, and `lm_head.weight` does not exist.
        notes: what a user should be told of how the files were read; no fact of the model, so `to_json` lacks it.
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
    qkv_bias: bool = False
    o_bias: bool = False
    qk_norm: bool = False
    windows: tuple[int, ...] = ()
    notes: tuple[str, ...] = dataclasses.field(default=(), compare=False)

    @property
    def max_length(self) -> int:
        """The longest text that the model's positions are made for, in tokens (`aot.checkpoint.rope.reach`)."""
        return reach(self.max_position_embeddings, self.rope_scaling)

    def window(self, layer: int) -> int:
        """How many tokens a row of `layer` sees, itself among them; 0 means all."""
        return self.windows[layer] if self.windows else 0

    def to_json(self) -> dict[str, Any]:
        """`from_json(to_json())` equals self."""
        raw = dataclasses.asdict(self)
        del raw["notes"]
        return raw | {"eos_token_ids": list(self.eos_token_ids), "windows": list(self.windows)}

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> TargetConfig:
        """The config that `to_json` wrote."""
        lists = {"eos_token_ids": tuple(raw["eos_token_ids"]), "windows": tuple(raw.get("windows", ()))}
        return cls(**{**raw, **lists})


def read_target_config(source: ModelSource) -> TargetConfig:
    """The config of the model at `source`.

    Raises:
        ConfigError: it cannot be read, or is of a family or has a feature that is not supported.
    """
    if source.kind == "gguf":
        name = source.name
        return _from_config(Fields(config_from_gguf(read_gguf_header(source.path), name), name), Fields({}, name))
    generation = source.path / "generation_config.json"
    return _from_config(
        Fields(read_json(source.path / "config.json"), f"{source.name}/config.json"),
        Fields(
            read_json(generation) if generation.is_file() else {},
            f"{source.name}/generation_config.json",
        ),
        token=eos_of_tokenizer(source.path),
    )


def target_config_from_json(path_or_dict: Path | str | dict[str, Any]) -> TargetConfig:
    """The config of a model of which only config.json is at hand (the YAML's `model_config:`)."""
    if isinstance(path_or_dict, dict):
        return _from_config(Fields(path_or_dict, "model_config"), Fields({}, "model_config"))
    path = Path(path_or_dict)
    raw = read_json(path, repair="correct model_config; it names the target's config.json")
    return _from_config(Fields(raw, path.name), Fields({}, path.name))


def _from_config(config: Fields, generation: Fields, *, token: int | None = None) -> TargetConfig:
    """The config of a model of any family; keys that it may leave out mean what transformers' class takes."""
    name = config.text("model_type", "")
    family = family_named(name, config.where)
    _refuse_other_models(config, family)
    hidden_size, num_heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    num_layers = config.integer("num_hidden_layers")
    max_positions = config.integer("max_position_embeddings", family.max_position_embeddings)
    theta, scaling, _ = read_rope(config, max_positions=max_positions)
    features = family.features(config, num_layers)
    vocab_size = config.integer("vocab_size")
    eos_token_ids, notes = endings(config, generation, token=token, vocab_size=vocab_size)
    target = TargetConfig(
        family=name,
        hidden_size=hidden_size,
        intermediate_size=config.integer("intermediate_size"),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=_num_kv_heads(config, family, num_heads),
        head_dim=config.integer("head_dim", family.head_dim or max(1, hidden_size // num_heads)),
        vocab_size=vocab_size,
        rms_norm_eps=config.number("rms_norm_eps", 1e-6),
        rope_theta=theta,
        rope_scaling=scaling,
        max_position_embeddings=max_positions,
        tie_word_embeddings=config.flag("tie_word_embeddings", False),
        eos_token_ids=eos_token_ids,
        bos_token_id=config.integer("bos_token_id") if config.has("bos_token_id") else None,
        notes=notes,
        **dataclasses.asdict(features),
    )
    return _checked(target, config.where)


def _num_kv_heads(config: Fields, family: Family, num_heads: int) -> int:
    """An absent key means the family's number, and null means one key head for each query head."""
    absent = family.num_kv_heads if "num_key_value_heads" not in config.raw else None
    return config.integer("num_key_value_heads", absent or num_heads)


def _refuse_other_models(config: Fields, family: Family) -> None:
    architectures = config.raw.get("architectures") or [family.architecture]
    if architectures != [family.architecture]:
        raise ConfigError(
            f"the architecture in {config.where} is not a target model that is supported",
            expected=family.architecture,
            found=brief(architectures),
            repair="give the target model here; the draft belongs under speculative_config.model",
        )
    for key, right, default in (("hidden_act", "silu", "silu"), ("quantization_config", None, None)):
        refuse_unless(config, key, right, default)


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
    return target


def target_shapes(config: TargetConfig) -> Shapes:
    """Every tensor of the target with its shape, in the order in which a forward pass meets them.

    Linear weights are [out, in]; `lm_head.weight` is absent when tied.
    """
    shapes: Shapes = {"model.embed_tokens.weight": (config.vocab_size, config.hidden_size)}
    for layer in range(config.num_layers):
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in layer_shapes(config).items()}
    shapes["model.norm.weight"] = (config.hidden_size,)
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, config.hidden_size)
    return shapes


def layer_shapes(config: TargetConfig) -> Shapes:
    """The tensors of one decoder layer, by their names within it."""
    hidden, inner = config.hidden_size, config.intermediate_size
    widths = {"q": config.num_heads * config.head_dim, "k": config.num_kv_heads * config.head_dim}
    widths["v"] = widths["k"]
    shapes: Shapes = {"input_layernorm.weight": (hidden,)}
    for name, width in widths.items():
        shapes[f"self_attn.{name}_proj.weight"] = (width, hidden)
        if config.qkv_bias:
            shapes[f"self_attn.{name}_proj.bias"] = (width,)
    if config.qk_norm:
        shapes |= {"self_attn.q_norm.weight": (config.head_dim,), "self_attn.k_norm.weight": (config.head_dim,)}
    shapes["self_attn.o_proj.weight"] = (hidden, widths["q"])
    if config.o_bias:
        shapes["self_attn.o_proj.bias"] = (hidden,)
    return shapes | {
        "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
    }


def read_target_headers(source: ModelSource, config: TargetConfig) -> Headers:
    """The target's tensors, without their data, checked against `config`; a GGUF file's by Hugging Face's names.

    Raises:
        ConfigError: a tensor is missing, unknown or of the wrong shape, or a header cannot be read.
    """
    if source.kind == "gguf":
        stored = read_gguf_header(source.path).shapes
        shapes = {hugging_face_name(name): shape for name, shape in stored.items()}
        headers = Headers(dict.fromkeys(shapes, source.path), shapes, frozenset())
    else:
        headers = read_headers(source.path, unread=_unread(config))
    check_shapes(_read(headers.shapes, config), target_shapes(config), what="target")
    return headers


def load_target_weights(source: ModelSource, config: TargetConfig, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """The target's weights by the names of `target_shapes`, contiguous, on the CPU, cast to `dtype`.

    Quantised GGUF tensors are dequantised in float32 first.

    Raises:
        ConfigError: a tensor is missing, unknown or of the wrong shape or not finite, or the weights cannot be read.
    """
    if source.kind == "gguf":
        from aot.checkpoint.gguf_weights import read_gguf_weights

        found = read_gguf_weights(source.path, config)
    else:
        found = read_tensors(source.path, unread=_unread(config))
    expected = target_shapes(config)
    kept = _read(found, config)
    check_shapes({name: tuple(tensor.shape) for name, tensor in kept.items()}, expected, what="target")
    return {name: cast(name, kept[name], dtype, what="target") for name in expected}


def _read(found: Mapping[str, Found], config: TargetConfig) -> dict[str, Found]:
    """Those that are read: older checkpoints carry the rotary buffer of each layer, tied ones a copy of the table."""
    return {
        name: tensor
        for name, tensor in found.items()
        if not name.endswith("rotary_emb.inv_freq") and name not in _unread(config)
    }


def _unread(config: TargetConfig) -> frozenset[str]:
    """The head's tensor where the embedding table stands for it."""
    return frozenset({"lm_head.weight"} if config.tie_word_embeddings else ())
