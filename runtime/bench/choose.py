"""What is measured: which numbers of draft tokens, and which of a file's prompts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import zip_longest

from runtime.bundle.errors import UsageError
from runtime.prompts import Prompt

_PART = re.compile(r"([0-9]{1,2})(?:-([0-9]{1,2}))?")


def parse_counts(text: str, option: str = "--num-speculative-tokens", least: int = 1) -> tuple[int, ...]:
    """Numbers from a list like "3", "1-6" or "1,3": ascending, each once, each from `least` to 99.

    Raises:
        UsageError: the `text` given to `option` is no such list.
    """
    counts: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (-1, -1)
        if not least <= first <= last:
            raise UsageError(
                f"{option} is not a list of whole numbers",
                expected=f'numbers or ranges from {least} to 99, as in "3", "1-6" or "1,3"',
                found=repr(text),
                repair="give such a list",
            )
        counts.update(range(first, last + 1))
    return tuple(sorted(counts))


def sample(prompts: Sequence[Prompt], limit: int | None) -> tuple[Prompt, ...]:
    """`limit` prompts, as many of each kind as of any other while there are any, in the order of the file.

    Of each kind the first ones are taken, so that a larger limit measures the same prompts and more.
    """
    if limit is None or limit >= len(prompts):
        return tuple(prompts)
    by_kind: dict[str | None, list[int]] = {}
    for index, prompt in enumerate(prompts):
        by_kind.setdefault(prompt.kind, []).append(index)
    rounds = zip_longest(*by_kind.values())
    chosen = [index for turn in rounds for index in turn if index is not None][:limit]
    return tuple(prompts[index] for index in sorted(chosen))
