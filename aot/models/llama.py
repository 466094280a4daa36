"""The target, a Llama or one of its relatives, cut where graphs are cut: embed, layer, heads.

`embed` looks up tokens and rotary angles, `layer` is run once per decoder layer, and the head that ends a graph turns
hidden states into what the loop reads: the next token of a prompt, or the accepted tokens of a verify pass. The
auxiliary states that EAGLE3 taps are the residual stream at chosen positions; a head joins them into `features`.

With `ranks` above 1 the sizes that are spread over the ranks (vocab, intermediate, heads, kv_heads) are those of one
rank, and modules that look up tokens or choose one take the rank, [1] int32. The residual stream is whole on every
rank, and so are the auxiliary states and the features.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from aot.models.layers import MLP, Attention, RMSNorm, Table, all_finite
from aot.models.sampling import Asked, draw
from aot.models.vocabulary import argmax_over_ranks, embed, embedding, the_rank, token_ids, whole_logits
from aot.models.wide import Head
from runtime.bundle.signs import NOT_FINITE, NOTHING


class TargetEmbed(nn.Module):
    """tokens [T] int32, positions [T] int32 -> hidden [T, H], angles [T, D] float32."""

    def __init__(
        self, vocab: int, hidden: int, max_positions: int, head_dim: int, dtype: torch.dtype, *, ranks: int = 1
    ) -> None:
        super().__init__()
        self.embed_tokens = embedding(vocab, hidden, dtype, ranks)
        self.rotary = Table(max_positions, head_dim, dtype=torch.float32)

    def forward(self, tokens: Tensor, positions: Tensor, *, rank: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return embed(self.embed_tokens, tokens, rank), self.rotary(positions)


class TargetLayer(nn.Module):
    """One decoder layer: hidden [T, H] -> hidden [T, H], its KV pools updated in place.

    What sets a family's layers apart from Llama's are arguments: biases of the projections, a norm over each query and
    key head, a window of that many tokens (0: none). `real_hidden` of the `hidden` channels are the model's (0: all).
    """

    def __init__(
        self,
        hidden: int,
        intermediate: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        eps: float,
        dtype: torch.dtype,
        *,
        qkv_bias: bool = False,
        o_bias: bool = False,
        qk_norm: bool = False,
        window: int = 0,
        real_hidden: int = 0,
        ranks: int = 1,
    ) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(hidden, eps, dtype, real_hidden)
        self.self_attn = Attention(
            hidden,
            hidden,
            heads,
            kv_heads,
            head_dim,
            dtype,
            qkv_bias=qkv_bias,
            o_bias=o_bias,
            qk_norm_eps=eps if qk_norm else 0.0,
            window=window,
            ranks=ranks,
        )
        self.post_attention_layernorm = RMSNorm(hidden, eps, dtype, real_hidden)
        self.mlp = MLP(hidden, intermediate, dtype, ranks=ranks)

    def forward(
        self,
        hidden: Tensor,
        angles: Tensor,
        positions: Tensor,
        slot_mapping: Tensor,
        block_table: Tensor,
        key_pool: Tensor,
        value_pool: Tensor,
    ) -> Tensor:
        hidden = hidden + self.self_attn(
            self.input_layernorm(hidden), angles, positions, slot_mapping, block_table, key_pool, value_pool
        )
        return hidden + self.mlp(self.post_attention_layernorm(hidden))  # type: ignore[no-any-return]


class TargetHead(nn.Module):
    """Final norm and language-model head: hidden [M, H] -> logits [M, V] float32.

    Where `real_vocab` or `real_hidden` is given, the rest of `vocab` (over all ranks) or `hidden` is padding: padded
    rows of the head have logits of minus infinity, and neither logits nor features show a padded channel.

    A `sampled` head draws tokens and takes the five tensors of `Asked` in front of the auxiliary states.
    """

    def __init__(
        self,
        vocab: int,
        hidden: int,
        eps: float,
        dtype: torch.dtype,
        real_vocab: int = 0,
        real_hidden: int = 0,
        ranks: int = 1,
        sampled: bool = False,
    ) -> None:
        super().__init__()
        self.norm = RMSNorm(hidden, eps, dtype, real_hidden)
        self.lm_head = Head(hidden, vocab, dtype)
        self.real_vocab, self.real_hidden, self.ranks = real_vocab, real_hidden, ranks
        self.sampled = sampled

    def logits(self, hidden: Tensor, rank: Tensor | None = None) -> Tensor:
        """The logits of hidden [M, H]; on several ranks those of this rank's tokens."""
        made: Tensor = self.lm_head(self.norm(hidden))
        return torch.where(self.is_token(made, rank), made, float("-inf")) if self.real_vocab else made

    def is_token(self, logits: Tensor, rank: Tensor | None) -> Tensor:
        """Which columns of `logits` are tokens and no padding, [V] or this rank's part."""
        if self.ranks == 1:
            entries = torch.arange(logits.shape[-1], device=logits.device)
        else:
            entries = token_ids(logits, the_rank(rank))
        return entries < self.real_vocab

    def choose(self, logits: Tensor, rank: Tensor | None) -> Tensor:
        """Greedy token of each row of `logits`, [M] int32, whichever rank holds it; see `tokens` for NOT_FINITE."""
        real = torch.where(self.is_token(logits, rank), logits, 0.0) if self.real_vocab else logits
        finite = all_finite(real)
        if self.ranks == 1:
            return torch.where(finite[:, 0] > 0, argmax(logits), NOT_FINITE)
        return argmax_over_ranks(logits, the_rank(rank), self.ranks, self.real_vocab, finite)

    def asked(self, further: tuple[Tensor, ...]) -> tuple[Asked | None, tuple[Tensor, ...]]:
        """What is asked of sampling, if this head samples, and the auxiliary states, out of a head's last inputs."""
        if not self.sampled:
            return None, further
        return Asked(*further[: len(Asked._fields)]), further[len(Asked._fields) :]

    def tokens(self, logits: Tensor, rank: Tensor | None, asked: Asked | None) -> Tensor:
        """The token of each row of `logits`, [M] int32: greedy, or drawn where a request asks for it.

        NOT_FINITE where any logit of the row is NaN or infinite: no token of it would mean anything.
        """
        greedy = self.choose(logits, rank)
        if asked is None:
            return greedy
        drawn = draw(logits if self.ranks == 1 else whole_logits(logits, self.ranks), asked, greedy)
        return torch.where(greedy == NOT_FINITE, greedy, drawn)

    def outputs(self, tokens: Tensor, auxiliary: tuple[Tensor, ...], logits: Tensor | None) -> tuple[Tensor, ...]:
        """What a head puts out: tokens, the auxiliary states side by side, and the logits, if any."""
        if self.real_hidden:
            auxiliary = tuple(state[:, : self.real_hidden] for state in auxiliary)
        made = (tokens, torch.cat(auxiliary, dim=-1))
        if logits is None:
            return made
        if self.ranks > 1:
            logits = whole_logits(logits, self.ranks)
        return (*made, logits[:, : self.real_vocab] if self.real_vocab else logits)


