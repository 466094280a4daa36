"""The draft as it is published, and a training run as it is resumed.

    config.json        the draft's shape under Hugging Face's keys, architectures LlamaForCausalLMEagle3
    model.safetensors  fc, midlayer.*, norm, lm_head; d2t (offsets, int64), t2d (bool over the target's vocabulary)

There is no embed_tokens: like most published drafts it shares the target's. A build reads the folder like any other
draft (`speculative_config.model`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from aot.checkpoint.draft import DraftConfig, draft_config_from_json
from aot.checkpoint.target import TargetConfig
from runtime.bundle.errors import UsageError
from training.draft import TrainableDraft


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
    partial.replace(folder / "model.safetensors")


def read_draft(folder: Path, target: TargetConfig, embedding: Tensor) -> tuple[TrainableDraft, Tensor, dict[str, Any]]:
    """A checkpoint to measure or to train further: the draft, its target ids [Vd] and its config.json.

    Raises:
        ConfigError: as the builder's reader does.
    """
    from aot.checkpoint.draft import load_draft_weights, read_draft_config
    from aot.checkpoint.source import resolve

    source = resolve(str(folder), key="--draft", base=Path.cwd())
    config = read_draft_config(source, target)
    weights = load_draft_weights(source, config, target, torch.float32)
    draft = TrainableDraft(config, embedding)
    ids = torch.arange(config.draft_vocab_size) + weights.pop("d2t")
    own = {name: weights[name] for name, _ in draft.named_parameters()}
    draft.load_state_dict(own, strict=False)  # all but feature_scale, which stays 1
    return draft, ids, json.loads((folder / "config.json").read_text(encoding="utf-8"))


def save_state(path: Path, state: dict[str, Any]) -> None:
    """Write the state of a run; an interrupted write leaves the one before."""
    partial = path.with_suffix(".partial")
    torch.save(state, partial)
    partial.replace(path)


def load_state(path: Path, facts: dict[str, Any]) -> dict[str, Any] | None:
    """The state that `save_state` wrote for a run of the same `facts`, or None where there is none.

    Raises:
        UsageError: it was written by a run with other settings; the first difference is named.
    """
    if not path.is_file():
        return None
    state: dict[str, Any] = torch.load(path, weights_only=True)
    for name, value in facts.items():
        if state["facts"].get(name) != value:
            raise UsageError(
                f"{path.parent} holds a run with another {name}",
                expected=str(value),
                found=str(state["facts"].get(name)),
                repair="choose another --output, or give the same settings to go on with that run",
            )
    return state


def make_draft(config: dict[str, Any], target: TargetConfig, embedding: Tensor) -> tuple[TrainableDraft, DraftConfig]:
    """An untrained draft of the shape that config.json gives, read by the builder's own reader."""
    draft_config = draft_config_from_json(config, target)
    return TrainableDraft(draft_config, embedding), draft_config
