"""Chooses tokens from a pass's logits: each request's own processors and draw, and rejection of its drafts.

Two ways to reject leave the distribution of the text what it is without drafts:

    coupled:   a row's token is drawn with noise of (seed, position); a draft is accepted while it equals that token
    standard:  a draft is accepted with its probability; else a token comes from the rest (arXiv:2211.17192)

A draft is proposed with certainty, so both accept it as often. Coupled text depends on logits, seed and position alone:
it is the same alone, in any batch, for any K and without drafts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from runtime.bundle.signs import NOT_FINITE
from runtime.sampling.counts import TokenCounts
from runtime.sampling.distribution import Distribution, distribution
from runtime.sampling.logprobs import token_logprobs
from runtime.sampling.metadata import SpecDecodeMetadata
from runtime.sampling.noise import Purpose, exponentials, uniforms
from runtime.sampling.params import SamplingParams, TokenLogprobs
from runtime.sampling.processors import RowProcessors

Rejection = Literal["coupled", "standard"]


@dataclass(frozen=True)
class SampledRows:
    """One request of a pass, with 1 + len(drafts) rows of logits.

    Attributes:
        params: its seed is not None unless it is greedy.
        token_ids: committed so far, prompt and generated.
        num_prompt_tokens: how many of them are the prompt.
        drafts: tokens of the rows after the first, 0..K.
        first_row: the request's first row in the logits.
        stop_ids: banned before `params.min_tokens` tokens are generated: end-of-sequence ids, unless they are ignored,
            and `params.stop_token_ids`.
        counts: kept by the caller from step to step it spares penalties counting all of token_ids again; a choice does
            not depend on it.
    """

    params: SamplingParams
    token_ids: Sequence[int]
    num_prompt_tokens: int
    drafts: Sequence[int]
    first_row: int
    stop_ids: frozenset[int]
    counts: TokenCounts | None = None


@dataclass(frozen=True)
class Choice:
    """What a request's rows yield.

    Attributes:
        token_ids: the accepted drafts, then the recovered or the bonus token; 1..1+len(drafts) ids. In place of the
            last, NOT_FINITE where its row is not all finite, as a graph's own choice has it.
        logprobs: one for each token, of the row that chose it; None where `SamplingParams.logprobs` is None.
        error: why the request cannot go on behind the tokens before NOT_FINITE, which is then the last too.
    """

    token_ids: list[int]
    logprobs: list[TokenLogprobs] | None
    error: Exception | None = None


class Sampler:
    """Stateless: a choice is a function of its arguments.

    Args:
        vocab_size: columns of the logits from here on are padding, and are never looked at.
        rejection: which of the two ways above.
    """

    def __init__(self, vocab_size: int, rejection: Rejection = "coupled") -> None:
        self.vocab_size, self.rejection = vocab_size, rejection

    def choose(self, rows: Sequence[SampledRows], logits: Tensor) -> list[Choice]:
        """Choose for each request, in their order; rows after a rejected draft are not read, nor judged.

        What fails for one request is its choice's error, and the others' choices are made.

        Args:
            logits: float32 on the host, [rows of the pass, at least vocab_size].
        """
        values = logits.detach().numpy()[:, : self.vocab_size]
        metadata = SpecDecodeMetadata.from_drafts([r.first_row for r in rows], [r.drafts for r in rows])
        return [self._choose(request, values, metadata.rows_of(index)) for index, request in enumerate(rows)]

    def _choose(self, request: SampledRows, values: NDArray[np.float32], places: Sequence[int]) -> Choice:
        tokens: list[int] = []
        logprobs: list[TokenLogprobs] = []
        error: Exception | None = None
        try:
            for token, told in self._tokens(request, values, places):
                tokens.append(token)
                logprobs += [told] if told is not None else []
        except Exception as failure:  # of this request's own parameters and rows
            # Tokens before it stay, as without drafts; there are never more entries than rows
            tokens[len(request.drafts) :] = [NOT_FINITE]
            error = failure
        return Choice(tokens, logprobs if request.params.logprobs is not None else None, error)

    def _tokens(
        self, request: SampledRows, values: NDArray[np.float32], places: Sequence[int]
    ) -> Iterator[tuple[int, TokenLogprobs | None]]:
        """Each token with its log probabilities, once nothing about it can fail any more."""
        params, position = request.params, len(request.token_ids)
        processors = self._processors(request) if params.processed else None
        try:
            units = self._units(request)
            for index, draft in enumerate((*request.drafts, None)):
                raw = values[places[index]]
                if not np.isfinite(raw).all():
                    yield NOT_FINITE, None
                    return
                token = self._token(params, raw, processors, draft, position + index, units[index])
                yield token, None if params.logprobs is None else token_logprobs(raw, token, params.logprobs)
                if token != draft:
                    return
                if processors is not None:
                    processors.advance(token)
        finally:
            if processors is not None:
                processors.close()

    def _processors(self, request: SampledRows) -> RowProcessors:
        return RowProcessors(
            request.params,
            request.token_ids,
            request.num_prompt_tokens,
            request.stop_ids,
            self.vocab_size,
            request.counts,
        )

    def _units(self, request: SampledRows) -> list[float]:
        """One uniform number for each row; a greedy request needs none."""
        seed, rows = request.params.seed, 1 + len(request.drafts)
        if request.params.greedy:
            return [0.0] * rows
        assert seed is not None, "the engine gives every random request a seed"
        purpose = Purpose.DRAW if self.rejection == "coupled" else Purpose.ACCEPT
        return uniforms(seed, len(request.token_ids), rows, purpose)

    def _token(
        self,
        params: SamplingParams,
        row: NDArray[np.float32],
        processors: RowProcessors | None,
        draft: int | None,
        position: int,
        unit: float,
    ) -> int:
        """The token at `position`; `draft` itself where it is accepted."""
        if processors is not None:
            row = row.copy()
            processors.apply(row)
        best = int(row.argmax())
        hopeless = row[best] == -np.inf
        if hopeless:
            best = 0 if processors is None else processors.lowest_allowed()
        if params.greedy:
            return best
        target = Distribution.certain(best, self.vocab_size) if hopeless else distribution(row, row[best], params)
        if self.rejection == "coupled":
            return target.draw(unit)
        return self._judged(target, draft, params, position, unit)

    def _judged(
        self, target: Distribution, draft: int | None, params: SamplingParams, position: int, unit: float
    ) -> int:
        if draft is not None and target.accepts(draft, unit):
            return draft
        assert params.seed is not None
        noise = exponentials(params.seed, position, Purpose.RECOVER, self.vocab_size)
        recovered = target.race(noise, without=draft)
        if recovered is None:
            # Rounding alone rejects a draft that has all weight
            assert draft is not None
            return draft
        return recovered
