"""The reference to which all else is compared: target, draft and EAGLE3 chain in the plainest PyTorch.

No pages, no cache, no batch: each function takes a whole token sequence and recomputes all of it. One
sequence of T tokens is [T, hidden]; heads are [T, heads, head_dim]. Numerics are those of Hugging Face's
models where they matter: the residual is added in the model's dtype, RMSNorm runs in float32 on the rounded
sum and is cast before its weight is multiplied, softmax runs in float32. Rotation runs in float32 and is cast
once.

    row i of the draft holds (feature of token i, token i + 1) at position i            (facts of the
    published code)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
import torch.nn.functional as F

from aot.checkpoint.draft import DraftConfig
from aot.checkpoint.rope import attention_factor, inverse_frequencies
from aot.checkpoint.target import TargetConfig

Weights = Mapping[str, torch.Tensor]


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """weight * x / sqrt(mean(x**2) + eps) over the last dimension."""
    x32 = x.float()
    normed = x32 * torch.rsqrt(x32.pow(2).mean(-1, keepdim=True) + eps)
    return weight * normed.to(x.dtype)


def linear(x: torch.Tensor, weights: Weights, name: str) -> torch.Tensor:
    """x times `name`.weight, and `name`.bias added where there is one."""
    made = F.linear(x, weights[name + ".weight"])
    return made + weights[name + ".bias"] if name + ".bias" in weights else made


def rotate(x: torch.Tensor, frequencies: torch.Tensor, factor: float = 1.0) -> torch.Tensor:
    """Rotary embedding of x [T, heads, head_dim] at positions 0..T-1, pairs (x[i], x[i + head_dim / 2])."""
    angles = torch.arange(len(x)).float()[:, None] * frequencies
    cos, sin = factor * angles.cos()[:, None, :], factor * angles.sin()[:, None, :]
    first, second = x.float().chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x.dtype)


def causal_attention(
    x: torch.Tensor,
    weights: Weights,
    prefix: str,
    config: TargetConfig | DraftConfig,
    *,
    window: int = 0,
    longest: int = 0,
) -> torch.Tensor:
    """Grouped-query attention of x [T, width], before the residual is added: [T, hidden].

    Projections have biases, and queries and keys a norm over each head, where `weights` says so.

    Args:
        window: how many tokens a row sees, itself among them; 0 means all before it.
        longest: the length that rope is made for (`inverse_frequencies`).
    """
    length, groups = len(x), config.num_heads // config.num_kv_heads
    query = linear(x, weights, prefix + "q_proj").view(length, config.num_heads, config.head_dim)
    key = linear(x, weights, prefix + "k_proj").view(length, config.num_kv_heads, config.head_dim)
    value = linear(x, weights, prefix + "v_proj").view(length, config.num_kv_heads, config.head_dim)
    if prefix + "q_norm.weight" in weights:
        query = rms_norm(query, weights[prefix + "q_norm.weight"], config.rms_norm_eps)
        key = rms_norm(key, weights[prefix + "k_norm.weight"], config.rms_norm_eps)
    frequencies = inverse_frequencies(config.head_dim, config.rope_theta, config.rope_scaling, length=longest)
    factor = attention_factor(config.rope_scaling)
    query, key = rotate(query, frequencies, factor), rotate(key, frequencies, factor)
    # Query head h reads key-value head h // groups.
    key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    scores = torch.einsum("qhd,khd->hqk", query, key) * config.head_dim**-0.5
    unseen = torch.ones(length, length, dtype=torch.bool).triu(1)
    if window:
        unseen |= torch.ones(length, length, dtype=torch.bool).tril(-window)
    shares = scores.float().masked_fill(unseen, float("-inf")).softmax(-1).to(x.dtype)
    mixed = torch.einsum("hqk,khd->qhd", shares, value).reshape(length, -1)
    return linear(mixed, weights, prefix + "o_proj")


def mlp(x: torch.Tensor, weights: Weights, prefix: str) -> torch.Tensor:
    """down(silu(gate(x)) * up(x)), [T, hidden]."""
    gate, up = (linear(x, weights, f"{prefix}{name}_proj") for name in ("gate", "up"))
    return linear(F.silu(gate) * up, weights, prefix + "down_proj")


@torch.inference_mode()
def target_forward(
    weights: Weights, config: TargetConfig, token_ids: Sequence[int], aux_layers: Sequence[int] = ()
) -> tuple[torch.Tensor, torch.Tensor]:
    """The target over a whole sequence.

    Args:
        weights: by the names of `target_shapes`.
        token_ids: T of them, at positions 0..T-1.
        aux_layers: residual-stream positions to capture, each in [0, num_layers].

    Returns:
        Logits, float32 [T, vocab_size], row i predicting token i + 1; and the captured states side by side in
        the order of `aux_layers`, in the model's dtype, [T, len(aux_layers) * hidden_size].
    """
    stream = weights["model.embed_tokens.weight"][torch.tensor(token_ids, dtype=torch.int64)]
    entering = [stream]
    for layer in range(config.num_layers):
        prefix, eps = f"model.layers.{layer}.", config.rms_norm_eps
        normed = rms_norm(stream, weights[prefix + "input_layernorm.weight"], eps)
        stream = stream + causal_attention(normed, weights, prefix + "self_attn.", config, window=config.window(layer))
        normed = rms_norm(stream, weights[prefix + "post_attention_layernorm.weight"], eps)
        stream = stream + mlp(normed, weights, prefix + "mlp.")
        entering.append(stream)
    head = weights["model.embed_tokens.weight" if config.tie_word_embeddings else "lm_head.weight"]
    # Factors widened, so that products are summed and given out in float32 whatever the model's dtype
    logits = F.linear(rms_norm(stream, weights["model.norm.weight"], config.rms_norm_eps).float(), head.float())
    captured = [entering[layer] for layer in aux_layers]
    return logits, torch.cat(captured, dim=-1) if captured else stream[:, :0]


def target_greedy(weights: Weights, config: TargetConfig, prompt: Sequence[int], n: int) -> list[int]:
    """The `n` tokens of plain greedy decoding after `prompt`; end-of-sequence ids do not stop it."""
    token_ids = list(prompt)
    for _ in range(n):
        logits, _ = target_forward(weights, config, token_ids)
        token_ids.append(int(logits[-1].argmax()))
    return token_ids[len(prompt) :]


@torch.inference_mode()
def draft_state(weights: Weights, config: DraftConfig, features: torch.Tensor) -> torch.Tensor:
    """What the draft makes of the target's features [T, num_aux * target_hidden_size]: its state, [T, hidden_size].

    The features are normed, joined or each state by itself, where the draft has such norms, and reduced by fc; a draft
    on the target's final state takes that as it is.
    """
    eps, width = config.rms_norm_eps, config.target_hidden_size
    if config.feature_norm == "joined":
        features = rms_norm(features, weights["input_norm.weight"], eps)
    if config.feature_norm == "each":
        states = features.view(len(features), -1, width)
        normed = [rms_norm(states[:, i], weights[f"fc_norm.{i}.weight"], eps) for i in range(config.num_aux)]
        features = torch.cat(normed, dim=-1)
    return features if config.features == "final" else linear(features, weights, "fc")


@torch.inference_mode()
def draft_forward(
    weights: Weights,
    config: DraftConfig,
    token_ids_shifted: Sequence[int],
    hidden: torch.Tensor,
    which: Literal["features", "state"] = "features",
    longest: int = 0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The draft over a whole sequence of rows.

    Args:
        weights: by the names of `draft_shapes`, with what it shares of the target's (`with_shared`).
        token_ids_shifted: T target-vocabulary ids; row i holds the token that FOLLOWS the position of hidden
            row i.
        hidden: features [T, num_aux * target_hidden_size], or states [T, hidden_size] that `draft_state` has
            already made or an earlier row has put out.
        which: what `hidden` is.
        longest: the length that rope is made for (`inverse_frequencies`).

    Returns:
        Logits over the draft's vocabulary, float32 [T, draft_vocab_size]; and the recurrent states, which are
        the stream before the final norm (after it with norm_output), [T, hidden_size].
    """
    eps, windows = config.rms_norm_eps, config.windows or (0,) * config.num_layers
    state = draft_state(weights, config, hidden) if which == "features" else hidden
    embedded = weights["embed_tokens.weight"][torch.tensor(token_ids_shifted, dtype=torch.int64)]
    normed_state = rms_norm(state, weights["midlayer.hidden_norm.weight"], eps)
    # The embedding half comes first.
    x = torch.cat([rms_norm(embedded, weights["midlayer.input_layernorm.weight"], eps), normed_state], dim=-1)
    stream = normed_state if config.norm_before_residual else state
    for layer in range(config.num_layers):
        prefix = f"layers.{layer}." if layer else "midlayer."
        if layer:
            # Further layers read the stream alone, normed as vLLM norms it.
            x = rms_norm(stream, weights[prefix + "input_layernorm.weight"], eps)
        attention = causal_attention(x, weights, prefix + "self_attn.", config, window=windows[layer], longest=longest)
        stream = stream + attention
        normed = rms_norm(stream, weights[prefix + "post_attention_layernorm.weight"], eps)
        stream = stream + mlp(normed, weights, prefix + "mlp.")
    final = rms_norm(stream, weights["norm.weight"], eps)
    logits = F.linear(final.float(), weights["lm_head.weight"].float()) * config.logit_scale
    return logits, final if config.norm_output else stream


