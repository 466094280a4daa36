"""The EAGLE3 draft: a decoder layer that reads a token embedding beside a hidden state of the target.

Row i holds (feature i, token i+1) at position i. The initial pass takes the target's features and reduces them with
`fc`; the recurrent passes take the draft's own previous state in their place. The state handed on is the residual
stream before the final norm. Drafting is always greedy.

Published drafts vary this: norms and a bias around `fc`, or no `fc` at all; further layers, which read the stream
alone; biases, query and key norms and windows as the target's families have them; the state after the final norm
handed on; scaled logits; the target's whole vocabulary. Each is an argument, and without it the graph has no trace
of it.

Source: arXiv:2503.01840 and the published checkpoints' reference code; the order inside the layer is embedding half
first, with the residual taken from the hidden state before (or, when norm_before_residual, after) its norm. Further
layers are vLLM's: ordinary decoder layers, normed by their input_layernorm.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aot.models.layers import MLP, Attention, Linear, RMSNorm, Table
from aot.models.llama import argmax
from aot.models.parallel import all_gather
from aot.models.vocabulary import argmax_over_ranks, embed, embedding, the_rank, token_ids
from aot.models.wide import Head


class FurtherLayer(nn.Module):
    """A draft layer after the first: hidden [T, H] -> hidden [T, H], its KV pools updated in place."""

    def __init__(self, norms: tuple[RMSNorm, RMSNorm], attention: Attention, mlp: MLP) -> None:
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = norms
        self.self_attn, self.mlp = attention, mlp

    def forward(self, hidden: Tensor, *context: Tensor) -> Tensor:
        """`context` is what `Attention.forward` takes after its rows."""
        hidden = hidden + self.self_attn(self.input_layernorm(hidden), *context)
        return hidden + self.mlp(self.post_attention_layernorm(hidden))  # type: ignore[no-any-return]


class Draft(nn.Module):
    """The draft's layers, norm and head; `DraftInitial` and `DraftRecurrent` differ in their hidden state's source.

    Weights beside the layers': embed_tokens [V, H], rotary [positions, D], lm_head [Vd, H] and target_ids [Vd] int32,
    which maps a draft id to its target id (draft id + d2t).

    Args:
        layers: decoder layers; the second and further ones are `layers.1`, `layers.2`, and so on.
        qkv_bias, o_bias, mlp_bias: biases of the projections, in every layer.
        qk_norm: a norm over each query and key head.
        window: tokens that a row sees in the layers whose bit is set in `windowed_layers`.
        norm_output: hand on the state after the final norm.
        logit_scale: factor of the logits.
        mapped: draft ids differ from the target's; False leaves target_ids out.
        real_hidden, real_vocab: of `hidden` channels and of `draft_vocab` rows of the head (over all ranks) the first
            so many are the model's and the rest padding (aot/build/padding.py); 0: all are the model's.
        ranks: above 1, vocab, draft_vocab, intermediate, heads and kv_heads are those of one rank. States, features
            and target_ids are whole on every rank, and forward takes the rank, [1] int32.
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
        *,
        layers: int = 1,
        qkv_bias: bool = False,
        o_bias: bool = False,
        mlp_bias: bool = False,
        qk_norm: bool = False,
        window: int = 0,
        windowed_layers: int = 0,
        norm_output: bool = False,
        logit_scale: float = 1.0,
        mapped: bool = True,
        real_hidden: int = 0,
        real_vocab: int = 0,
        ranks: int = 1,
    ) -> None:
        super().__init__()

        def attention(layer: int) -> Attention:
            return Attention(
                hidden if layer else 2 * hidden,
                hidden,
                heads,
                kv_heads,
                head_dim,
                dtype,
                qkv_bias=qkv_bias,
                o_bias=o_bias,
                qk_norm_eps=eps if qk_norm else 0.0,
                window=window if windowed_layers >> layer & 1 else 0,
                ranks=ranks,
            )

        def norm() -> RMSNorm:
            return RMSNorm(hidden, eps, dtype, real_hidden)

        self.norm_before_residual = norm_before_residual
        self.real_vocab, self.ranks = real_vocab, ranks
        self.norm_output, self.logit_scale = norm_output, logit_scale
        self.embed_tokens = embedding(vocab, hidden, dtype, ranks)
        self.rotary = Table(max_positions, head_dim, dtype=torch.float32)
        self.input_layernorm = norm()
        self.hidden_norm = norm()
        self.self_attn = attention(0)
        self.post_attention_layernorm = norm()
        self.mlp = MLP(hidden, intermediate, dtype, mlp_bias, ranks=ranks)
        self.layers = nn.ModuleDict()
        for layer in range(1, layers):
            mlp = MLP(hidden, intermediate, dtype, mlp_bias, ranks=ranks)
            self.layers[str(layer)] = FurtherLayer((norm(), norm()), attention(layer), mlp)
        self.norm = norm()
        self.lm_head = Head(hidden, draft_vocab, dtype)
        self.target_ids = Table(real_vocab or draft_vocab * ranks, dtype=torch.int32) if mapped else None

    def run_layers(
        self,
        tokens: Tensor,
        state: Tensor,
        positions: Tensor,
        slot_mapping: Tensor,
        block_table: Tensor,
        pools: tuple[Tensor, ...],
        rank: Tensor | None = None,
    ) -> Tensor:
        """tokens [T], state [T, H], each layer's key and value pool -> the residual stream after them, [T, H]."""
        normed = self.hidden_norm(state)
        residual = normed if self.norm_before_residual else state
        rows = torch.cat([self.input_layernorm(embed(self.embed_tokens, tokens, rank)), normed], dim=-1)
        context = (self.rotary(positions), positions, slot_mapping, block_table)
        hidden = residual + self.self_attn(rows, *context, *pools[:2])
        hidden = hidden + self.mlp(self.post_attention_layernorm(hidden))
        for index, layer in enumerate(self.layers.values(), 1):
            hidden = layer(hidden, *context, *pools[2 * index : 2 * index + 2])
        return hidden  # type: ignore[no-any-return]

    def logits(self, normed: Tensor, rank: Tensor | None = None) -> Tensor:
        """Logits over the draft's vocabulary of states after the final norm, [R, H] -> [R, Vd] float32.

        Padded rows of the head have minus infinity. On several ranks, those of this rank's part of the vocabulary.
        """
        made: Tensor = self.lm_head(normed)
        if self.real_vocab:
            entries = torch.arange(made.shape[-1]) if self.ranks == 1 else token_ids(made, the_rank(rank))
            made = torch.where(entries < self.real_vocab, made, float("-inf"))
        return made if self.logit_scale == 1.0 else made * self.logit_scale

    def logits_of_output(self, state: Tensor) -> Tensor:
        """The logits behind a draft token, from the state [R, H] that was handed on with it."""
        return self.logits(state if self.norm_output else self.norm(state))

    def propose(self, state: Tensor, rank: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The stream [R, H] -> its greedy draft token [R] int32, an id of the target's, and the state to hand on."""
        normed = self.norm(state)
        if self.ranks == 1:
            token = argmax(self.logits(normed))
        else:
            token = argmax_over_ranks(self.logits(normed, rank), the_rank(rank), self.ranks, self.real_vocab)
        mapped = token if self.target_ids is None else self.target_ids(token)
        return mapped, normed if self.norm_output else state


class DraftInitial(Draft):
    """The first draft pass after a prefill chunk or a verify pass: all of its rows, with the target's true features.

    tokens [T] (row i holds token i+1), positions [T], slot_mapping [T], block_table [R, B], features [T, A*Ht],
    last_index [R] (each request's last valid row), pools -> draft token [R] int32, state [R, H].

    Args:
        feature_size: A*Ht, what `fc` reads; 0 for a draft on the final state, which has no `fc`.
        normed_jointly: the joined features are normed before `fc` (`input_norm`).
        normed_states: each of so many states is normed by itself before `fc` (`fc_norm.0`, `fc_norm.1`, ...).
    """

    def __init__(
        self,
        *,
        feature_size: int,
        hidden: int,
        eps: float,
        dtype: torch.dtype,
        normed_jointly: bool = False,
        normed_states: int = 0,
        fc_bias: bool = False,
        **rest: int | float | bool,
    ) -> None:
        super().__init__(hidden=hidden, eps=eps, dtype=dtype, **rest)  # type: ignore[arg-type]
        self.input_norm = RMSNorm(feature_size, eps, dtype) if normed_jointly else None
        widths = [feature_size // normed_states] * normed_states if normed_states else []
        self.fc_norm = nn.ModuleList([RMSNorm(width, eps, dtype) for width in widths])
        # Each rank makes a part of the channels; the last part may be the shorter one, and is filled up
        self.hidden, channels = hidden, -(-hidden // self.ranks)
        self.fc = Linear(feature_size, channels, dtype, fc_bias) if feature_size else None
        self.padding = hidden - int(rest["real_hidden"]) if rest.get("real_hidden") else 0

    def reduce(self, features: Tensor) -> Tensor:
        """The target's features as a state of the draft, [T, A*Ht] -> [T, H]."""
        if self.input_norm is not None:
            features = self.input_norm(features)
        if self.fc_norm:
            width = features.shape[-1] // len(self.fc_norm)
            states = [norm(features[:, i * width : (i + 1) * width]) for i, norm in enumerate(self.fc_norm)]
            features = torch.cat(states, dim=-1)
        if self.fc is None:
            return F.pad(features, (0, self.padding)) if self.padding else features
        made: Tensor = self.fc(features)
        if self.ranks > 1:
            made = all_gather(made, 1, self.ranks)
            made = made[:, : self.hidden] if made.shape[1] > self.hidden else made
        return made

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
        *further_pools: Tensor,
        rank: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        pools = (key_pool, value_pool, *further_pools)
        hidden = self.run_layers(tokens, self.reduce(features), positions, slot_mapping, block_table, pools, rank)
        return self.propose(hidden[last_index.long()], rank)


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
        *further_pools: Tensor,
        rank: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        pools = (key_pool, value_pool, *further_pools)
        hidden = self.run_layers(tokens, state, positions, slot_mapping, block_table, pools, rank)
        return self.propose(hidden, rank)


class FinalFeatures(nn.Module):
    """The features of a draft on the target's final state: hidden [T, H] -> the normed hidden [T, H]."""

    def __init__(self, hidden: int, eps: float, dtype: torch.dtype, real_hidden: int = 0) -> None:
        super().__init__()
        self.norm = RMSNorm(hidden, eps, dtype, real_hidden)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.norm(hidden)  # type: ignore[no-any-return]
