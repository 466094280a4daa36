"""The sampler written plainly in PyTorch and Python, over whole vocabularies, to hold the real one against."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from runtime.sampling.params import SamplingParams

PHILOX_MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
PHILOX_WEYL = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
WORD = (1 << 64) - 1


def philox4x64(counter: int, key: int) -> list[int]:
    """One block of Philox4x64 with ten rounds: four words of 64 bits from a counter of 256 bits and a key of 128."""
    c = [counter >> 64 * place & WORD for place in range(4)]
    k = [key & WORD, key >> 64 & WORD]
    for _ in range(10):
        left, right = PHILOX_MULTIPLIERS[0] * c[0], PHILOX_MULTIPLIERS[1] * c[2]
        c = [right >> 64 ^ c[1] ^ k[0], right & WORD, left >> 64 ^ c[3] ^ k[1], left & WORD]
        k = [(k[0] + PHILOX_WEYL[0]) & WORD, (k[1] + PHILOX_WEYL[1]) & WORD]
    return c


def processed(
    row: Tensor, params: SamplingParams, history: Sequence[int], num_prompt_tokens: int, stop_ids: frozenset[int]
) -> Tensor:
    """The row after all processors, in vLLM's order, given every token before it.

    Args:
        row: [vocab_size] float32.
        history: prompt, generated tokens and the drafts of earlier rows.
    """
    row = row.clone()
    generated = list(history[num_prompt_tokens:])
    if params.allowed_token_ids is not None:
        for token in range(len(row)):
            if token not in params.allowed_token_ids:
                row[token] = -math.inf
    for word in params.bad_words_token_ids:
        if (generated[-(len(word) - 1) :] if len(word) > 1 else []) == list(word[:-1]):
            row[word[-1]] = -math.inf
    if len(generated) < params.min_tokens:
        for token in stop_ids:
            row[token] = -math.inf
    for token, bias in params.logit_bias.items():
        row[token] += bias
    for token in range(len(row)):
        if token in history:
            row[token] = (
                row[token] * params.repetition_penalty if row[token] <= 0 else row[token] / params.repetition_penalty
            )
        if count := generated.count(token):
            row[token] -= torch.tensor(params.frequency_penalty) * count
            row[token] -= params.presence_penalty
    return row


def kept(row: Tensor, params: SamplingParams) -> tuple[set[int], set[int]]:
    """The ids that min-p, top-k and top-p surely keep, and those that they may keep if sums round another way."""
    logits = ((row - row.max()) / params.temperature).tolist()
    ids = [token for token in range(len(row)) if logits[token] > -math.inf]
    if params.min_p > 0:
        ids = [token for token in ids if logits[token] >= float(torch.tensor(math.log(params.min_p)))]
    if params.top_k > 0:
        last = sorted((logits[token] for token in ids), reverse=True)[: params.top_k][-1]
        ids = [token for token in ids if logits[token] >= last]
    weights = {token: math.exp(logits[token]) for token in ids}
    whole = sum(weights.values())

    def reaching(share: float) -> set[int]:
        # What lies above a token decides whether it is needed: that rule knows no order among equals
        above = {
            level: math.fsum(w for token, w in weights.items() if logits[token] > level)
            for level in {logits[token] for token in ids}
        }
        return {token for token in ids if above[logits[token]] < share * whole or params.top_p == 1}

    return reaching(params.top_p - 1e-5), reaching(params.top_p + 1e-5)


def probabilities(row: Tensor, params: SamplingParams, ids: set[int]) -> Tensor:
    """The distribution over these ids, [vocab_size] float64."""
    mask = torch.full_like(row, -math.inf, dtype=torch.float64)
    mask[sorted(ids)] = 0.0
    return torch.softmax((row - row.max()).double() / params.temperature + mask, dim=-1)


def first_exceeding(weights: Sequence[float], uniform: float) -> int:
    """Inverse CDF in id order."""
    goal, reached = uniform * math.fsum(weights), 0.0
    for token, weight in enumerate(weights):
        reached += weight
        if reached > goal:
            return token
    raise AssertionError("a uniform below 1 stays below the total")


def likeliest(row: Tensor, count: int) -> list[int]:
    """Largest first, ties by id."""
    return sorted(range(len(row)), key=lambda token: (-float(row[token]), token))[:count]


def chi_square(counts: Sequence[int], probabilities: Sequence[float]) -> float:
    """Pearson's statistic of observed counts; every cell with probability 0 must be empty."""
    runs, statistic = sum(counts), 0.0
    for count, probability in zip(counts, probabilities, strict=True):
        if probability == 0:
            assert count == 0
            continue
        statistic += (count - runs * probability) ** 2 / (runs * probability)
    return statistic
