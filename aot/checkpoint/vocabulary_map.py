"""d2t: from the draft's reduced vocabulary to the target's.

Published drafts predict over the draft_vocab_size most frequent tokens of their training text. `d2t` holds
offsets: draft id i is target id i + d2t[i]. The mapped ids must be strictly increasing, inside the target's
vocabulary and all different, which also makes "argmax, then map" give the same token as vLLM's scatter into
the whole vocabulary, ties included. `t2d`, bool over the target's vocabulary, marks the same ids and is only
checked against it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from runtime.bundle.errors import ConfigError

if TYPE_CHECKING:
    import torch

# Of so many ids, some two are neighbours
FEWEST_TO_JUDGE = 64

_REPAIR = "export the draft again with the map that its lm_head was trained on"


def draft_to_target(
    d2t: torch.Tensor | None, t2d: torch.Tensor | None, draft_vocab_size: int, vocab_size: int
) -> torch.Tensor:
    """The checked offsets, int64 [draft_vocab_size].

    Without a d2t they are zeros where both vocabularies are the same, else the marked ids of t2d less 0, 1,
    2, ...

    Raises:
        ConfigError: a reduced vocabulary has neither, the map is not strictly increasing inside the vocabulary, it is
            or may be the ids themselves, it is all zeros though t2d marks other ids (a broken export), or both
            tensors disagree.
    """
    import torch

    rows = torch.arange(draft_vocab_size, dtype=torch.int64)
    marked = None if t2d is None else t2d.to(torch.bool).nonzero().flatten()
    if d2t is None:
        if marked is not None:
            d2t = marked[:draft_vocab_size] - rows[: len(marked)]
        elif draft_vocab_size == vocab_size:
            return torch.zeros_like(rows)
    if d2t is None or len(d2t) != draft_vocab_size:
        raise ConfigError(
            "the draft has a reduced vocabulary and no whole map to the target's",
            expected=f"d2t with {draft_vocab_size} offsets",
            found="none" if d2t is None else str(len(d2t)),
            repair=_REPAIR,
        )
    if d2t.is_floating_point() or d2t.is_complex() or d2t.dtype == torch.bool:
        raise ConfigError("d2t of the draft is not a tensor of integers", found=str(d2t.dtype), repair=_REPAIR)
    offsets = d2t.to(torch.int64)
    ids = rows + offsets
    outside = ((ids < 0) | (ids >= vocab_size)).nonzero().flatten()
    if len(outside):
        row = int(outside[0])
        absolute = bool((offsets.diff() > 0).all()) and int(offsets.min()) >= 0 and int(offsets.max()) < vocab_size
        raise ConfigError(
            f"d2t of the draft leads outside the target's vocabulary at row {row}",
            expected=f"{row} + d2t[{row}] from 0 to {vocab_size - 1}",
            found=str(int(ids[row])) + (" (the values may be ids instead of offsets)" if absolute else ""),
            repair=_REPAIR,
        )
    falls = (ids.diff() <= 0).nonzero().flatten()
    if len(falls):
        row = int(falls[0]) + 1
        raise ConfigError(
            f"d2t of the draft is not strictly increasing at row {row}",
            expected=f"a target id above {int(ids[row - 1])}",
            found=str(int(ids[row])),
            repair=_REPAIR,
        )
    if marked is None and draft_vocab_size < vocab_size and _may_be_ids(offsets):
        few = draft_vocab_size < FEWEST_TO_JUDGE and offsets.tolist() != rows.tolist()
        raise ConfigError(
            "d2t of the draft " + ("can mean offsets or ids" if few else "seems to hold ids in the place of offsets"),
            expected="offsets, which repeat wherever the draft predicts neighbouring ids",
            found=f"{int(offsets[0])}, {int(offsets[1])} and so on, no two alike",
            repair=_REPAIR + "; if they are offsets, add t2d to the checkpoint",
        )
    if marked is None and draft_vocab_size < vocab_size and not offsets.any():
        raise ConfigError(
            "d2t of the draft is all zeros, which is what broken exports write",
            expected="offsets to the target ids that the draft predicts",
            repair=_REPAIR + "; if it truly predicts the first ids, add t2d to the checkpoint",
        )
    if marked is not None and not torch.equal(marked, ids):
        as_ids = torch.equal(marked, offsets)
        raise ConfigError(
            "d2t and t2d of the draft name different target ids",
            expected=f"t2d true at the {draft_vocab_size} ids of d2t and nowhere else",
            found="d2t with the ids themselves in the place of offsets" if as_ids else f"{len(marked)} true",
            repair=_REPAIR,
        )
    return offsets


def _may_be_ids(offsets: torch.Tensor) -> bool:
    """Whether the values ascend at every row, as ids do.

    Offsets ascend at every row only where no two predicted ids are neighbours, which no vocabulary chosen by frequency
    has; of a few dozen ids it may come about, and then the values alone do not tell. One value is the same either way.
    """
    return len(offsets) > 1 and bool((offsets.diff() > 0).all())
