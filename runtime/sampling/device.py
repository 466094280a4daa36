"""What graphs that draw tokens themselves take for a pass, and what a bundle of such graphs cannot do.

`eagle3-build` makes such graphs for `on_device_sampling_config: {all_greedy: false}`. They draw as the host's sampler
does with `rejection: coupled`: the same number for the same (seed, position), in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from runtime.sampling.noise import Purpose
from runtime.sampling.noise import uniforms as numbers
from runtime.sampling.params import SamplingParams

# Padding requests are greedy and cut nothing off
_PADDING = (0.0, 0.0, 1.0, 0.0)


class DrawnRows(Protocol):
    """One request of a pass, such as `runtime.sampling.sampler.SampledRows`; it may be greedy."""

    @property
    def params(self) -> SamplingParams: ...
    @property
    def token_ids(self) -> Sequence[int]: ...
    @property
    def drafts(self) -> Sequence[int]: ...


def device_inputs(members: Sequence[DrawnRows], requests: int, rows_each: int) -> dict[str, Tensor]:
    """The inputs temperature, top_p, min_p [R] float32, top_k [R] int32 and uniforms [R*rows_each] float32.

    Args:
        members: the requests of the pass in their order, at most R = `requests`; every random one has a seed. Row i of
            one whose committed tokens are n draws the token at position n + i.
        rows_each: rows of a request that choose a token: 1 of a prefill, 1+K of target_verify, 1 of target_decode.
    """
    asked = [_asked(member.params) for member in members] + [_PADDING] * (requests - len(members))
    temperature, top_k, top_p, min_p = torch.tensor(asked, dtype=torch.float64).T
    uniforms = [0.0] * (requests * rows_each)
    for index, member in enumerate(members):
        if member.params.greedy:
            continue
        base, count = index * rows_each, min(1 + len(member.drafts), rows_each)
        uniforms[base : base + count] = _drawn(member.params, len(member.token_ids), count)
    return {
        "temperature": temperature.to(torch.float32),
        "top_k": top_k.to(torch.int32),
        "top_p": top_p.to(torch.float32),
        "min_p": min_p.to(torch.float32),
        "uniforms": torch.tensor(uniforms, dtype=torch.float32),
    }


def unsupported(params: SamplingParams) -> str | None:
    """The first parameter of a request that needs logits on the host, by name; None where the graphs can do it all."""
    for name, asked in (
        ("presence_penalty", params.presence_penalty != 0),
        ("frequency_penalty", params.frequency_penalty != 0),
        ("repetition_penalty", params.repetition_penalty != 1),
        ("logit_bias", bool(params.logit_bias)),
        ("allowed_token_ids", params.allowed_token_ids is not None),
        ("bad_words_token_ids", bool(params.bad_words_token_ids)),
        ("min_tokens", params.min_tokens > 0),
        ("logprobs", params.logprobs is not None),
    ):
        if asked:
            return name
    return None


def _asked(params: SamplingParams) -> tuple[float, float, float, float]:
    """(temperature, top_k, top_p, min_p) within what float32 and int32 hold."""
    if params.greedy:
        return _PADDING
    largest = float(torch.finfo(torch.float32).max)
    top_k = min(max(params.top_k, 0), torch.iinfo(torch.int32).max)
    return min(params.temperature, largest), float(top_k), params.top_p, params.min_p


def _drawn(params: SamplingParams, position: int, count: int) -> list[float]:
    assert params.seed is not None, "the engine gives every random request a seed"
    return numbers(params.seed, position, count, Purpose.DRAW)