def argmax(logits: Tensor) -> Tensor:
    """Greedy token of each row, [M, V] -> [M] int32; the lowest id wins a tie."""
    return torch.argmax(logits, dim=-1).to(torch.int32)


class TargetPrefillHead(TargetHead):
    """The last prompt row's next token.

    hidden [T, H], last_index [1] int32, A auxiliary states [T, H] -> next_token [1] int32, NOT_FINITE where its logits
    are not finite; features [T, A*H]; and with `with_logits` the last row's logits [1, V] float32.
    """

    def __init__(
        self,
        vocab: int,
        hidden: int,
        eps: float,
        dtype: torch.dtype,
        with_logits: bool,
        real_vocab: int = 0,
        real_hidden: int = 0,
        ranks: int = 1,
        sampled: bool = False,
    ) -> None:
        super().__init__(vocab, hidden, eps, dtype, real_vocab, real_hidden, ranks, sampled)
        self.with_logits = with_logits

    def forward(
        self, hidden: Tensor, last_index: Tensor, *further: Tensor, rank: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        asked, auxiliary = self.asked(further)
        logits = self.logits(hidden[last_index.long()], rank)
        return self.outputs(self.tokens(logits, rank, asked), auxiliary, logits if self.with_logits else None)


class TargetVerifyHead(TargetHead):
    """Rejection of a verify pass, R requests with 1+K rows each: drafts are accepted while they are the row's token.

    hidden [R*(1+K), H], tokens [R*(1+K)] int32, num_draft_tokens [R] int32, A auxiliary states ->
    accepted [R, 1+K] int32, -1 after the corrected or bonus token, or after NOT_FINITE in its place where the row's
    logits are not finite; features [R*(1+K), A*H]; and with `with_logits` the logits [R*(1+K), V] float32. With K = 0
    this is the head of target_decode.
    """

    def __init__(
        self,
        vocab: int,
        hidden: int,
        eps: float,
        dtype: torch.dtype,
        requests: int,
        with_logits: bool,
        real_vocab: int = 0,
        real_hidden: int = 0,
        ranks: int = 1,
        sampled: bool = False,
    ) -> None:
        super().__init__(vocab, hidden, eps, dtype, real_vocab, real_hidden, ranks, sampled)
        self.requests = requests
        self.with_logits = with_logits

    def forward(
        self,
        hidden: Tensor,
        tokens: Tensor,
        num_draft_tokens: Tensor,
        *further: Tensor,
        rank: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        asked, auxiliary = self.asked(further)
        logits = self.logits(hidden, rank)
        target = self.tokens(logits, rank, asked).view(self.requests, -1)
        drafts = tokens.view(self.requests, -1)[:, 1:]
        accepted = greedy_rejection(target, drafts, num_draft_tokens)
        return self.outputs(accepted, auxiliary, logits if self.with_logits else None)


def greedy_rejection(target: Tensor, drafts: Tensor, num_draft_tokens: Tensor) -> Tensor:
    """Accept drafts up to the first that is not the target's own choice.

    Args:
        target: [R, 1+K] int32, the target's greedy or drawn token after each row, or NOT_FINITE, which no draft is.
        drafts: [R, K] int32, the drafts that rows 1..K held.
        num_draft_tokens: [R] int32, how many of a request's drafts are real (0..K).

    Returns:
        [R, 1+K] int32: the accepted drafts, then the corrected token (or the bonus token when all were accepted), then
        -1. At least one token per request. Rule: the source document's on-device rejection sampler.
    """
    width = drafts.shape[1]
    if width == 0:
        return target
    index = torch.arange(width, device=drafts.device, dtype=torch.int32)
    matches = (drafts == target[:, :width]) & (index[None, :] < num_draft_tokens[:, None])
    # The index of the first mismatch is the number of accepted drafts; K when there is none
    accepted = torch.where(matches, width, index[None, :]).amin(dim=1)
    column = torch.arange(width + 1, device=drafts.device, dtype=torch.int32)
    return torch.where(column[None, :] <= accepted[:, None], target, NOTHING)
