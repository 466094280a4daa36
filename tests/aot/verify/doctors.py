"""Graph doctors, the other way round: each makes a right backend wrong in exactly one way, by name.

A doctor takes a backend and gives one that differs from it in some unit. Which check must see which of them is said in
`test_verify_doctors.py`, in one table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from runtime.backends import Backend, Run
from runtime.bundle.manifest import KVCache, Unit

# (unit, inputs by name, run) -> outputs; `run` takes inputs by name and updates the pools among them
Change = Callable[[Unit, dict[str, Tensor], Callable[[Mapping[str, Tensor]], list[Tensor]]], list[Tensor]]
Doctor = Callable[[Backend], Backend]
POOLS = ("key_pool", "value_pool")


class Doctored:
    """A backend whose units of some kind are run by `change`, with the weights of one scope or of any."""

    def __init__(self, inner: Backend, kind: str, change: Change, scope: str = "") -> None:
        self._inner, self._kind, self._change, self._scope = inner, kind, change, scope

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def pools(self, cache: KVCache, num_blocks: int) -> Mapping[str, Tensor]:
        return self._inner.pools(cache, num_blocks)

    def open(self, unit: Unit, scope: str) -> Run:
        run = self._inner.open(unit, scope)
        if not unit.name.startswith(self._kind) or not scope.startswith(self._scope):
            return run
        names = [value.name for value in unit.inputs]

        def changed(inputs: Sequence[Tensor]) -> list[Tensor]:
            by_name = dict(zip(names, inputs, strict=True))
            return self._change(unit, by_name, lambda given: run([given[name] for name in names]))

        return changed


def doctor(kind: str, change: Change, scope: str = "") -> Doctor:
    return lambda backend: Doctored(backend, kind, change, scope)


# What is accepted


def never_accepts(unit: Unit, given: dict[str, Tensor], run: Any) -> list[Tensor]:
    """The target's own token alone, whatever the drafts: plain decoding's text, and speculation for nothing."""
    accepted, *rest = run(given)
    return [torch.cat([accepted[:, :1], torch.full_like(accepted[:, 1:], -1)], dim=1), *rest]


def accepts_one_too_few(unit: Unit, given: dict[str, Tensor], run: Any) -> list[Tensor]:
    """The last accepted draft is committed as the corrected token would be, and the pass ends there."""
    accepted, *rest = run(given)
    length = (accepted >= 0).sum(dim=1, keepdim=True)
    column = torch.arange(accepted.shape[1])
    return [torch.where((column == length - 1) & (length > 1), -1, accepted), *rest]


def accepts_one_too_many(unit: Unit, given: dict[str, Tensor], run: Any) -> list[Tensor]:
    """Behind the corrected token one more: the draft that stood there, where there was one."""
    accepted, *rest = run(given)
    drafts = given["tokens"].view(accepted.shape).roll(-1, 1)
    length = (accepted >= 0).sum(dim=1, keepdim=True)
    column = torch.arange(accepted.shape[1])
    return [torch.where((column == length) & (length <= given["num_draft_tokens"][:, None]), drafts, accepted), *rest]


def accepts_padding(unit: Unit, given: dict[str, Tensor], run: Any) -> list[Tensor]:
    """Takes no notice of how many drafts there are."""
    counts = given["num_draft_tokens"]
    rows = given["tokens"].numel() // counts.numel()
    return list(run({**given, "num_draft_tokens": torch.full_like(counts, rows - 1)}))


def commits_the_draft(unit: Unit, given: dict[str, Tensor], run: Any) -> list[Tensor]:
    """In place of the target's corrected token the draft that it rejected."""
    accepted, *rest = run(given)
    drafts = given["tokens"].view(accepted.shape).roll(-1, 1)
    length = (accepted >= 0).sum(dim=1, keepdim=True)
    column = torch.arange(accepted.shape[1])
    rejected = (column == length - 1) & (length - 1 < given["num_draft_tokens"][:, None])
    return [torch.where(rejected, drafts, accepted), *rest]


