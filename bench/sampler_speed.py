"""Microseconds of the sampler for one request, by what it asks for, at two vocabulary sizes.

    python -m bench.sampler_speed

Logits are normal noise of deviation 2.5, so that top-p 0.95 keeps thousands of tokens, or 6, where it keeps few.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import replace

import torch
from torch import Tensor

from runtime.sampling.params import SamplingParams
from runtime.sampling.sampler import Rejection, SampledRows, Sampler

RUNS, K = 100, 3
CASES = {
    "greedy, 5 logprobs": SamplingParams(temperature=0.0, logprobs=5),
    "temperature": SamplingParams(temperature=0.8, seed=1),
    "top-k 50": SamplingParams(temperature=0.8, top_k=50, seed=1),
    "top-p 0.95": SamplingParams(temperature=0.8, top_p=0.95, seed=1),
    "all penalties": SamplingParams(
        temperature=0.8, presence_penalty=0.5, frequency_penalty=0.5, repetition_penalty=1.1, seed=1
    ),
}


def accepted(sampler: Sampler, request: SampledRows, logits: Tensor) -> SampledRows:
    """The request with drafts that are all accepted, so that every row is worked through."""
    for place in range(K):
        token = sampler.choose([request], logits)[0].token_ids[place]
        request = replace(request, drafts=[*request.drafts, token])
    return request


def microseconds(sampler: Sampler, request: SampledRows, logits: Tensor) -> str:
    """The median and the least of a call, in the thread's own CPU time: other work on the machine counts less."""
    taken = []
    for _ in range(RUNS):
        started = time.thread_time()
        sampler.choose([request], logits)
        taken.append(time.thread_time() - started)
    return f"{statistics.median(taken) * 1e6:5.0f} us (least {min(taken) * 1e6:5.0f})"


def main() -> None:
    for vocab_size in (49152, 128256):
        for spread in (2.5, 6.0):
            generator = torch.Generator().manual_seed(0)
            logits = torch.randn(1 + K, vocab_size, generator=generator) * spread
            history = torch.randint(vocab_size, (800,), generator=generator).tolist()
            rejections: tuple[Rejection, ...] = ("coupled", "standard")
            for rejection in rejections:
                sampler = Sampler(vocab_size, rejection)
                for name, params in CASES.items():
                    alone = SampledRows(params, history, 400, (), 0, frozenset({0}))
                    one = microseconds(sampler, alone, logits)
                    text = f"V {vocab_size:6}  deviation {spread}  {rejection:8}  {name:18}  one row {one}"
                    if rejection == "coupled":
                        text += f"  four rows {microseconds(sampler, accepted(sampler, alone, logits), logits)}"
                    print(text)


if __name__ == "__main__":
    main()
