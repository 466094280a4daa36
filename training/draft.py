"""The draft as it is trained: the layer that aot/models serves, unrolled over its own states.

Training-time test (EAGLE-3, arXiv:2503.01840): step 0 reads the target's features, every later step the state that the
step before put out, exactly as drafting does. All chains of a sequence run at once: chain r's row in step j stands at
position start+r+j and attends to

    the rows 0 .. start+r of step 0            the true features up to where the chain began, and
    its own rows of steps 1 .. j               its own approximate states since

which is what the runtime's KV pool holds at that moment (`visible` says it as a mask, and a test compares it with the
served draft row by row).

Shapes as in training.batch; N query heads, G key/value heads, D head size, Vd draft vocabulary.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aot.checkpoint.draft import DraftConfig
from aot.models.layers import rotary_table, rotate
from runtime.bundle.errors import ConfigError
from training.batch import Batch

# What of a draft's config a trained one cannot vary
_TRAINED_AS = {
    "num_layers": 1,
    "features": "auxiliary",
    "feature_norm": "none",
    "fc_bias": False,
    "norm_output": False,
    "qkv_bias": False,
    "o_bias": False,
    "mlp_bias": False,
    "qk_norm": False,
    "windows": (),
    "logit_scale": 1.0,
    "own_head": True,
}
# Chains that begin at the last position run on past it, unjudged
CHAIN_ROOM = 64


def visible(starts: Tensor, chains: int, rows: int) -> Tensor:
    """Which rows of step 0 each chain sees, [B, M, T] bool: those up to the row where it starts."""
    begin = starts[:, None] + torch.arange(chains)
    return torch.arange(rows)[None, None, :] <= begin[:, :, None]


def rotated(heads: Tensor, angles: Tensor) -> Tensor:
    """The served draft's rotary embedding, for a batch: heads [B, R, heads, D], angles [B, R, D]."""
    return rotate(heads.flatten(0, 1), angles.flatten(0, 1)).view_as(heads)


class Norm(nn.Module):
    """Root-mean-square norm with a trained weight."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, hidden: Tensor) -> Tensor:
        return F.rms_norm(hidden.float(), (hidden.shape[-1],), self.weight, self.eps)


class Attention(nn.Module):
    """The four projections; queries, keys and values read embedding and hidden state side by side."""

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        c = config
        self.q_proj = nn.Linear(2 * c.hidden_size, c.num_heads * c.head_dim, bias=False)
        self.k_proj = nn.Linear(2 * c.hidden_size, c.num_kv_heads * c.head_dim, bias=False)
        self.v_proj = nn.Linear(2 * c.hidden_size, c.num_kv_heads * c.head_dim, bias=False)
        self.o_proj = nn.Linear(c.num_heads * c.head_dim, c.hidden_size, bias=False)


class MLP(nn.Module):
    """SwiGLU."""

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, rows: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(rows)) * self.up_proj(rows))  # type: ignore[no-any-return]


class Layer(nn.Module):
    """The parameters of the draft's one decoder layer."""

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        self.input_layernorm = Norm(config.hidden_size, config.rms_norm_eps)
        self.hidden_norm = Norm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = Norm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.mlp = MLP(config)


def refuse_variants(config: DraftConfig) -> None:
    """Refuse a draft that differs from the one layer that is trained here.

    Raises:
        ConfigError: naming the first difference.
    """
    for field in dataclasses.fields(config):
        found = getattr(config, field.name)
        if field.name in _TRAINED_AS and found != _TRAINED_AS[field.name]:
            raise ConfigError(
                f"training knows no draft with {field.name} {found}",
                expected=str(_TRAINED_AS[field.name]),
                found=str(found),
                repair="choose a draft of one plain Llama layer over auxiliary states",
            )


