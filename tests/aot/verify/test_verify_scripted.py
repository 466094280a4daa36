"""The scripted check passes a right loop and names the first wrong token of a wrong one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
import torch
from torch import Tensor

from aot.verify.eager import EagerBackend
from aot.verify.scripted import check_scripted, patterns
from runtime.backends import Backend, Run
from runtime.bundle.errors import CompileError
from runtime.bundle.manifest import KVCache, Unit
from runtime.schedule import KSchedule
from tests.runtime.loop.rig import Rig, Shape, make_rig


def run_check(rig: Rig, backend: Backend, patch: pytest.MonkeyPatch) -> int:
    patch.setattr("runtime.graphs.backend_for", lambda bundle, weights, device=None: backend)
    return check_scripted(rig.bundle).patterns


class Broken:
    """Eager PyTorch with one unit replaced: `change(run, inputs)` stands for the unit called `kind`."""

    def __init__(self, eager: EagerBackend, kind: str) -> None:
        self._eager, self._kind = eager, kind

    def pools(self, cache: KVCache, num_blocks: int) -> Mapping[str, Tensor]:
        return self._eager.pools(cache, num_blocks)

    def open(self, unit: Unit, scope: str) -> Run:
        run = self._eager.open(unit, scope)
        return (lambda inputs: self.change(run, inputs)) if unit.name.startswith(self._kind) else run

    def change(self, run: Run, inputs: Sequence[Tensor]) -> list[Tensor]:
        raise NotImplementedError


class AcceptsEverything(Broken):
    """A verify head that takes the drafts' word for it."""

    def change(self, run: Run, inputs: Sequence[Tensor]) -> list[Tensor]:
        accepted, *rest = run(inputs)
        tokens = inputs[1].view(accepted.shape)
        counts = inputs[2][:, None]
        column = torch.arange(accepted.shape[1])[None, :]
        drafts = torch.cat([tokens[:, 1:], accepted[:, :1]], dim=1)
        return [torch.where(column < counts, drafts, torch.where(column == counts, accepted, -1)).int(), *rest]


class AcceptsNothing(Broken):
    """A verify head that commits the target's own token alone: slow, and right."""

    def change(self, run: Run, inputs: Sequence[Tensor]) -> list[Tensor]:
        accepted, *rest = run(inputs)
        return [torch.cat([accepted[:, :1], torch.full_like(accepted[:, 1:], -1)], dim=1), *rest]


class ForgetsAcceptedKV(Broken):
    """A layer that writes only row 0 of each request: what accepted drafts leave behind is missing."""

    def change(self, run: Run, inputs: Sequence[Tensor]) -> list[Tensor]:
        _, _, _, slots, table, *pools = inputs
        before = [pool.clone() for pool in pools]
        outputs = run(inputs)
        rows = slots.view(table.shape[0], -1)
        if rows.shape[1] == 4:
            for pool, old in zip(pools, before, strict=True):
                lost = rows[:, 1:].flatten().long()
                pool.flatten(0, 1)[lost] = old.flatten(0, 1)[lost]
        return outputs


def test_a_right_loop_passes_every_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = make_rig()
    assert run_check(rig, rig.backend, monkeypatch) == len(patterns(3)) == 17


def test_a_head_that_accepts_everything_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = make_rig()
    with pytest.raises(CompileError) as caught:
        run_check(rig, AcceptsEverything(rig.backend, "target_verify_head"), monkeypatch)
    # The very first pattern accepts no draft: its first wrong token is the second of the text
    assert caught.value.what == "Scripted drafts that accept (0,) change the text"
    assert "from token 1" in caught.value.expected
    assert caught.value.exit_code == 6


def test_kv_that_accepted_drafts_should_have_left_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing goes wrong until a draft is accepted, so only the patterns that accept one can see it."""
    rig = make_rig()
    with pytest.raises(CompileError, match=r"Scripted drafts that accept \(1,\) change the text"):
        run_check(rig, ForgetsAcceptedKV(rig.backend, "target_layer.r1x4"), monkeypatch)


def test_a_fault_of_a_batch_alone_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = make_rig()
    with pytest.raises(CompileError, match=r"Scripted drafts that accept \(1,\) change the text"):
        run_check(rig, ForgetsAcceptedKV(rig.backend, "target_layer.r4x4"), monkeypatch)


@pytest.mark.parametrize(
    "shape", [Shape(k=1), Shape(k=5), Shape(max_num_seqs=1, num_seqs=(1,))], ids=["K 1", "K 5", "one request"]
)
def test_other_shapes_pass_too(shape: Shape, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = make_rig(shape)
    assert run_check(rig, rig.backend, monkeypatch) == len(patterns(shape.k))


SCHEDULED = Shape(schedule=KSchedule.of([[1, 2, 3], [3, 4, 1]]), bitwise_across=("requests", "context", "drafts"))


def test_patterns_also_run_under_the_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    """Among four requests that end in turn there are passes of 1+1 rows and, later, of 1+3."""
    rig = make_rig(SCHEDULED)
    opened: list[str] = []

    class Noting(Broken):
        def change(self, run: Run, inputs: Sequence[Tensor]) -> list[Tensor]:
            opened.append(f"{inputs[2].numel()}x{inputs[1].numel() // inputs[2].numel()}")
            return run(inputs)

    assert run_check(rig, Noting(rig.backend, "target_verify_head"), monkeypatch) == len(patterns(3))
    assert {"1x4", "4x4", "4x2"} <= set(opened)


def test_a_fault_of_the_shorter_passes_alone_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = make_rig(SCHEDULED)
    with pytest.raises(CompileError, match="change the text"):
        run_check(rig, AcceptsEverything(rig.backend, "target_verify_head.r4x2"), monkeypatch)


def test_a_head_that_accepts_nothing_is_no_change_of_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check is about the text; what acceptance is worth, counts and benchmarks tell."""
    rig = make_rig()
    assert run_check(rig, AcceptsNothing(rig.backend, "target_verify_head"), monkeypatch) == 17


@pytest.mark.parametrize("k", range(1, 8))
def test_patterns_hold_every_count_and_both_extremes(k: int) -> None:
    found = patterns(k)
    assert {(count,) for count in range(k + 1)} <= set(found)
    assert {(0, k), (k, 0), tuple(range(k + 1))} <= set(found)
    assert len(found) == len(set(found))
    assert all(0 <= count <= k for pattern in found for count in pattern)
