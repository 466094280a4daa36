"""Where training starts: the draft's layer from the target's own last layer.

A target's last layer already turns late hidden states into logits, and the draft's is asked for much the same, one
token further on. So all that has a counterpart is copied: the MLP, the output projection and norms of the last layer,
the half of its query, key and value projections that reads hidden states, the final norm, and the head's rows of the
draft vocabulary. `fc` begins by passing on the last auxiliary state. The halves that read the token's embedding begin
small and random.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from aot.build.scopes import target_head
from aot.checkpoint.target import TargetConfig
from training.corpus import TrainingSequence
from training.draft import TrainableDraft

SMALL = 0.02
# Sequences from which the features' spread is estimated
SAMPLE = 64


@torch.no_grad()
def start_from_target(
    draft: TrainableDraft, target: TargetConfig, weights: Mapping[str, Tensor], draft_ids: Tensor, seed: int
) -> None:
    """Fill `draft` in place; what has no counterpart of the same shape stays random."""
    generator = torch.Generator().manual_seed(seed)
    hidden, config = draft.config.hidden_size, draft.config
    last = f"model.layers.{target.num_layers - 1}."
    source = {
        "norm.weight": weights["model.norm.weight"],
        "lm_head.weight": target_head(weights)[draft_ids],
        "midlayer.hidden_norm.weight": weights[last + "input_layernorm.weight"],
    }
    for name in ("post_attention_layernorm", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"):
        source[f"midlayer.{name}.weight"] = weights[f"{last}{name}.weight"]
    for name, parameter in draft.named_parameters():
        if parameter.ndim == 2:
            parameter.normal_(0.0, SMALL, generator=generator)
        if name in source and source[name].shape == parameter.shape:
            parameter.copy_(source[name])
    for name in "qkv":
        parameter = draft.get_parameter(f"midlayer.self_attn.{name}_proj.weight")
        whole = weights[f"{last}self_attn.{name}_proj.weight"]
        if whole.shape[0] == parameter.shape[0] and target.hidden_size == hidden:
            parameter[:, hidden:].copy_(whole)
    if config.target_hidden_size == hidden:
        draft.fc.weight[:, -hidden:].copy_(torch.eye(hidden))
        draft.fc.weight[:, :-hidden].mul_(0.1)


def feature_scale(sequences: Sequence[TrainingSequence]) -> Tensor:
    """About one over the standard deviation of each feature channel, [A*H]: the nearest power of two, which scales a
    bf16 feature and a bf16 weight without rounding either. The first token's row, of which many targets make a sink
    with values a thousand times as large, is left out."""
    rows = torch.cat([sequence.features[1:].float() for sequence in sequences[:: max(1, len(sequences) // SAMPLE)]])
    return torch.exp2(-rows.std(0, correction=0).clamp(min=1e-6).log2().round())
