"""The EAGLE3 draft: one decoder layer that reads a token embedding beside a hidden state of the target.

Row i holds (feature i, token i+1) at position i. The initial pass takes the target's features and reduces them with
`fc`; the recurrent passes take the draft's own previous state in their place. The state handed on is the residual
stream before the final norm. Drafting is always greedy.

Source: arXiv:2503.01840 and the published checkpoints' reference code; the order inside the layer is embedding half
first, with the residual taken from the hidden state before (or, when norm_before_residual, after) its norm.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from aot.models.layers import MLP, Attention, Linear, RMSNorm, Table
from aot.models.llama import argmax


class Draft(nn.Module):
    """The draft's layer, norm and head; `DraftInitial` and `DraftRecurrent` differ in their hidden state's source.

    Weights beside the layer's: embed_tokens [V, H], rotary [positions, D], lm_head [Vd, H] and target_ids [Vd] int32,
    which maps a draft id to its target id (draft id + d2t).
    """

    def __init__(
        self,
        vocab: int,
        draft_vocab: int,
        hidden: int,
        intermediate: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        eps: float,
        max_positions: int,
        norm_before_residual: bool,
        dtype: torch.dtype,
    ) -> None:
        super().__init__()
        self.norm_before_residual = norm_before_residual
        self.embed_tokens = Table(vocab, hidden, dtype=dtype)
        self.rotary = Table(max_positions, head_dim, dtype=torch.float32)
        self.input_layernorm = RMSNorm(hidden, eps, dtype)
        self.hidden_norm = RMSNorm(hidden, eps, dtype)
        self.self_attn = Attention(2 * hidden, hidden, heads, kv_heads, head_dim, dtype)
        self.post_attention_layernorm = RMSNorm(hidden, eps, dtype)
        self.mlp = MLP(hidden, intermediate, dtype)
        self.norm = RMSNorm(hidden, eps, dtype)
        self.lm_head = Linear(hidden, draft_vocab, dtype)
        self.target_ids = Table(draft_vocab, dtype=torch.int32)

    def layer(
        self,
        tokens: Tensor,
        state: Tensor,
        positions: Tensor,
        slot_mapping: Tensor,
        block_table: Tensor,
        key_pool: Tensor,
        value_pool: Tensor,
    ) -> Tensor:
        """tokens [T], state [T, H] -> the residual stream after the layer, [T, H]."""
        normed = self.hidden_norm(state)
        residual = normed if self.norm_before_residual else state
        rows = torch.cat([self.input_layernorm(self.embed_tokens(tokens)), normed], dim=-1)
        hidden = residual + self.self_attn(
            rows, self.rotary(positions), positions, slot_mapping, block_table, key_pool, value_pool
        )
        return hidden + self.mlp(self.post_attention_layernorm(hidden))  # type: ignore[no-any-return]

    def propose(self, state: Tensor) -> Tensor:
        """The greedy draft token of each state, [R, H] -> [R] int32, as ids of the target's vocabulary."""
        return self.target_ids(argmax(self.lm_head(self.norm(state))))  # type: ignore[no-any-return]


class DraftInitial(Draft):
    """The first draft pass after a prefill chunk or a verify pass: all of its rows, with the target's true features.

    tokens [T] (row i holds token i+1), positions [T], slot_mapping [T], block_table [R, B], features [T, A*Ht],
    last_index [R] (each request's last valid row), pools -> draft token [R] int32, state [R, H].
    """

    def __init__(self, *, feature_size: int, hidden: int, dtype: torch.dtype, **rest: int | float | bool) -> None:
        super().__init__(hidden=hidden, dtype=dtype, **rest)  # type: ignore[arg-type]
        self.fc = Linear(feature_size, hidden, dtype)

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        slot_mapping: Tensor,
        block_table: Tensor,
        features: Tensor,
        last_index: Tensor,
        key_pool: Tensor,
        value_pool: Tensor,
    ) -> tuple[Tensor, Tensor]:
        hidden = self.layer(tokens, self.fc(features), positions, slot_mapping, block_table, key_pool, value_pool)
        state = hidden[last_index.long()]
        return self.propose(state), state


class DraftRecurrent(Draft):
    """A further draft pass: one row per request, fed with the draft's own last token and state.

    tokens [R], state [R, H], positions [R], slot_mapping [R], block_table [R, B], pools -> draft token [R] int32,
    state [R, H].
    """

    def forward(
        self,
        tokens: Tensor,
        state: Tensor,
        positions: Tensor,
        slot_mapping: Tensor,
        block_table: Tensor,
        key_pool: Tensor,
        value_pool: Tensor,
    ) -> tuple[Tensor, Tensor]:
        state = self.layer(tokens, state, positions, slot_mapping, block_table, key_pool, value_pool)
        return self.propose(state), state
