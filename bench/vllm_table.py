"""Two sides of one draft: acceptance by our runtime beside vLLM's, and whether they agree.

Both count verify steps that held a draft. Of position i, the unconditional acceptance is the share of these steps that
accepted positions 1..i all. The verdict looks at these shares alone; the mean acceptance length is one plus their sum.

In bfloat16 two right implementations may pick different tokens where two are all but equally likely. From there on
they answer different texts, of which one may be the easier to guess. So acceptance is shown a second time over the
prompts whose texts are equal, where the sides proposed for, and checked against, the same tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any


@dataclass(frozen=True)
class Acceptance:
    """One side over some prompts: verify steps that held a draft, and the share accepted at positions 1, 2, ..."""

    num_drafts: int
    unconditional: tuple[float, ...]

    @classmethod
    def of(cls, answers: Iterable[Mapping[str, Any]], positions: int) -> Acceptance:
        """The sum of counts under vLLM's names: num_drafts, and num_accepted_tokens_per_pos of at most `positions`."""
        num_drafts, accepted = 0, [0] * positions
        for answer in answers:
            num_drafts += answer["num_drafts"]
            for index, count in enumerate(answer["num_accepted_tokens_per_pos"]):
                accepted[index] += count
        return cls(num_drafts, tuple(count / num_drafts if num_drafts else 0.0 for count in accepted))

    @property
    def mean_acceptance_length(self) -> float:
        """Tokens a step, the target's own included."""
        return 1 + sum(self.unconditional)

    def to_json(self) -> dict[str, Any]:
        return {
            "num_drafts": self.num_drafts,
            "mean_acceptance_length": round(self.mean_acceptance_length, 4),
            "unconditional_per_pos": [round(share, 4) for share in self.unconditional],
        }


@dataclass(frozen=True)
class Pair:
    """Both sides over the same prompts."""

    ours: Acceptance
    vllm: Acceptance

    @property
    def points(self) -> tuple[float, ...]:
        """Ours less vLLM's, by position, in percentage points."""
        shares = zip(self.ours.unconditional, self.vllm.unconditional, strict=True)
        return tuple(100 * (ours - vllm) for ours, vllm in shares)

    @property
    def largest(self) -> float:
        """The largest difference either way, in points."""
        return max(map(abs, self.points))

    def lines(self) -> list[str]:
        rows = [("", "ours", "vLLM", "points")]
        for position, (ours, vllm, points) in enumerate(
            zip(self.ours.unconditional, self.vllm.unconditional, self.points, strict=True), start=1
        ):
            rows.append((f"accepted at {position}", f"{ours:.1%}", f"{vllm:.1%}", f"{points:+.1f}"))
        lengths = self.ours.mean_acceptance_length, self.vllm.mean_acceptance_length
        rows.append(("acceptance length", f"{lengths[0]:.3f}", f"{lengths[1]:.3f}", f"{lengths[0] - lengths[1]:+.3f}"))
        rows.append(("steps with drafts", str(self.ours.num_drafts), str(self.vllm.num_drafts), ""))
        return [f"{name:<18}{ours:>8}{vllm:>8}{points:>8}".rstrip() for name, ours, vllm, points in rows]

    def to_json(self) -> dict[str, Any]:
        return {
            "ours": self.ours.to_json(),
            "vllm": self.vllm.to_json(),
            "points_per_pos": [round(points, 2) for points in self.points],
        }


@dataclass(frozen=True)
class Comparison:
    """The result.

    Attributes:
        names: what each prompt is called.
        total: over all prompts; the verdict is of it.
        equal: whether both sides gave the same tokens, prompt by prompt.
        alike: over the prompts whose texts are equal; None where there is none.
        plain: how many texts equal those of vLLM without speculation, by side; None where it was not run.
        tolerance: the largest difference that still counts as agreement, in points.
    """

    names: tuple[str, ...]
    total: Pair
    equal: tuple[bool, ...]
    alike: Pair | None
    plain: Mapping[str, int] | None
    tolerance: float

    @property
    def agree(self) -> bool:
        return self.total.largest <= self.tolerance

    def verdict(self) -> str:
        """ "agree: at most 0.8 points apart, tolerance 3"."""
        if self.agree:
            return f"agree: at most {self.total.largest:.1f} points apart, tolerance {self.tolerance:g}"
        apart = [
            f"{points:+.1f} at position {position}"
            for position, points in enumerate(self.total.points, start=1)
            if abs(points) > self.tolerance
        ]
        return f"DIFFER: {', '.join(apart)}, tolerance {self.tolerance:g} points"

    def lines(self) -> list[str]:
        """The result for people; the verdict is the last line."""
        count, same = len(self.names), sum(self.equal)
        lines = [f"All {count} prompts", *self.total.lines(), "", f"Texts equal on {same} of {count} prompts."]
        if same < count:
            parted = [name for name, equal in zip(self.names, self.equal, strict=True) if not equal]
            lines[-1] += f" They part at: {', '.join(parted)}."
        if self.plain is not None:
            lines.append(
                f"Texts equal to vLLM's without speculation: ours {self.plain['ours']}, vLLM's {self.plain['vllm']}."
            )
        if self.alike is not None and same < count:
            lines += ["", f"The {same} with equal texts", *self.alike.lines()]
        return [*lines, "", self.verdict()]

    def to_json(self) -> dict[str, Any]:
        return {
            "prompts": len(self.names),
            "total": self.total.to_json(),
            "equal_texts": sum(self.equal),
            "parted": [name for name, equal in zip(self.names, self.equal, strict=True) if not equal],
            "over_equal_texts": None if self.alike is None else self.alike.to_json(),
            "equal_to_plain_vllm": None if self.plain is None else dict(self.plain),
            "tolerance_points": self.tolerance,
            "largest_points": round(self.total.largest, 2),
            "agree": self.agree,
        }


def compare(
    names: Sequence[str],
    total: Acceptance,
    ours: Sequence[Mapping[str, Any]],
    vllm: Sequence[Mapping[str, Any]],
    plain: Sequence[Mapping[str, Any]] | None,
    tolerance: float,
) -> Comparison:
    """Put both sides beside one another.

    Args:
        names: of the prompts, as many as there are answers in each of the following.
        total: our acceptance over all prompts; its positions are K.
        ours, vllm: for each prompt its token_ids, num_drafts and num_accepted_tokens_per_pos.
        plain: the token_ids of vLLM without speculation, if it was run.
        tolerance: in points.
    """
    positions = len(total.unconditional)
    equal = _equal(ours, vllm)
    alike = Pair(*(Acceptance.of(compress(side, equal), positions) for side in (ours, vllm))) if any(equal) else None
    return Comparison(
        tuple(names),
        Pair(total, Acceptance.of(vllm, positions)),
        equal,
        alike,
        None if plain is None else {"ours": sum(_equal(ours, plain)), "vllm": sum(_equal(vllm, plain))},
        tolerance,
    )


def _equal(one: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]]) -> tuple[bool, ...]:
    return tuple(a["token_ids"] == b["token_ids"] for a, b in zip(one, other, strict=True))