def wrong_next_token(unit: Unit, given: dict[str, Tensor], run: Any) -> list[Tensor]:
    """The token next to the right one, in every row or after every prompt."""
    tokens, *rest = run(given)
    return [torch.where(tokens >= 0, (tokens + 1) % 64, tokens), *rest]


def next_token_of_the_last_row(unit: Unit, given: dict[str, Tensor], run: Any) -> list[Tensor]:
    """A prefill head that reads the bucket's last row, which is padding behind a shorter prompt."""
    return list(run({**given, "last_index": torch.full_like(given["last_index"], len(given["hidden"]) - 1)}))


# KV


def forgets_row(row: int, request: int | None = None, pools: Sequence[str] = POOLS) -> Change:
    """Row `row` of each request, or of one, is not written."""

    def change(unit: Unit, given: dict[str, Tensor], run: Any) -> list[Tensor]:
        slots = given["slot_mapping"].view(given["block_table"].shape[0], -1)
        mine = slots[:, row] if request is None else slots[request : request + 1, row]
        return _without(given, run, mine.long(), pools)

    return change


def keeps_what_is_there(unit: Unit, given: dict[str, Tensor], run: Any) -> list[Tensor]:
    """Writes into fresh slots alone: where a rejected draft left its row, that row stays."""
    slots = given["slot_mapping"].long()
    rows = given["key_pool"].flatten(0, 1)[slots].flatten(1)
    fresh = (rows == 1).all(dim=1) | (rows == 0).all(dim=1)
    return _without(given, run, slots[~fresh])


def forgets_all(unit: Unit, given: dict[str, Tensor], run: Any) -> list[Tensor]:
    """No row is written."""
    return _without(given, run, given["slot_mapping"].long())


def writes_into_another_block(unit: Unit, given: dict[str, Tensor], run: Any) -> list[Tensor]:
    """The last row of each request, which is rejected more often than not, lands in the next request's block too."""
    outputs = list(run(given))
    table = given["block_table"]
    slots = given["slot_mapping"].view(table.shape[0], -1).long()
    for name in POOLS:
        block_size, pool = given[name].shape[1], given[name].flatten(0, 1)
        for request in range(table.shape[0]):
            neighbour = int(table[(request + 1) % table.shape[0], 0])
            pool[neighbour * block_size] = pool[slots[request, -1]]
    return outputs


def writes_in_another_order(unit: Unit, given: dict[str, Tensor], run: Any) -> list[Tensor]:
    """Each row in the slot of the one before it."""
    return list(run({**given, "slot_mapping": given["slot_mapping"].roll(1, 0)}))


def _without(given: dict[str, Tensor], run: Any, slots: Tensor, pools: Sequence[str] = POOLS) -> list[Tensor]:
    """Run, and put back what stood in `slots`."""
    before = {name: given[name].clone() for name in pools}
    outputs = list(run(given))
    for name in pools:
        given[name].flatten(0, 1)[slots] = before[name].flatten(0, 1)[slots]
    return outputs


# Positions


def one_position_on(unit: Unit, given: dict[str, Tensor], run: Any) -> list[Tensor]:
    """Every row thinks that it stands one position further."""
    return list(run({**given, "positions": given["positions"] + 1}))


def one_position_back(unit: Unit, given: dict[str, Tensor], run: Any) -> list[Tensor]:
    return list(run({**given, "positions": (given["positions"] - 1).clamp(min=0)}))


def sees_one_entry_more(unit: Unit, given: dict[str, Tensor], run: Any) -> list[Tensor]:
    """A mask that is off by one: the entry behind each row counts too. A layer's angles are an input of their own."""
    return list(run({**given, "positions": given["positions"] + 1}))


# Features


def features_of_another_row(unit: Unit, given: dict[str, Tensor], run: Any) -> list[Tensor]:
    tokens, features, *rest = run(given)
    return [tokens, features.roll(1, 0), *rest]


def reads_features_of_another_row(unit: Unit, given: dict[str, Tensor], run: Any) -> list[Tensor]:
    """A draft that is not."""
    return list(run({**given, "features": given["features"].roll(1, 0)}))


# Bits


