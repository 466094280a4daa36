"""Weights in sizes that a backend's hardware wants: hidden channels and vocabulary rows that no model has.

A matrix unit may want a hidden size of 3,072 where a model has 2,880, or as many rows of the head on every rank. Then
the graphs are made in the padded sizes (`target_padding` and `draft_padding` of `Geometry`) and the weights are padded
here, by three rules:

1. Whatever is summed over has zeros in its padding: the columns of a linear layer that reads hidden states.
2. Whatever is written to a padded channel does not matter, for no norm reads it: a norm's mean is over the model's own
   channels, and its output has zeros in the others (`RMSNorm(real=...)`).
3. Rows of the head that stand for no token have logits of minus infinity, whatever their weights are.

Features leave the target's graphs without padding, so the draft has sizes of its own. What a draft hands on to its next
step is padded. Where several states stand side
by side, each is padded by itself (`pad_parts`): zeros behind the last would put the second state's channels where the
first one's weights are.

Source: the weight loaders fc_interleaved_padding and embedding_sharding_padding of vLLM Neuron's EAGLE3 design.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from aot.graphs.geometry import Geometry

# The axes of weights that are as long as the vocabulary and the hidden size; no other is padded
_AXES: dict[str, tuple[int | None, int | None]] = {
    "embed_tokens.weight": (0, 1),
    "input_layernorm.weight": (None, 0),
    "self_attn.qkv_proj.weight": (None, 1),
    "self_attn.o_proj.weight": (None, 0),
    "self_attn.o_proj.bias": (None, 0),
    "post_attention_layernorm.weight": (None, 0),
    "mlp.gate_up_proj.weight": (None, 1),
    "mlp.down_proj.weight": (None, 0),
    "mlp.down_proj.bias": (None, 0),
    "norm.weight": (None, 0),
    "lm_head.weight": (0, 1),
}


def pad(tensor: Tensor, axis: int, size: int) -> Tensor:
    """`tensor` with zeros behind its entries along `axis`, up to `size` of them.

    Raises:
        ValueError: it has more entries than that.
    """
    if tensor.shape[axis] > size:
        raise ValueError(f"{tensor.shape[axis]} entries cannot be padded to {size}")
    behind = [0] * (2 * tensor.dim())
    # F.pad counts axes from the last, and for each names what comes before and behind
    behind[2 * (tensor.dim() - 1 - axis) + 1] = size - tensor.shape[axis]
    return F.pad(tensor, behind)


def pad_parts(tensor: Tensor, axis: int, parts: int, size: int) -> Tensor:
    """`tensor` with each of `parts` equal stretches along `axis` padded to `size` on its own.

    fc reads the auxiliary states side by side: `pad_parts(fc, 1, 3, Hp)` takes its weight from [H, 3 * Ht] to
    [H, 3 * Hp], for states that are padded to Hp each.
    """
    before, behind = tensor.shape[:axis], tensor.shape[axis + 1 :]
    split = tensor.reshape(*before, parts, tensor.shape[axis] // parts, *behind)
    return pad(split, axis + 1, size).flatten(axis, axis + 1)


def pad_target_scope(scope: dict[str, Tensor], geometry: Geometry) -> dict[str, Tensor]:
    """A scope of the target in the sizes of its graphs; as it is where the backend wants the model's own."""
    padding, padded = geometry.target_padding, dict(scope)
    for name in scope:
        for axis, size in zip(_AXES.get(name, (None, None)), (padding.vocab, padding.hidden), strict=True):
            if axis is not None and size:
                padded[name] = pad(padded[name], axis, size)
    return padded


def pad_draft_scope(scope: dict[str, Tensor], geometry: Geometry) -> dict[str, Tensor]:
    """The draft's scope in the sizes of its graphs; as it is where the backend wants the model's own.

    Its embedding table is as long as the target's vocabulary and stays so. The first layer reads the embedding and the
    hidden state side by side, and each is padded by itself; `fc` reads the target's features, which have no padding.
    """
    padding, padded = geometry.draft_padding, dict(scope)
    for name, weight in scope.items():
        plain = name if not name.startswith("layers.") else name.split(".", 2)[2]
        rows, channels = _AXES.get(plain, (None, 0 if plain.startswith(("fc.", "hidden_norm.")) else None))
        if padding.hidden and name == "self_attn.qkv_proj.weight":
            padded[name] = pad_parts(weight, 1, 2, padding.hidden)
        elif padding.hidden and channels is not None:
            padded[name] = pad(weight, channels, padding.hidden)
        if padding.vocab and rows is not None and plain == "lm_head.weight":
            padded[name] = pad(padded[name], rows, padding.vocab)
    return padded