def with_shared(draft_weights: Weights, target_weights: Weights) -> dict[str, torch.Tensor]:
    """The draft's weights with the target's embedding table and head rows where it has none of its own."""
    embedding = target_weights["model.embed_tokens.weight"]
    shared = {"embed_tokens.weight": embedding}
    if "lm_head.weight" not in draft_weights:
        ids = torch.arange(len(draft_weights["d2t"])) + draft_weights["d2t"]
        shared["lm_head.weight"] = target_weights.get("lm_head.weight", embedding)[ids]
    return {**shared, **draft_weights}


@torch.inference_mode()
def draft_features(
    target_weights: Weights, target_config: TargetConfig, draft_config: DraftConfig, token_ids: Sequence[int]
) -> torch.Tensor:
    """What the draft reads of the target for `token_ids`, [T, num_aux * target_hidden_size]."""
    if draft_config.features == "auxiliary":
        return target_forward(target_weights, target_config, token_ids, draft_config.aux_layers)[1]
    _, last = target_forward(target_weights, target_config, token_ids, (target_config.num_layers,))
    return rms_norm(last, target_weights["model.norm.weight"], target_config.rms_norm_eps)


@torch.inference_mode()
def eagle3_greedy_chain(
    target_weights: Weights,
    target_config: TargetConfig,
    draft_weights: Weights,
    draft_config: DraftConfig,
    committed: Sequence[int],
    num_speculative_tokens: int,
) -> list[int]:
    """The draft tokens proposed after `committed`, as target-vocabulary ids.

    The last committed token has been chosen and not yet been run through the target, so of n tokens the first
    n - 1 have features, and the draft has rows 0..n-2: row i holds (feature i, token i + 1). Its last row
    proposes the first draft token. Each further row holds (state that the row before put out, token it
    proposed) at the next position, and attends to all rows before it: those with true features and those with
    the draft's own approximate states.

    Args:
        committed: at least two tokens, prompt and output together.
        num_speculative_tokens: K, how many to propose.

    Returns:
        K ids.
    """
    if len(committed) < 2:
        raise ValueError("a draft row needs a feature and the token after it: at least two committed tokens")
    weights = with_shared(draft_weights, target_weights)
    features = draft_features(target_weights, target_config, draft_config, committed[:-1])
    states, tokens = draft_state(weights, draft_config, features), list(committed[1:])
    proposed: list[int] = []
    while len(proposed) < num_speculative_tokens:
        # A row's keys and values depend on it and those before it alone, so recomputing all of them is the cache.
        logits, put_out = draft_forward(weights, draft_config, tokens, states, which="state")
        draft_id = int(logits[-1].argmax())
        proposed.append(draft_id + int(weights["d2t"][draft_id]))
        states, tokens = torch.cat([states, put_out[-1:]]), [*tokens, proposed[-1]]
    return proposed