def last_bit(where: Callable[[Tensor, dict[str, Tensor]], Tensor]) -> Change:
    """One last bit off in the first channel of the rows that `where` picks: (zeros [R, Q], inputs) -> [R, Q]."""
    return _other_bits(where, lambda values: torch.nextafter(values, torch.tensor(float("inf"))))


def next_number(where: Callable[[Tensor, dict[str, Tensor]], Tensor]) -> Change:
    """The same by one, the least that keeps sums of whole numbers exact, so that nothing else differs."""
    return _other_bits(where, lambda values: values + 1)


def _other_bits(where: Callable[[Tensor, dict[str, Tensor]], Tensor], off: Callable[[Tensor], Tensor]) -> Change:
    def change(unit: Unit, given: dict[str, Tensor], run: Any) -> list[Tensor]:
        hidden, *rest = run(given)
        requests = given["block_table"].shape[0]
        picked = where(torch.zeros(requests, len(hidden) // requests), given).flatten().bool()
        hidden = hidden.clone()
        hidden[picked, 0] = off(hidden[picked, 0])
        return [hidden, *rest]

    return change


def in_row(row: int) -> Callable[[Tensor, dict[str, Tensor]], Tensor]:
    def where(zeros: Tensor, given: dict[str, Tensor]) -> Tensor:
        zeros[:, row : row + 1] = 1
        return zeros

    return where


def in_request(request: int) -> Callable[[Tensor, dict[str, Tensor]], Tensor]:
    def where(zeros: Tensor, given: dict[str, Tensor]) -> Tensor:
        zeros[request : request + 1] = 1
        return zeros

    return where


def at_width(columns: int) -> Callable[[Tensor, dict[str, Tensor]], Tensor]:
    """Everywhere, where the block table has so many columns."""
    return lambda zeros, given: zeros + (given["block_table"].shape[1] == columns)


def of_rows(rows: int) -> Callable[[Tensor, dict[str, Tensor]], Tensor]:
    """Everywhere in passes of so many rows for each request."""
    return lambda zeros, given: zeros + (zeros.shape[1] == rows)


def of_requests(requests: int) -> Callable[[Tensor, dict[str, Tensor]], Tensor]:
    """Everywhere in passes of so many requests."""
    return lambda zeros, given: zeros + (zeros.shape[0] == requests)


def in_row_behind(row: int, position: int) -> Callable[[Tensor, dict[str, Tensor]], Tensor]:
    """In one row, where it stands behind some position: a kernel that splits long contexts by rows."""

    def where(zeros: Tensor, given: dict[str, Tensor]) -> Tensor:
        deep = given["positions"].view(zeros.shape) > position
        zeros[:, row : row + 1] = 1
        return zeros * deep

    return where


def last_bit_of_logits(row: int) -> Change:
    """A head whose logits have another last bit in one row of each request."""

    def change(unit: Unit, given: dict[str, Tensor], run: Any) -> list[Tensor]:
        accepted, features, logits = run(given)
        logits = logits.clone()
        rows = logits.view(accepted.shape[0], -1, logits.shape[1])[:, row : row + 1]
        rows.copy_(torch.nextafter(rows, torch.tensor(float("inf"))))
        return [accepted, features, logits]

    return change


# Draws


def asks(**values: float) -> Change:
    """What is asked is not looked at: the same for all."""

    def change(unit: Unit, given: dict[str, Tensor], run: Any) -> list[Tensor]:
        changed = {name: torch.full_like(given[name], value) for name, value in values.items() if name in given}
        return list(run({**given, **changed}))

    return change


def asks_of_another_request(*names: str) -> Change:
    """Each request gets what its neighbour asked for."""

    def change(unit: Unit, given: dict[str, Tensor], run: Any) -> list[Tensor]:
        return list(run({**given, **{name: given[name].roll(1, 0) for name in names if name in given}}))

    return change


def draws_in_steps(unit: Unit, given: dict[str, Tensor], run: Any) -> list[Tensor]:
    """Uniforms of another row."""
    return list(run({**given, "uniforms": given["uniforms"].roll(1, 0)}))
