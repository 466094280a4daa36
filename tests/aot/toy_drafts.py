"""Toy EAGLE3 checkpoints as their trainers would publish them, one function for each variant.

All are for the rig's target: 8 layers of width 32, 64 tokens. Tensors are made here from the published formats and not
from the builder's own tables, so that a mistake would have to be made twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors.torch import save_file

from aot.checkpoint.draft import DraftConfig, DraftOptions, load_draft_weights, read_draft_config
from aot.checkpoint.draft_options import AS_PUBLISHED
from aot.checkpoint.source import ModelSource
from aot.checkpoint.target import TargetConfig
from tests.runtime.loop.rig import Rig, Shape, attentive, make_rig, rig_of_pair

Json = dict[str, Any]
Tensors = dict[str, torch.Tensor]

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


@dataclass
class Published:
    """A checkpoint: its files' content, what a user says beside it, and some facts that it must be read as.

    Attributes:
        form: safetensors, sharded or bin.
        facts: fields of DraftConfig with the value that they must have.
    """

    config: Json
    tensors: Tensors
    facts: Json = field(default_factory=dict)
    options: DraftOptions = AS_PUBLISHED
    form: str = "safetensors"

    def write(self, folder: Path) -> ModelSource:
        """Write it into `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config), encoding="utf-8")
        if self.form == "bin":
            torch.save(self.tensors, folder / "pytorch_model.bin")
        elif self.form == "sharded":
            names = sorted(self.tensors)
            parts = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
            for file, held in parts.items():
                save_file({name: self.tensors[name] for name in held}, folder / file)
            index = {"weight_map": {name: file for file, held in parts.items() for name in held}}
            (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
        else:
            save_file(self.tensors, folder / "model.safetensors")
        return ModelSource("toy", "folder", folder)

    def read(self, folder: Path, target: TargetConfig) -> DraftConfig:
        """Write it and read its config back."""
        return read_draft_config(self.write(folder), target, options=self.options)


class Parts:
    """Draws a draft's tensors, norm weights around one and biases around zero."""

    def __init__(self, seed: int = 0) -> None:
        self.random = torch.Generator().manual_seed(seed)
        self.tensors: Tensors = {}

    def linear(self, name: str, outputs: int, inputs: int, *, bias: bool = False) -> None:
        self.tensors[name + ".weight"] = torch.randn(outputs, inputs, generator=self.random) * inputs**-0.5
        if bias:
            self.tensors[name + ".bias"] = torch.randn(outputs, generator=self.random) * 0.3

    def norm(self, name: str, size: int) -> None:
        self.tensors[name + ".weight"] = 1 + 0.3 * torch.randn(size, generator=self.random)

    def table(self, name: str, rows: int, width: int) -> None:
        self.tensors[name + ".weight"] = torch.randn(rows, width, generator=self.random)


def tensors(
    *,
    hidden: int = 32,
    target: int = 32,
    states: int = 3,
    head_dim: int = 8,
    layers: int = 1,
    first: str = "midlayer.",
    vocab: int = 16,
    attention_bias: bool = False,
    mlp_bias: bool = False,
    fc_bias: bool = False,
    qk_norm: bool = False,
    head: bool = True,
    seed: int = 0,
) -> Tensors:
    """fc, the layers, norm and lm_head under SafeAILab's names, with d2t and t2d where the vocabulary is reduced."""
    parts, inner, heads, kv_heads = Parts(seed), 40, 4, 2
    if states:
        parts.linear("fc", hidden, states * target, bias=fc_bias)
    for layer in range(layers):
        prefix, inputs = (first, 2 * hidden) if layer == 0 else (f"layers.{layer}.", hidden)
        if layer == 0:
            parts.norm(prefix + "hidden_norm", hidden)
        parts.norm(prefix + "input_layernorm", hidden)
        for name, count in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
            parts.linear(f"{prefix}self_attn.{name}_proj", count * head_dim, inputs, bias=attention_bias)
        if qk_norm:
            parts.norm(prefix + "self_attn.q_norm", head_dim)
            parts.norm(prefix + "self_attn.k_norm", head_dim)
        parts.linear(prefix + "self_attn.o_proj", hidden, heads * head_dim, bias=attention_bias)
        parts.norm(prefix + "post_attention_layernorm", hidden)
        for name in ("gate", "up"):
            parts.linear(f"{prefix}mlp.{name}_proj", inner, hidden, bias=mlp_bias)
        parts.linear(prefix + "mlp.down_proj", hidden, inner, bias=mlp_bias)
    parts.norm("norm", hidden)
    if head:
        parts.linear("lm_head", vocab, hidden)
    made = attentive(parts.tensors)
    return made | mapping(vocab, seed) if vocab < 64 else made


def mapping(vocab: int, seed: int = 0) -> Tensors:
    """d2t and t2d of `vocab` random ids of 64."""
    ids = torch.randperm(64, generator=torch.Generator().manual_seed(seed))[:vocab].sort().values
    t2d = torch.zeros(64, dtype=torch.bool)
    t2d[ids] = True
    return {"d2t": ids - torch.arange(vocab), "t2d": t2d}


def original(**changes: object) -> Json:
    """SafeAILab's config.json: no head_dim, no RoPE, no ids."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 32,
        "intermediate_size": 40,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 64,
        "draft_vocab_size": 16,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 64,
        **changes,
    }


def eagle3(**changes: object) -> Json:
    """SpecForge's config.json."""
    return original(**{"architectures": ["LlamaForCausalLMEagle3"], "head_dim": 8, "rope_theta": 1e4, **changes})


def wrapped(layer: Json | None = None, **changes: object) -> Json:
    """speculators' config.json."""
    shape = {key: original()[key] for key in ("model_type", "hidden_size", "intermediate_size", "vocab_size")}
    shape |= {"num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 1, "rms_norm_eps": 1e-5}
    return {
        "architectures": ["Eagle3DraftModel"],
        "speculators_model_type": "eagle3",
        "speculators_version": "0.3.0",
        "draft_vocab_size": 16,
        "norm_before_residual": False,
        "eagle_aux_hidden_state_layer_ids": [2, 4, 5],
        "transformer_layer_config": {**shape, "head_dim": 8, "max_position_embeddings": 64, **(layer or {})},
        "speculators_config": {"algorithm": "eagle3", "verifier": {"name_or_path": "toy"}},
        "tie_word_embeddings": False,
        **changes,
    }


# The forms


def safeailab() -> Published:
    facts = {"form": "safeailab", "aux_layers": (2, 4, 5), "head_dim": 8, "draft_vocab_size": 16, "rope_theta": 1e4}
    return Published(original(), tensors(), facts, form="bin")


def specforge() -> Published:
    config = eagle3(eagle_config={"eagle_aux_hidden_state_layer_ids": [1, 3, 4]})
    facts = {"form": "specforge", "aux_layers": (2, 4, 5), "aux_semantic": "output_of"}
    return Published(config, tensors(), facts, form="sharded")


def modelopt() -> Published:
    """The newer export: layer names as they are, the layer's two input norms outside it, no t2d."""
    flags = {"use_aux_hidden_state": True, "use_last_layernorm": True, "use_mtp_layernorm": False}
    ids = {"eagle_aux_hidden_state_layer_ids": [1, 3, 4], "use_input_layernorm_in_first_layer": True}
    made = tensors(first="layers.0.")
    made["hidden_norm.weight"] = made.pop("layers.0.hidden_norm.weight")
    made["input_embeds_norm.weight"] = made.pop("layers.0.input_layernorm.weight")
    del made["t2d"]
    return Published(eagle3(eagle_config={**flags, **ids}), made, {"form": "modelopt", "aux_layers": (2, 4, 5)})


def speculators() -> Published:
    made = tensors(first="layers.0.")
    made["embed_tokens.weight"] = torch.randn(64, 32, generator=torch.Generator().manual_seed(5))
    return Published(wrapped(), made, {"form": "speculators", "aux_layers": (2, 4, 5), "own_embedding": True})


def speculators_qwen3() -> Published:
    config = wrapped({"model_type": "qwen3", "attention_bias": True})
    made = tensors(first="layers.0.", attention_bias=True, qk_norm=True)
    return Published(config, made, {"qkv_bias": True, "o_bias": True, "qk_norm": True, "own_embedding": False})


# What drafts read of their target


def one_state() -> Published:
    config = eagle3(eagle_aux_hidden_state_layer_ids=[2])
    return Published(config, tensors(states=1), {"aux_layers": (2,), "num_aux": 1})


def five_states() -> Published:
    """A4: ids that name N = 8 are positions; 8 is what leaves the last layer, before the final norm."""
    config = eagle3(eagle_aux_hidden_state_layer_ids=[1, 3, 4, 6, 8], num_aux_hidden_states=5)
    return Published(config, tensors(states=5), {"aux_layers": (1, 3, 4, 6, 8), "num_aux": 5})


def other_width() -> Published:
    config = eagle3(hidden_size=48, target_hidden_size=32)
    made = tensors(hidden=48)
    made["embed_tokens.weight"] = torch.randn(64, 48, generator=torch.Generator().manual_seed(5))
    return Published(config, made, {"hidden_size": 48, "target_hidden_size": 32, "own_embedding": True})


def joined_norm() -> Published:
    """C3: the flag under eagle_config."""
    made = tensors()
    made["input_norm.weight"] = torch.linspace(0.5, 1.5, 96)
    return Published(eagle3(eagle_config={"norm_before_fc": True}), made, {"feature_norm": "joined"})


def norm_of_each_state() -> Published:
    made = tensors()
    made |= {f"fc_norm.{i}.weight": torch.linspace(0.5, 1.5 + i, 32) for i in range(3)}
    return Published(eagle3(fc_norm=True), made, {"feature_norm": "each"})


def norm_of_each_state_by_older_names() -> Published:
    made = tensors()
    names = ("low", "mid", "high")
    made |= {f"aux_norm_{name}.weight": torch.linspace(0.5, 1.5 + i, 32) for i, name in enumerate(names)}
    return Published(eagle3(), made, {"feature_norm": "each"})


def final_state() -> Published:
    """A8: no fc; the draft reads the target's final normed state."""
    config = eagle3(eagle_config={"use_aux_hidden_state": False})
    return Published(config, tensors(states=0), {"features": "final", "aux_layers": (), "num_aux": 1})


# Inside the draft


def two_layers() -> Published:
    return Published(eagle3(num_hidden_layers=2), tensors(layers=2), {"num_layers": 2})


def three_layers_of_which_the_config_names_one() -> Published:
    made = tensors(layers=3, first="layers.0.", mlp_bias=True, qk_norm=True)
    return Published(eagle3(num_hidden_layers=1), made, {"num_layers": 3, "mlp_bias": True, "qk_norm": True})


def norm_before_residual() -> Published:
    return Published(eagle3(norm_before_residual=True), tensors(), {"norm_before_residual": True})


def norm_output() -> Published:
    return Published(wrapped(norm_output=True), tensors(first="layers.0."), {"norm_output": True})


def biases() -> Published:
    config = eagle3(attention_bias=True, mlp_bias=True, bias=True)
    facts = {"qkv_bias": True, "o_bias": True, "mlp_bias": True, "fc_bias": True}
    return Published(config, tensors(attention_bias=True, mlp_bias=True, fc_bias=True), facts)


def biases_of_queries_keys_and_values() -> Published:
    made = tensors(attention_bias=True)
    del made["midlayer.self_attn.o_proj.bias"]
    return Published(eagle3(qkv_bias=True), made, {"qkv_bias": True, "o_bias": False})


def query_and_key_norms() -> Published:
    return Published(eagle3(), tensors(qk_norm=True), {"qk_norm": True})


def wide_heads() -> Published:
    """B14: head_dim is not hidden_size over heads."""
    return Published(eagle3(head_dim=16), tensors(head_dim=16), {"head_dim": 16})


def sliding_window() -> Published:
    config = wrapped({"sliding_window": 5, "layer_types": ["sliding_attention"]})
    return Published(config, tensors(first="layers.0."), {"windows": (5,)})


def sliding_window_in_the_second_layer() -> Published:
    layer = {"sliding_window": 4, "layer_types": ["full_attention", "sliding_attention"], "num_hidden_layers": 2}
    return Published(wrapped(layer), tensors(first="layers.0.", layers=2), {"windows": (0, 4)})


def window_by_override() -> Published:
    return Published(eagle3(), tensors(), {"windows": (6,)}, DraftOptions(attention_window=6))


def rope_llama3() -> Published:
    scaling = {**LLAMA3, "rope_theta": 5e5}
    return Published(original(head_dim=8, rope_parameters=scaling), tensors(), {"rope_theta": 5e5})


def rope_yarn() -> Published:
    scaling = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
    return Published(eagle3(rope_scaling=scaling), tensors(), {"rope_theta": 1e4})


def rope_linear() -> Published:
    scaling = {"type": "linear", "factor": 2.0}
    return Published(eagle3(rope_scaling=scaling), tensors(), {"rope_scaling": {"rope_type": "linear", "factor": 2.0}})


def rope_dynamic() -> Published:
    """Trained as long as the rig's texts get, and then it is the plain form."""
    scaling = {"rope_type": "dynamic", "factor": 2.0}
    facts = {"rope_scaling": {**scaling, "original_max_position_embeddings": 64}}
    return Published(eagle3(rope_scaling=scaling), tensors(), facts)


def logit_scale() -> Published:
    return Published(eagle3(logit_scale=0.25), tensors(), {"logit_scale": 0.25})


# Vocabulary, embedding, head


def full_vocabulary() -> Published:
    config = eagle3(draft_vocab_size=64)
    return Published(config, tensors(vocab=64), {"draft_vocab_size": 64})


def no_head_of_its_own() -> Published:
    """The target's head rows of the ids that t2d marks."""
    made = tensors(head=False)
    del made["d2t"]
    return Published(eagle3(), made, {"own_head": False, "draft_vocab_size": 16})


def no_head_and_the_whole_vocabulary() -> Published:
    config = eagle3(draft_vocab_size=64)
    return Published(config, tensors(vocab=64, head=False), {"own_head": False, "draft_vocab_size": 64})


def targets_embedding_by_override() -> Published:
    """B7: the file's own table is noise and is not read."""
    made = tensors()
    made["embed_tokens.weight"] = torch.full((64, 32), float("nan"))
    return Published(eagle3(), made, {"own_embedding": False}, DraftOptions(embed_tokens="target"))


def stored_in_float16() -> Published:
    made = {name: value.half() if value.is_floating_point() else value for name, value in tensors().items()}
    return Published(eagle3(torch_dtype="float16"), made, {"stored_dtype": "float16"})


VARIANTS: dict[str, Callable[[], Published]] = {
    make.__name__.replace("_", " "): make
    for make in (
        safeailab,
        specforge,
        modelopt,
        speculators,
        speculators_qwen3,
        one_state,
        five_states,
        other_width,
        joined_norm,
        norm_of_each_state,
        norm_of_each_state_by_older_names,
        final_state,
        two_layers,
        three_layers_of_which_the_config_names_one,
        norm_before_residual,
        norm_output,
        biases,
        biases_of_queries_keys_and_values,
        query_and_key_norms,
        wide_heads,
        sliding_window,
        sliding_window_in_the_second_layer,
        window_by_override,
        rope_llama3,
        rope_yarn,
        rope_linear,
        rope_dynamic,
        logit_scale,
        full_vocabulary,
        no_head_of_its_own,
        no_head_and_the_whole_vocabulary,
        targets_embedding_by_override,
        stored_in_float16,
    )
}


@lru_cache(maxsize=len(VARIANTS))
def rig_of_variant(name: str) -> Rig:
    """The rig with its own target and the draft that VARIANTS[name] publishes, read from disk."""
    plain, published = make_rig(Shape()), VARIANTS[name]()
    with TemporaryDirectory() as folder:
        source = published.write(Path(folder) / "draft")
        config = read_draft_config(source, plain.target, options=published.options)
        weights = load_draft_weights(source, config, plain.target, torch.float32)
    return rig_of_pair(plain.target, plain.target_weights, config, weights)
