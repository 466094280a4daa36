"""A model whose values are small whole numbers: what must have equal bits has them, on any machine.

In floating point a row's last bits may hang on how many rows a product has, and on the CPU. The builder measures that
before it relies on it; a test of the builder's checks cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from aot.models.llama import greedy_rejection
from runtime.backends import Backend, Run
from runtime.bundle.manifest import KVCache, Unit
from runtime.pools import allocate_pools
from tests.runtime.loop.rig import VOCAB

# (hidden [R, Q, H], block table [R, B]) -> what a layer adds to hidden
Change = Callable[[Tensor, Tensor], Tensor]


class WholeNumbers:
    """Units whose values are small whole numbers, so that float32 sums are exact in any order and any shape.

    A layer writes its rows to the pools and adds the sum of what each row may see. `change` adds a fault. Tokens come
    of all channels, and where a request is not greedy of its uniform. The draft's units are another backend's.
    """

    def __init__(self, change: Change | None = None, draft: Backend | None = None) -> None:
        self._change, self._draft = change, draft

    def pools(self, cache: KVCache, num_blocks: int) -> Mapping[str, Tensor]:
        return allocate_pools(cache, num_blocks)

    def open(self, unit: Unit, scope: str) -> Run:
        if unit.name.startswith("draft"):
            assert self._draft is not None, "whole numbers are for the target alone"
            return self._draft.open(unit, scope)
        if unit.name.startswith("target_embed"):
            return self.embed
        if unit.name.startswith("target_layer"):
            return self.layer
        names = [value.name for value in unit.inputs]
        outputs = [value.name for value in unit.outputs]
        return lambda inputs: self.head(dict(zip(names, inputs, strict=True)), outputs)

    def embed(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        tokens, positions = inputs
        return [(tokens * 3 + positions).float()[:, None].repeat(1, 32), torch.zeros(len(tokens), 8)]

    def layer(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        hidden, _, positions, slots, table, keys, values = inputs
        requests, rows = table.shape[0], len(hidden) // table.shape[0]
        for pool in (keys, values):
            # Content that the check made is not whole
            pool.copy_(pool.round())
            pool.flatten(0, 1).index_copy_(0, slots.long(), hidden[:, :16].reshape(-1, 2, 8) % 7)
        context = values[table.long()].flatten(1, 2).flatten(2)
        seen = torch.arange(context.shape[1]) <= positions.view(requests, rows, 1)
        mixed = (seen.float() @ context).repeat(1, 1, 2) % 11
        out = hidden.view(requests, rows, 32) % 13 + mixed
        if self._change:
            out = out + self._change(out, table)
        return [out.flatten(0, 1)]

    def head(self, given: Mapping[str, Tensor], outputs: Sequence[str]) -> list[Tensor]:
        hidden = given["hidden"]
        features = torch.cat([value for name, value in given.items() if name.startswith("aux")], dim=-1)
        if "last_index" in given:
            hidden = hidden[given["last_index"].long()]
        # Whole but for what a check made of the KV
        number = (hidden * torch.arange(1, 33)).sum(dim=1).round().long()
        if "uniforms" in given:
            drawn = given["temperature"].repeat_interleave(len(hidden) // len(given["temperature"])) > 0
            number = number + torch.where(drawn, (given["uniforms"] * VOCAB).long(), 0)
        chosen = (number % VOCAB).int()
        if "last_index" in given:
            made = [chosen, features]
        else:
            counts = given["num_draft_tokens"]
            drafts = given["tokens"].view(len(counts), -1)[:, 1:]
            made = [greedy_rejection(chosen.view(len(counts), -1), drafts, counts), features]
        return [*made, hidden.clone()] if len(outputs) > 2 else made
