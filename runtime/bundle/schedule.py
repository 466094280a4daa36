"""How many tokens a step drafts for how many requests: vLLM's `num_speculative_tokens_per_batch_size`.

A list of [first, last, K], inclusive ranges of the number of requests in a pass, none over another. The first begins
at 1, so that every batch has a K; a batch between two ranges or behind the last one has the K of the range before it.
K may be 0: nothing is drafted then, but the draft's first pass still runs, so that its KV is whole when drafting
starts again.

Unlike vLLM we refuse a K above num_speculative_tokens instead of lowering it: no graph would have the rows for it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from runtime.bundle.errors import UsageError

KEY = "num_speculative_tokens_per_batch_size"
Range = tuple[int, int, int]


@dataclass(frozen=True)
class KSchedule:
    """A schedule that holds what the module says. Build it with `of`, which checks.

    Attributes:
        ranges: (first batch size, last batch size, K), ascending and apart from each other; the first begins at 1.
    """

    ranges: tuple[Range, ...]

    @classmethod
    def of(cls, value: object, most: int | None = None) -> KSchedule:
        """The schedule that `value` spells, a list of lists of three integers.

        Args:
            most: the largest K that can be, num_speculative_tokens of the bundle; None where it is not known yet.

        Raises:
            UsageError: `value` is no such list, or breaks one of the rules.
        """
        if not isinstance(value, list | tuple) or not value:
            raise _refuse(
                "is not a schedule", "a list of [first, last, K]", _show(value), "write [[1, 4, 3], [5, 8, 1]]"
            )
        ranges = tuple(sorted(_range(entry) for entry in value))
        if ranges[0][0] != 1:
            first, last, k = ranges[0]
            raise _refuse(
                "does not begin with one request",
                "a first range that starts at 1",
                _show(ranges[0]),
                f"start with [1, {last}, {k}]" if first > 1 else "start with 1",
            )
        for before, after in pairwise(ranges):
            if after[0] <= before[1]:
                raise _refuse(
                    "has ranges that overlap",
                    f"each batch size in one range, so above {before[1]} after {_show(before)}",
                    _show(after),
                    "leave each batch size in one of them",
                )
        if most is not None:
            _check_most(ranges, most)
        return cls(ranges)

    @classmethod
    def constant(cls, k: int) -> KSchedule:
        """The schedule that drafts `k` tokens for any number of requests."""
        return cls(((1, 1, k),))

    def k_for(self, batch_size: int) -> int:
        """The K of a pass over `batch_size` requests, at least 1."""
        return self.ranges[max(0, bisect_right(self.ranges, batch_size, key=_first) - 1)][2]

    def to_json(self) -> list[list[int]]:
        """The list that `of` reads, for JSON and YAML alike."""
        return [list(entry) for entry in self.ranges]

    @property
    def most(self) -> int:
        """The largest K."""
        return max(k for _, _, k in self.ranges)

    def buckets(self, num_seqs: Iterable[int], k: int) -> tuple[int, ...]:
        """Those of the ascending `num_seqs` buckets in which a pass can have this K.

        A pass runs in the smallest bucket that holds its requests, so a bucket takes every batch size above the one
        before it.
        """
        found, before = [], 0
        for size in num_seqs:
            if any(self.k_for(batch) == k for batch in self._turns(before + 1, size)):
                found.append(size)
            before = size
        return tuple(found)

    def _turns(self, first: int, last: int) -> list[int]:
        """The batch sizes first..last at which K can change, `first` among them."""
        return [first, *(start for start, _, _ in self.ranges if first < start <= last)]


def _first(entry: Range) -> int:
    return entry[0]


def _range(entry: object) -> Range:
    repair = "write [first, last, K], as in [1, 4, 3]"
    if isinstance(entry, list | tuple) and len(entry) == 5:
        raise _refuse(
            "has a range of context lengths, which is not supported",
            "[first, last, K]",
            _show(entry),
            "leave the two context lengths out",
        )
    if not isinstance(entry, list | tuple) or len(entry) != 3 or not all(type(number) is int for number in entry):
        raise _refuse("holds what is no range", "[first, last, K], three whole numbers", _show(entry), repair)
    first, last, k = entry
    if not 1 <= first <= last:
        raise _refuse("holds an empty range", "1 <= first <= last", _show(entry), repair)
    if k < 0:
        raise _refuse("holds a negative K", "a K of at least 0", _show(entry), "use 0 to draft nothing")
    return first, last, k


def _check_most(ranges: tuple[Range, ...], most: int) -> None:
    for entry in ranges:
        if entry[2] > most:
            raise _refuse(
                "asks for more draft tokens than num_speculative_tokens",
                f"a K of at most {most}",
                _show(entry),
                "lower that K, or rebuild the bundle with a larger num_speculative_tokens",
            )


def _refuse(what: str, expected: str, found: str, repair: str) -> UsageError:
    return UsageError(f"{KEY} {what}", expected=expected, found=found, repair=repair)


def _show(value: object) -> str:
    text = repr(list(value) if isinstance(value, tuple) else value)
    return text if len(text) <= 80 else text[:77] + "..."
