"""The result of a benchmark, and its JSON.

`--json` prints one object. Its keys are part of the contract; a number that nothing was measured for is null:

    facts         see `Facts`
    results       for each number of draft tokens, ascending: num_speculative_tokens, total, and kinds {kind: figures}
    differences   prompt, num_speculative_tokens, token: where a text left that of plain decoding; empty when it should

Figures, those of `total` and of each kind:

    prompts, identical      how many there are, and how many have the text of plain decoding
    acceptance              num_drafts, num_draft_tokens, num_accepted_tokens, mean_acceptance_length,
                            unconditional_per_pos, conditional_per_pos
    plain, speculative      completion_tokens, decode_tokens_per_s, end_to_end_tokens_per_s, verify_ms, draft_ms,
                            host_ms; a step of plain decoding is a verify step without drafts
    speedup                 decode, decode_median, end_to_end: speculative over plain
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runtime.bench.facts import Facts
from runtime.bench.figures import Difference, Figures
from runtime.bench.measure import PLAIN, Run
from runtime.prompts import Prompt

NO_KIND = "other"  # where some prompts of a file name a kind, the kind of those that name none


@dataclass(frozen=True)
class Result:
    """All figures of one benchmark.

    Attributes:
        names: what each prompt is called: its id, or where it stands.
        totals: figures over all prompts, by number of draft tokens, ascending.
        kinds: the same of each kind, kinds in the order of the prompts; empty where no prompt names one.
    """

    facts: Facts
    names: tuple[str, ...]
    totals: Mapping[int, Figures]
    kinds: Mapping[int, Mapping[str, Figures]]

    @classmethod
    def of(cls, facts: Facts, prompts: Sequence[Prompt], runs: Sequence[Run]) -> Result:
        """From every prompt's runs, plain decoding among them, in the order of the prompts."""
        counts = sorted({run.num_speculative_tokens for run in runs} - {PLAIN})
        by_count = {count: [run for run in runs if run.num_speculative_tokens == count] for count in (PLAIN, *counts)}
        members: dict[str, list[int]] = {}
        if any(prompt.kind is not None for prompt in prompts):
            for index, prompt in enumerate(prompts):
                members.setdefault(prompt.kind or NO_KIND, []).append(index)

        def figures(count: int, chosen: Sequence[int]) -> Figures:
            plain, speculative = by_count[PLAIN], by_count[count]
            return Figures.of([plain[index] for index in chosen], [speculative[index] for index in chosen])

        return cls(
            facts,
            tuple(prompt.where if prompt.id is None else str(prompt.id) for prompt in prompts),
            {count: figures(count, range(len(prompts))) for count in counts},
            {count: {kind: figures(count, chosen) for kind, chosen in members.items()} for count in counts},
        )

    @property
    def best(self) -> int:
        """The number of draft tokens with the highest rate of decoding; the fewest of several."""
        return max(self.totals, key=lambda count: self.totals[count].speculative.decode_tokens_per_s or 0.0)

    @property
    def differences(self) -> list[Difference]:
        return [difference for figures in self.totals.values() for difference in figures.differences]

    def to_json(self) -> dict[str, object]:
        return {
            "facts": self.facts.to_json(),
            "results": [
                {
                    "num_speculative_tokens": count,
                    "total": total.to_json(),
                    "kinds": {kind: figures.to_json() for kind, figures in self.kinds[count].items()},
                }
                for count, total in self.totals.items()
            ],
            "differences": [
                {
                    "prompt": self.names[difference.prompt],
                    "num_speculative_tokens": difference.num_speculative_tokens,
                    "token": difference.token,
                }
                for difference in self.differences
            ],
        }
