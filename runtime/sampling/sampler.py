from dataclasses import dataclass
from collections.abc import Sequence
from typing import Literal
from torch import Tensor
from runtime.sampling.params import SamplingParams, TokenLogprobs
Rejection = Literal["coupled", "standard"]
@dataclass(frozen=True)
class SampledRows:
    params: SamplingParams
    token_ids: Sequence[int]
    num_prompt_tokens: int
    drafts: Sequence[int]
    first_row: int
    stop_ids: frozenset[int]
@dataclass(frozen=True)
class Choice:
    token_ids: list[int]
    logprobs: list[TokenLogprobs] | None
class Sampler:
    def __init__(self, vocab_size: int, rejection: Rejection = "coupled") -> None: ...
    def choose(self, rows: Sequence[SampledRows], logits: Tensor) -> list[Choice]:
        raise NotImplementedError
