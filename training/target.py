"""The target over a whole batch of requests, eagerly: answers, and the states that a draft learns from.

Serving wants one request's next token soon; making training data wants many tokens in all. So this is another loop than
the runtime's: a cohort of hundreds of requests starts together, each with its own contiguous cache, and what has
finished is dropped from the batch as it goes. Weights, layers and numerics are those of aot/models.

Shapes: R requests, P the longest prompt's tokens, N query heads, G key/value heads, D head size, H hidden size, A
auxiliary states, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aot.build.scopes import Scope, decoder_layer, target_head
from aot.checkpoint.target import TargetConfig
from aot.models.layers import rotary_table, rotate
from aot.models.llama import TargetEmbed, TargetHead, TargetLayer

# Prompts run through the model in groups, so that the widest intermediate stays small
PREFILL_GROUP = 64
# Entries by which caches grow
CACHE_STEP = 32

# Keys and values of each layer
Caches = list[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Answer:
    """One finished request.

    Attributes:
        tokens: [n] int32, prompt and answer.
        prompt_length: how many of them are the prompt.
        features: [n - 1, A * H], the auxiliary states of all tokens but the last, which was never run.
        finals: [n - 1 - prompt_length, H], the normed last states of the answer's tokens but the last: times the
            target's head they are the logits of the token after each.
        choices: [n - prompt_length] int32, what the target would have chosen greedily for each token of the answer.
    """

    tokens: Tensor
    prompt_length: int
    features: Tensor
    finals: Tensor
    choices: Tensor


def _filled(module: nn.Module, scope: Scope) -> None:
    module.load_state_dict(scope, strict=True, assign=True)
    module.requires_grad_(False)


class BatchTarget:
    """A target's layers over contiguous caches.

    Args:
        weights: by the names of `aot.checkpoint.target.target_shapes`.
        aux_layers: residual-stream positions of the auxiliary states, as in the draft's config.
        max_length: longest prompt with its answer, in tokens.
    """

    def __init__(
        self, config: TargetConfig, weights: Mapping[str, Tensor], aux_layers: Sequence[int], max_length: int
    ) -> None:
        self.config, self.aux_layers, self.max_length = config, tuple(aux_layers), max_length
        embedding = weights["model.embed_tokens.weight"]
        self.dtype = embedding.dtype
        c, eps = config, config.rms_norm_eps
        with torch.device("meta"):
            self.embed = TargetEmbed(c.vocab_size, c.hidden_size, max_length, c.head_dim, self.dtype)
            self.layers = [
                TargetLayer(
                    c.hidden_size,
                    c.intermediate_size,
                    c.num_heads,
                    c.num_kv_heads,
                    c.head_dim,
                    eps,
                    self.dtype,
                    qkv_bias=c.qkv_bias,
                    o_bias=c.o_bias,
                    qk_norm=c.qk_norm,
                    window=c.window(index),
                )
                for index in range(c.num_layers)
            ]
            self.head = TargetHead(c.vocab_size, c.hidden_size, eps, self.dtype)
        angles = rotary_table(max_length, c.head_dim, c.rope_theta, c.rope_scaling)
        _filled(self.embed, {"embed_tokens.weight": embedding, "rotary.weight": angles})
        for index, layer in enumerate(self.layers):
            _filled(layer, decoder_layer(weights, f"model.layers.{index}."))
        _filled(self.head, {"norm.weight": weights["model.norm.weight"], "lm_head.weight": target_head(weights)})

    def _run(self, tokens: Tensor, positions: Tensor, caches: Caches) -> _Ran:
        """T rows of each request, tokens [R, T] at positions [R, T], over caches [R, G, context, D]."""
        requests, rows = tokens.shape
        c, context = self.config, caches[0][0].shape[2]
        flat = positions.reshape(-1)
        hidden, angles = self.embed(tokens.reshape(-1), flat)
        biases = {window: _mask(positions, context, window) for window in {*c.windows} or {0}}
        group, split, width = c.num_heads // c.num_kv_heads, c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
        index = torch.arange(requests)[:, None]
        entering = [hidden] if 0 in self.aux_layers else []
        for number, (layer, (keys, values)) in enumerate(zip(self.layers, caches, strict=True), start=1):
            fused = layer.self_attn.qkv_proj(layer.input_layernorm(hidden))
            query = fused[:, :split].view(-1, c.num_heads, c.head_dim)
            key = fused[:, split : split + width].view(-1, c.num_kv_heads, c.head_dim)
            value = fused[:, split + width :]
            if layer.self_attn.q_norm is not None and layer.self_attn.k_norm is not None:
                query, key = layer.self_attn.q_norm(query), layer.self_attn.k_norm(key)
            query, key = rotate(query, angles), rotate(key, angles)
            keys[index, :, positions] = key.view(requests, rows, c.num_kv_heads, c.head_dim)
            values[index, :, positions] = value.view(requests, rows, c.num_kv_heads, c.head_dim)
            grouped = query.view(requests, rows, c.num_kv_heads, group, c.head_dim).permute(0, 2, 1, 3, 4)
            grouped = grouped.reshape(requests * c.num_kv_heads, rows * group, c.head_dim)
            # The whole cache and not a slice of it: the library's batched product would copy the slice first
            scores = torch.bmm(keys.flatten(0, 1), grouped.transpose(1, 2)).transpose(1, 2).float()
            scores = scores.view(requests, c.num_kv_heads, rows, group, context).mul_(c.head_dim**-0.5)
            scores.add_(biases[layer.self_attn.window])
            shares = scores.softmax(-1).to(self.dtype).view(requests * c.num_kv_heads, rows * group, context)
            mixed = torch.bmm(shares, values.flatten(0, 1)).view(requests, c.num_kv_heads, rows, group, c.head_dim)
            mixed = mixed.permute(0, 2, 1, 3, 4).reshape(requests * rows, split)
            hidden = hidden + layer.self_attn.o_proj(mixed)
            hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
            if number in self.aux_layers:
                entering.append(hidden)
        features = torch.cat(entering, dim=-1).view(requests, rows, -1)
        return _Ran(hidden.view(requests, rows, -1), features)

    @torch.inference_mode()
    def answer(
        self,
        prompts: Sequence[Sequence[int]],
        temperatures: Sequence[float],
        max_tokens: int,
        eos_token_ids: Sequence[int],
        generator: torch.Generator,
    ) -> list[Answer]:
        """Answer a cohort of prompts, each greedily (temperature 0) or sampled from its softmax at its temperature.

        Args:
            max_tokens: most tokens of an answer; prompt and answer must fit `max_length` together.

        Returns:
            One Answer per prompt, in their order.
        """
        lengths = torch.tensor([len(prompt) for prompt in prompts])
        requests, longest = len(prompts), int(lengths.max())
        limit = longest + max_tokens
        if limit > self.max_length:
            raise ValueError(f"prompts of up to {longest} tokens and {max_tokens} more exceed {self.max_length}")
        c = self.config
        shape = (requests, c.num_kv_heads, longest, c.head_dim)
        caches = [(torch.zeros(shape, dtype=self.dtype), torch.zeros(shape, dtype=self.dtype)) for _ in self.layers]
        tokens = torch.zeros(requests, limit, dtype=torch.int64)
        for row, prompt in enumerate(prompts):
            tokens[row, : len(prompt)] = torch.tensor(prompt)
        features = torch.zeros(requests, limit, len(self.aux_layers) * c.hidden_size, dtype=self.dtype)
        finals = torch.zeros(requests, limit, c.hidden_size, dtype=self.dtype)
        choices = torch.zeros(requests, limit, dtype=torch.int32)
        last = torch.zeros(requests, c.hidden_size, dtype=self.dtype)
        for start in range(0, requests, PREFILL_GROUP):
            part = slice(start, start + PREFILL_GROUP)
            own = [(keys[part], values[part]) for keys, values in caches]
            positions = torch.arange(longest).expand(len(lengths[part]), longest)
            ran = self._run(tokens[part, :longest], positions, own)
            features[part, :longest] = ran.features
            last[part] = ran.hidden[torch.arange(len(positions)), lengths[part] - 1]
        heat = torch.tensor(list(temperatures))
        alive = torch.arange(requests)  # which prompt each row of the caches belongs to
        position, ends = lengths.clone(), torch.zeros(requests, dtype=torch.int64)
        stops = torch.tensor(list(eos_token_ids), dtype=torch.int64)
        greedy, chosen = self._choose(self.head.norm(last), heat, generator)
        live = torch.ones(requests, dtype=torch.bool)
        for step in range(max_tokens):
            tokens[alive[live], position[live]] = chosen[live]
            choices[alive[live], position[live]] = greedy[live].to(torch.int32)
            stopped = live & (torch.isin(chosen, stops) | (step + 1 == max_tokens))
            ends[alive[stopped]] = position[stopped] + 1
            live = live & ~stopped
            if not bool(live.any()):
                break
            # Moving the caches costs about a step: once an eighth of the rows are idle, or when they are full
            rows = torch.arange(len(alive))
            thin, needed = int(live.sum()) <= len(alive) * 7 // 8, int(position.max()) + 1
            if thin:
                rows = live.nonzero().flatten()
                alive, position, chosen, heat, live = (x[rows] for x in (alive, position, chosen, heat, live))
            if thin or needed > caches[0][0].shape[2]:
                caches = [(_moved(keys, rows, needed), _moved(values, rows, needed)) for keys, values in caches]
            # A finished row runs on at its last position until then: that entry of its cache is read by nobody
            ran = self._run(chosen[:, None], position[:, None], caches)
            normed = self.head.norm(ran.hidden[:, 0])
            features[alive[live], position[live]] = ran.features[live, 0]
            finals[alive[live], position[live]] = normed[live]
            greedy, chosen = self._choose(normed, heat, generator)
            position = position + live
        return [
            Answer(
                tokens[row, : ends[row]].to(torch.int32),
                len(prompts[row]),
                features[row, : ends[row] - 1].clone(),
                finals[row, len(prompts[row]) : ends[row] - 1].clone(),
                choices[row, len(prompts[row]) : ends[row]].clone(),
            )
            for row in range(requests)
        ]

    def _choose(self, normed: Tensor, temperatures: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """The greedy token of each row and the one taken: normed last states [R, H] -> [R] and [R] int64."""
        logits = F.linear(normed, self.head.lm_head.weight)
        greedy = logits.argmax(-1)
        chosen = greedy.clone()
        warm = (temperatures > 0).nonzero().flatten()
        if len(warm):
            shares = (logits[warm].float() / temperatures[warm, None]).softmax(-1).cumsum(-1)
            # By inverse distribution: one random number a row, where multinomial draws one for every token
            drawn = torch.rand(len(warm), 1, generator=generator) * shares[:, -1:]
            chosen[warm] = torch.searchsorted(shares, drawn, right=True).flatten().clamp(max=logits.shape[-1] - 1)
        return greedy, chosen


@dataclass(frozen=True)
class _Ran:
    """hidden [R, T, H], the residual stream after the last layer; features [R, T, A * H]."""

    hidden: Tensor
    features: Tensor


def _mask(positions: Tensor, context: int, window: int) -> Tensor:
    """What is added to the scores of rows at positions [R, T]: 0 for what a row sees and -inf for the rest,
    [R, 1, T, 1, context], one row of a group's queries beside its keys."""
    entries, own = torch.arange(context)[None, None, :], positions[:, :, None]
    visible = entries <= own
    if window:
        visible &= entries > own - window
    return torch.zeros(visible.shape).masked_fill_(~visible, float("-inf"))[:, None, :, None, :]


def _moved(cache: Tensor, rows: Tensor, needed: int) -> Tensor:
    """Rows of a cache [R, G, context, D], with room for at least `needed` entries."""
    room = -(-needed // CACHE_STEP) * CACHE_STEP
    moved = cache.new_zeros(len(rows), cache.shape[1], room, cache.shape[3])
    filled = min(room, cache.shape[2])
    moved[:, :, :filled] = cache[rows, :, :filled]
    return moved
