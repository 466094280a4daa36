"""The draft as it is published, and a training run as it is resumed.

    config.json        the draft's shape under Hugging Face's keys, architectures LlamaForCausalLMEagle3
    model.safetensors  fc, midlayer.*, norm, lm_head; d2t (offsets, int64), t2d (bool over the target's vocabulary)

There is no embed_tokens: like most published drafts it shares the target's. A build reads the folder like any other
draft (`speculative_config.model`).
"""

from __future__ import annotations

import json
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from aot.checkpoint.draft import DraftConfig, draft_config_from_json, load_draft_weights, read_draft_config
from aot.checkpoint.source import ModelSource
from aot.checkpoint.target import TargetConfig
from runtime.bundle.errors import ConfigError, UsageError
from training.draft import TrainableDraft
from training.files import readable


def draft_json(
    target: TargetConfig,
    draft_vocab_size: int,
    aux_layers: tuple[int, ...],
    dtype: str,
    overrides: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """config.json of a draft as wide as `target`; `overrides` are config.json keys, such as num_key_value_heads."""
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": target.hidden_size,
        "target_hidden_size": target.hidden_size,
        "intermediate_size": target.intermediate_size,
        "num_hidden_layers": 1,
        "num_attention_heads": target.num_heads,
        "num_key_value_heads": target.num_kv_heads,
        "head_dim": target.head_dim,
        "vocab_size": target.vocab_size,
        "draft_vocab_size": draft_vocab_size,
        "hidden_act": "silu",
        "rms_norm_eps": target.rms_norm_eps,
        "rope_theta": target.rope_theta,
        "max_position_embeddings": target.max_position_embeddings,
        "tie_word_embeddings": False,
        "torch_dtype": dtype,
        # The second says the same where published ids could mean a layer's output as well
        "eagle_aux_hidden_state_layer_ids": list(aux_layers),
        "aux_layers": list(aux_layers),
        **(overrides or {}),
    }


def write_draft(
    folder: Path, config: dict[str, Any], draft: TrainableDraft, draft_ids: Tensor, dtype: torch.dtype
) -> None:
    """Write a checkpoint; the folder is complete once model.safetensors is there."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    tensors = {name: value.to(dtype).contiguous() for name, value in draft.export().items()}
    t2d = torch.zeros(draft.config.vocab_size, dtype=torch.bool)
    t2d[draft_ids] = True
    tensors |= {"d2t": draft_ids - torch.arange(len(draft_ids)), "t2d": t2d}
    partial = folder / "model.partial"
    save_file(tensors, partial, metadata={"format": "pt"})
    readable(partial)
    partial.replace(folder / "model.safetensors")


def read_draft(folder: Path, target: TargetConfig, embedding: Tensor) -> tuple[TrainableDraft, Tensor]:
    """A checkpoint to measure: the draft and its target ids [Vd].

    Args:
        embedding: [V, H], the target's, for a draft that has none of its own.

    Raises:
        ConfigError: as the builder's reader does.
    """
    source = ModelSource(str(folder), "folder", folder)
    config = read_draft_config(source, target)
    weights = load_draft_weights(source, config, target, torch.float32)
    draft = TrainableDraft(config, weights.get("embed_tokens.weight", embedding))
    ids = torch.arange(config.draft_vocab_size) + weights.pop("d2t")
    own = {name: weights[name] for name, _ in draft.named_parameters()}
    draft.load_state_dict(own, strict=False)  # all but feature_scale, which stays 1
    return draft, ids


def save_state(path: Path, state: dict[str, Any]) -> None:
    """Write the state of a run; an interrupted write leaves the one before."""
    partial = path.with_suffix(".partial")
    torch.save(state, partial)
    partial.replace(path)


def load_state(path: Path, facts: dict[str, Any]) -> dict[str, Any] | None:
    """The state that `save_state` wrote for a run of the same `facts`, or None where there is none.

    Raises:
        ConfigError: the file is damaged.
        UsageError: it was written by a run with other settings; the first difference is named.
    """
    if not path.is_file():
        return None
    try:
        state: dict[str, Any] = torch.load(path, weights_only=True)
        found: dict[str, Any] = state["facts"]
    except (UnpicklingError, RuntimeError, KeyError, EOFError) as error:
        raise ConfigError(
            f"{path} is damaged",
            found=" ".join(str(error).split())[:80],
            repair="remove the folder and train again; its checkpoints can be kept elsewhere",
        ) from None
    for name, value in facts.items():
        if found.get(name) != value:
            raise UsageError(
                f"{path.parent} holds a run with another {name}",
                expected=str(value),
                found=str(found.get(name)),
                repair="choose another --output, or give the same settings to go on with that run",
            )
    return state


def make_draft(config: dict[str, Any], target: TargetConfig, embedding: Tensor) -> tuple[TrainableDraft, DraftConfig]:
    """An untrained draft of the shape that config.json gives, read by the builder's own reader."""
    draft_config = draft_config_from_json(config, target)
    return TrainableDraft(draft_config, embedding), draft_config