class TrainableDraft(nn.Module):
    """Parameters in float32 under the checkpoint's names (`aot.checkpoint.draft.draft_shapes`).

    Args:
        embedding: [V, Ht], the target's token embeddings; shared and never trained.

    Attributes:
        feature_scale: [A*Ht], what features are multiplied by before `fc`. The channels of a residual stream differ in
            size by a factor of a hundred, and steps of one size suit none of them; `export` folds the factors into fc.
    """

    feature_scale: Tensor

    def __init__(self, config: DraftConfig, embedding: Tensor) -> None:
        super().__init__()
        refuse_variants(config)
        self.config = config
        self.fc = nn.Linear(config.num_aux * config.target_hidden_size, config.hidden_size, bias=False)
        self.midlayer = Layer(config)
        self.norm = Norm(config.hidden_size, config.rms_norm_eps)
        self.lm_head = nn.Linear(config.hidden_size, config.draft_vocab_size, bias=False)
        self.register_buffer("feature_scale", torch.ones(config.num_aux * config.target_hidden_size))
        self._embedding = embedding
        longest = config.max_position_embeddings
        self._angles = rotary_table(
            longest + CHAIN_ROOM, config.head_dim, config.rope_theta, config.rope_scaling, length=longest
        )

    @torch.no_grad()
    def set_feature_scale(self, scale: Tensor) -> None:
        """Scale the features from now on; what the draft computes stays as it is."""
        self.fc.weight.mul_(self.feature_scale / scale)
        self.feature_scale.copy_(scale)

    def export(self) -> dict[str, Tensor]:
        """The weights under the checkpoint's names, float32."""
        weights = {name: value.detach() for name, value in self.named_parameters()}
        return {**weights, "fc.weight": weights["fc.weight"] * self.feature_scale}

    def _inputs(self, tokens: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """The layer's input [B, R, 2H], embedding half first, and its residual [B, R, H]."""
        layer = self.midlayer
        normed = layer.hidden_norm(state)
        embedded = layer.input_layernorm(self._embedding[tokens])
        residual = normed if self.config.norm_before_residual else state.float()
        return torch.cat([embedded, normed], dim=-1), residual

    def _key_value(self, inputs: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """[B, R, 2H] -> rotated keys and values [B, G, R, D]."""
        attention, shape = self.midlayer.self_attn, (*inputs.shape[:2], self.config.num_kv_heads, self.config.head_dim)
        keys = rotated(attention.k_proj(inputs).view(shape), self._angles[positions])
        return keys.transpose(1, 2), attention.v_proj(inputs).view(shape).transpose(1, 2)

    def unroll(self, batch: Batch, steps: int) -> Iterator[Tensor]:
        """The final-normed states of every chain, step by step: [B, M, H] float32, to be multiplied by `lm_head`."""
        c, layer = self.config, self.midlayer
        size, rows = batch.next_tokens.shape
        group = c.num_heads // c.num_kv_heads
        begin = batch.chain_positions().clamp(max=rows - 1)
        features = batch.features * self.feature_scale.to(batch.features.dtype)
        state = self.fc(features if torch.is_autocast_enabled("cpu") else features.to(self.fc.weight.dtype))
        inputs, residual = self._inputs(batch.next_tokens, state)
        keys, values = self._key_value(inputs, torch.arange(rows).expand(size, rows))
        pick = begin[:, :, None]
        inputs = inputs.gather(1, pick.expand(-1, -1, inputs.shape[-1]))
        residual = residual.gather(1, pick.expand(-1, -1, residual.shape[-1]))
        hidden_rows = ~visible(batch.starts, batch.chains, rows)[:, None, :, None, :]
        own_keys: list[Tensor] = []
        own_values: list[Tensor] = []
        for step in range(steps):
            positions = begin + step
            if step:
                inputs, residual = self._inputs(batch.chain_tokens(step), state)
                own_key, own_value = self._key_value(inputs, positions)
                own_keys.append(own_key)
                own_values.append(own_value)
            query = layer.self_attn.q_proj(inputs).view(size, batch.chains, c.num_heads, c.head_dim)
            query = rotated(query, self._angles[positions]) * c.head_dim**-0.5
            query = query.view(size, batch.chains, c.num_kv_heads, group, c.head_dim).permute(0, 2, 1, 3, 4)
            wide = query.reshape(size, c.num_kv_heads, batch.chains * group, c.head_dim)
            scores = (wide @ keys.transpose(2, 3)).view(size, c.num_kv_heads, batch.chains, group, rows)
            scores = scores.float().masked_fill(hidden_rows, float("-inf"))
            own = [(query * key[:, :, :, None]).float().sum(-1, keepdim=True) for key in own_keys]
            shares = torch.cat([scores, *own], dim=-1).softmax(-1).to(values.dtype)
            past = shares[..., :rows].reshape(size, c.num_kv_heads, batch.chains * group, rows)
            mixed = (past @ values).view(query.shape)
            for index, value in enumerate(own_values):
                mixed = mixed + shares[..., rows + index, None] * value[:, :, :, None]
            mixed = mixed.permute(0, 2, 1, 3, 4).reshape(size, batch.chains, -1)
            hidden = residual + layer.self_attn.o_proj(mixed)
            state = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
            yield self.norm(state)
