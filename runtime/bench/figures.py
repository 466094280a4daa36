"""From runs to figures: acceptance, rates, ratios and milliseconds, each from sums over runs unless it says median.

Acceptance is counted over verify steps that held at least one draft, as vLLM counts it. A step commits its accepted
drafts and one token of the target's own, so the mean acceptance length is 1 + accepted / steps. Of position i,

    unconditional   the share of these steps that accepted positions 1..i all: they add up to the length less one
    conditional     of the steps that had a draft at i and accepted all before it, the share that accepted i too: how
                    good the draft is at its i-th guess, when it is asked for one that counts
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from runtime.bench.measure import Run, Step
from runtime.check import first_difference


@dataclass(frozen=True)
class Acceptance:
    """What was proposed and accepted.

    Attributes:
        num_drafts: verify steps that held a draft.
        unconditional, conditional: per position, from the first; a conditional one is None where it never came to it.
    """

    num_drafts: int
    num_draft_tokens: int
    num_accepted_tokens: int
    unconditional: tuple[float, ...]
    conditional: tuple[float | None, ...]

    @classmethod
    def of(cls, steps: Iterable[Step]) -> Acceptance:
        held = [step for step in steps if step.num_draft_tokens]
        positions = range(1, max((step.num_draft_tokens for step in held), default=0) + 1)
        accepted = [sum(step.num_accepted >= position for step in held) for position in positions]
        reached = [
            sum(step.num_draft_tokens >= position and step.num_accepted >= position - 1 for step in held)
            for position in positions
        ]
        return cls(
            len(held),
            sum(step.num_draft_tokens for step in held),
            sum(step.num_accepted for step in held),
            tuple(count / len(held) for count in accepted),
            tuple(_over(count, times) for count, times in zip(accepted, reached, strict=True)),
        )

    @property
    def mean_acceptance_length(self) -> float:
        """Tokens a step, the target's own included; 1 without drafts."""
        return 1 + self.num_accepted_tokens / self.num_drafts if self.num_drafts else 1.0

    def to_json(self) -> dict[str, object]:
        return {
            "num_drafts": self.num_drafts,
            "num_draft_tokens": self.num_draft_tokens,
            "num_accepted_tokens": self.num_accepted_tokens,
            "mean_acceptance_length": _rounded(self.mean_acceptance_length),
            "unconditional_per_pos": [_rounded(value) for value in self.unconditional],
            "conditional_per_pos": [_rounded(value) for value in self.conditional],
        }


@dataclass(frozen=True)
class Speed:
    """How fast some runs of one engine were.

    Attributes:
        decode_tokens_per_s: tokens after each request's first over the time after it: the rate that a user sees.
        end_to_end_tokens_per_s: all tokens over all time, prefill included; of several requests at once their sum.
        verify_ms, draft_ms, host_ms: medians over verify steps; of the draft's over those after which it ran.
    """

    completion_tokens: int
    decode_tokens_per_s: float | None
    end_to_end_tokens_per_s: float | None
    verify_ms: float | None
    draft_ms: float | None
    host_ms: float | None

    @classmethod
    def of(cls, runs: Sequence[Run]) -> Speed:
        tokens = sum(len(run.output.token_ids) for run in runs)
        steps = [step for run in runs for step in run.steps]
        return cls(
            tokens,
            _over(sum(run.decode_tokens for run in runs), sum(run.decode_seconds for run in runs)),
            _over(tokens, sum(run.seconds for run in runs)),
            _median(step.verify_ms for step in steps),
            _median(step.draft_ms for step in steps if step.draft_ms > 0),
            _median(step.host_ms for step in steps),
        )

    def to_json(self) -> dict[str, object]:
        return {
            "completion_tokens": self.completion_tokens,
            "decode_tokens_per_s": _rounded(self.decode_tokens_per_s),
            "end_to_end_tokens_per_s": _rounded(self.end_to_end_tokens_per_s),
            "verify_ms": _rounded(self.verify_ms),
            "draft_ms": _rounded(self.draft_ms),
            "host_ms": _rounded(self.host_ms),
        }


@dataclass(frozen=True)
class Difference:
    """A request whose speculative text is not that of plain decoding: the index of its first other token."""

    prompt: int
    num_speculative_tokens: int
    token: int


@dataclass(frozen=True)
class Figures:
    """Speculation beside plain decoding over some prompts.

    Attributes:
        decode_median_speedup: the median over prompts of what each one gained, which a stall of the machine in one of
            them does not move.
        differences: empty where every text is identical.
    """

    prompts: int
    acceptance: Acceptance
    plain: Speed
    speculative: Speed
    decode_median_speedup: float | None
    differences: tuple[Difference, ...]

    @classmethod
    def of(cls, plain: Sequence[Run], speculative: Sequence[Run]) -> Figures:
        """From the runs of the same prompts in the same order."""
        pairs = list(zip(plain, speculative, strict=True))
        return cls(
            len(pairs),
            Acceptance.of(step for run in speculative for step in run.steps),
            Speed.of(plain),
            Speed.of(speculative),
            _median(gain for pair in pairs if (gain := _over(_rate(pair[1]), _rate(pair[0]))) is not None),
            tuple(
                Difference(other.prompt, other.num_speculative_tokens, at)
                for reference, other in pairs
                if (at := first_difference(reference.output, other.output)) is not None
            ),
        )

    @property
    def identical(self) -> int:
        """Prompts whose text is that of plain decoding."""
        return self.prompts - len(self.differences)

    @property
    def decode_speedup(self) -> float | None:
        return _over(self.speculative.decode_tokens_per_s, self.plain.decode_tokens_per_s)

    @property
    def end_to_end_speedup(self) -> float | None:
        return _over(self.speculative.end_to_end_tokens_per_s, self.plain.end_to_end_tokens_per_s)

    def to_json(self) -> dict[str, object]:
        return {
            "prompts": self.prompts,
            "identical": self.identical,
            "acceptance": self.acceptance.to_json(),
            "plain": self.plain.to_json(),
            "speculative": self.speculative.to_json(),
            "speedup": {
                "decode": _rounded(self.decode_speedup),
                "decode_median": _rounded(self.decode_median_speedup),
                "end_to_end": _rounded(self.end_to_end_speedup),
            },
        }


def _rate(run: Run) -> float | None:
    return _over(run.decode_tokens, run.decode_seconds)


def _over(above: float | None, below: float | None) -> float | None:
    """The quotient; None where there is nothing to divide, or nothing to divide by."""
    return None if above is None or not below else above / below


def _median(values: Iterable[float]) -> float | None:
    found = list(values)
    return statistics.median(found) if found else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
