"""Prefix caching: what a block's key says, and from where a request may go on after a hit.

A block holds KV of the target and of the draft. The draft's row i is made of feature i and token i+1, so a block's
content depends on the token that follows it, and its key holds that token beside its own and, through the key before
it, all earlier ones. Where a text parts from a cached one within a block, at its end or right behind it, the block
is therefore run again, its target rows too, because features are not cached: the EAGLE rule, which others keep by
dropping the last block that matched. A block whose following token is not known yet cannot match.

Exact mode promises more than equal tokens: a hit gives the very bits that a cold run computes. A pass of 128 rows and
one of 4 may round differently, so the key also says how each row of the block came about, and a request goes on only
where its cold run begins a pass: at a multiple of the prefill chunk, or anywhere behind its prompt, where verify rows
keep their bits wherever they stand. Full mode takes any match, as vLLM does; texts may then part at near ties.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

PrefixCaching = Literal["exact", "full", "off"]


@dataclass(frozen=True)
class PrefixKeys:
    """Makes the keys of a request's blocks.

    Attributes:
        mode: see the module's text; no keys are made for "off".
        block_size: tokens in a block.
        chunk: tokens of a whole prefill chunk.
    """

    mode: PrefixCaching
    block_size: int
    chunk: int

    def extend(self, keys: list[bytes], token_ids: Sequence[int], num_prompt_tokens: int, known: int) -> None:
        """Append to `keys` those of the further blocks whose rows and following token lie in token_ids[:known]."""
        if self.mode == "off":
            return
        size = self.block_size
        while (len(keys) + 1) * size < known:
            start = len(keys) * size
            tokens = token_ids[start : start + size + 1]
            digest = hashlib.sha256(keys[-1] if keys else b"eagle3")
            digest.update(struct.pack(f"<{len(tokens)}q", *tokens))
            if self.mode == "exact":
                digest.update(repr(self._made(start, start + size, num_prompt_tokens)).encode())
            keys.append(digest.digest())

    def restart(self, matched: int, num_prompt_tokens: int) -> int:
        """How many of `matched` cached tokens, which are whole blocks, a request may take over: whole blocks too."""
        if self.mode == "full" or matched >= num_prompt_tokens:
            return matched
        # Where a chunk ends within a block, the next place at which both begin
        step = math.lcm(self.chunk, self.block_size)
        return matched // step * step

    def _made(self, start: int, end: int, num_prompt_tokens: int) -> tuple[object, ...]:
        """How rows start..end-1 come about in a cold run: in whole prefill chunks, in a shorter one, in verify passes.

        Within one kind a row's bits depend on the tokens alone; those of the shorter chunk on its length too, by which
        its graph is chosen.
        """
        whole = num_prompt_tokens // self.chunk * self.chunk
        if end <= whole:
            return ("whole",)
        return (max(start, whole) - start, num_prompt_tokens - whole, min(max(num_prompt_tokens, start), end) - start)
