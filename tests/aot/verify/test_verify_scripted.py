"""The scripted check passes a right loop and names the first pass of a wrong one that is not as meant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from aot.verify.scripted import check_scripted, patterns
from runtime.backends import Backend, Run
from runtime.bundle.errors import CompileError
from runtime.bundle.manifest import KVCache, Unit
from runtime.bundle.signs import NOT_FINITE, NOTHING
from runtime.judge import Judged
from runtime.request import RequestOutput
from runtime.schedule import KSchedule
from runtime.scripted import PatternProposer, run_pattern, turns
from tests.aot.verify.whole_numbers import WholeNumbers
from tests.runtime.loop.rig import Rig, Shape, make_rig

NUMBERS = WholeNumbers()


def run_check(rig: Rig, backend: Backend, patch: pytest.MonkeyPatch) -> int:
    patch.setattr("runtime.graphs.backend_for", lambda bundle, weights, device=None: backend)
    return check_scripted(rig.bundle).patterns


class Broken:
    """A backend with one unit replaced: `change(run, inputs)` stands for the unit called `kind`."""

    def __init__(self, inner: Backend, kind: str) -> None:
        self._inner, self._kind = inner, kind

    def pools(self, cache: KVCache, num_blocks: int) -> Mapping[str, Tensor]:
        return self._inner.pools(cache, num_blocks)

    def open(self, unit: Unit, scope: str) -> Run:
        run = self._inner.open(unit, scope)
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


class SeesNothingFinite(Broken):
    """A verify head that gives the sign of logits that are not finite for every row."""

    def change(self, run: Run, inputs: Sequence[Tensor]) -> list[Tensor]:
        accepted, *rest = run(inputs)
        return [
            torch.cat([torch.full_like(accepted[:, :1], NOT_FINITE), torch.full_like(accepted[:, 1:], NOTHING)], 1),
            *rest,
        ]


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
    assert run_check(rig, NUMBERS, monkeypatch) == len(patterns(3)) == 17


def test_a_head_that_accepts_everything_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = make_rig()
    with pytest.raises(CompileError) as caught:
        run_check(rig, AcceptsEverything(NUMBERS, "target_verify_head"), monkeypatch)
    # The very first pattern accepts no draft
    assert caught.value.what.startswith("Verify pass 1 of request 0 accepts another number of drafts")
    assert caught.value.expected == "0 of 3"
    assert "(0,)" in caught.value.what
    assert caught.value.exit_code == 6


def test_kv_that_accepted_drafts_should_have_left_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing goes wrong until a draft is accepted, so only the patterns that accept one can see it."""
    rig = make_rig()
    with pytest.raises(CompileError, match=r"accepted \(1,\)") as caught:
        run_check(rig, ForgetsAcceptedKV(NUMBERS, "target_layer.r1x4"), monkeypatch)
    assert "request 0" in caught.value.what


def test_a_fault_of_a_batch_alone_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = make_rig()
    with pytest.raises(CompileError, match=r"accepted \(1,\)"):
        run_check(rig, ForgetsAcceptedKV(NUMBERS, "target_layer.r4x4"), monkeypatch)


@pytest.mark.parametrize(
    "shape", [Shape(k=1), Shape(k=5), Shape(max_num_seqs=1, num_seqs=(1,))], ids=["K 1", "K 5", "one request"]
)
def test_other_shapes_pass_too(shape: Shape, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = make_rig(shape)
    assert run_check(rig, NUMBERS, monkeypatch) == len(patterns(shape.k))


@pytest.mark.parametrize("kv_blocks", [24, 30])
def test_p1_requests_that_give_their_blocks_up_are_no_fault(kv_blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool too small for the whole batch: a request that is stopped for another loses its drafts."""
    rig = make_rig(Shape(layers=4, kv_blocks=kv_blocks))
    preemptions: list[int] = []

    def noting(*arguments: Any) -> tuple[list[RequestOutput], Judged]:
        outputs, seen = run_pattern(*arguments)
        preemptions.extend(output.num_preemptions for output in outputs)
        return outputs, seen

    monkeypatch.setattr("aot.verify.scripted.run_pattern", noting)
    assert run_check(rig, NUMBERS, monkeypatch) == len(patterns(3))
    assert any(preemptions)


def test_p1_a_request_that_gave_its_blocks_up_is_still_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = make_rig(Shape(layers=4, kv_blocks=24))
    with pytest.raises(CompileError, match=r"accepted \(1,\)"):
        run_check(rig, ForgetsAcceptedKV(NUMBERS, "target_layer.r4x4"), monkeypatch)


SCHEDULED = Shape(schedule=KSchedule.of([[1, 2, 3], [3, 4, 1]]), bitwise_across=("requests", "context", "drafts"))


def test_patterns_also_run_under_the_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    """Among four requests that end in turn there are passes of 1+1 rows and, later, of 1+3."""
    rig = make_rig(SCHEDULED)
    opened: list[str] = []

    class Noting(Broken):
        def change(self, run: Run, inputs: Sequence[Tensor]) -> list[Tensor]:
            opened.append(f"{inputs[2].numel()}x{inputs[1].numel() // inputs[2].numel()}")
            return run(inputs)

    assert run_check(rig, Noting(NUMBERS, "target_verify_head"), monkeypatch) == len(patterns(3))
    assert {"1x4", "4x4", "4x2"} <= set(opened)


def test_a_fault_of_the_shorter_passes_alone_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = make_rig(SCHEDULED)
    with pytest.raises(CompileError, match="Verify pass"):
        run_check(rig, AcceptsEverything(NUMBERS, "target_verify_head.r4x2"), monkeypatch)


@pytest.mark.parametrize("fused", [False, True])
def test_p1_a_head_that_accepts_nothing_fails_though_the_text_is_right(
    fused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its text is plain decoding's: only the counts tell."""
    rig = make_rig(Shape(draft_fused=fused))
    with pytest.raises(CompileError) as caught:
        run_check(rig, AcceptsNothing(NUMBERS, "target_verify_head"), monkeypatch)
    assert caught.value.what.startswith("Verify pass 1 of request 0 accepts another number of drafts")
    assert (caught.value.expected, caught.value.found) == ("1 of 3", "0")


def test_n1_answers_that_end_with_one_error_are_not_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CompileError) as caught:
        run_check(make_rig(), SeesNothingFinite(NUMBERS, "target_verify_head"), monkeypatch)
    assert "finite" in caught.value.expected


def test_p1_a_run_without_drafts_proves_nothing_and_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PatternProposer, "_propose", lambda self, sequence, room: [])
    # Nor does anything say beforehand which passes there must be
    monkeypatch.setattr("runtime.scripted._must_be_the_turns", lambda *arguments: None)
    with pytest.raises(CompileError, match="No verify pass") as caught:
        run_check(make_rig(Shape(layers=4)), NUMBERS, monkeypatch)
    assert caught.value.exit_code == 6


@pytest.mark.parametrize("reason", ["stop", "error"])
def test_p1_a_scripted_run_that_ends_for_another_reason_fails(reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def ending(*arguments: Any) -> tuple[list[RequestOutput], Judged]:
        outputs, seen = run_pattern(*arguments)
        return [replace(output, finish_reason=reason) for output in outputs], seen

    monkeypatch.setattr("aot.verify.scripted.run_pattern", ending)
    with pytest.raises(CompileError, match="Request 0 ends") as caught:
        run_check(make_rig(Shape(layers=4)), NUMBERS, monkeypatch)
    assert (caught.value.found, "length" in caught.value.expected) == (repr(reason), True)


@pytest.mark.parametrize("layer", range(8))
def test_p1_kv_of_one_layer_that_no_token_shows_is_seen(layer: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One bit of one accepted row in one layer: no greedy token turns on it."""
    rig = make_rig()

    class OneBitOff(Broken):
        def open(self, unit: Unit, scope: str) -> Run:
            run = self._inner.open(unit, scope)
            here = unit.name.startswith("target_layer.r1x4") and scope == f"target.layers.{layer}"
            return (lambda inputs: self.change(run, inputs)) if here else run

        def change(self, run: Run, inputs: Sequence[Tensor]) -> list[Tensor]:
            outputs = run(inputs)
            row = inputs[6].flatten(0, 1)[int(inputs[3][2])]
            row[0, 0] = torch.nextafter(row[0, 0], row[0, 0] + 1)
            return outputs

    with pytest.raises(CompileError) as caught:
        run_check(rig, OneBitOff(NUMBERS, ""), monkeypatch)
    assert "leaves other KV than plain decoding (row 2, " in caught.value.what
    assert f"kv.{layer}.v" in caught.value.what


@pytest.mark.parametrize(
    "shape", [Shape(), Shape(k=5), Shape(block_size=16), Shape(block_size=32)], ids=["K 3", "K 5", "16", "32"]
)
def test_p1_patterns_put_every_row_at_the_end_of_a_block(shape: Shape, monkeypatch: pytest.MonkeyPatch) -> None:
    """Accepted rows 0 to K, as the last of a block and as the first; in fresh slots, and where rejected rows were."""
    rig = make_rig(replace(shape, layers=4))
    fresh, again = set(), set()
    last, first = set(), set()
    runs = judged(rig, monkeypatch)
    for seen in runs:
        for passes in seen.passes.values():
            written = 0
            for one in passes:
                for row in range(one.num_accepted + 1):
                    position = one.start + row
                    (again if position < written else fresh).add(row)
                    last |= {row} if (position + 1) % shape.block_size == 0 else set()
                    first |= {row} if position % shape.block_size == 0 else set()
                written = max(written, one.start + one.num_drafts + 1)
    assert last == first == fresh == set(range(shape.k + 1))
    # Row K stands where no pass before it can have written
    assert again == set(range(shape.k))


def judged(rig: Rig, patch: pytest.MonkeyPatch) -> list[Judged]:
    """What was seen of each run of a right loop's patterns."""
    runs: list[Judged] = []

    def noting(*arguments: Any) -> tuple[list[RequestOutput], Judged]:
        outputs, seen = run_pattern(*arguments)
        runs.append(seen)
        return outputs, seen

    patch.setattr("aot.verify.scripted.run_pattern", noting)
    run_check(rig, NUMBERS, patch)
    return runs


def test_p1_a_pattern_that_has_no_room_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of eight tokens: four of a prompt and four behind it, so no pass ever holds three drafts."""
    rig = make_rig(Shape(max_model_len=8, context_tokens=(8,), prefill_tokens=(8,), layers=4))
    counted = run_check(rig, NUMBERS, monkeypatch)
    assert 0 < counted < len(patterns(3))


@given(st.integers(1, 5), st.integers(1, 30), st.integers(1, 30), st.lists(st.integers(0, 5), min_size=1, max_size=4))
def test_p1_turns_commit_every_token_once(k: int, prompt: int, new: int, pattern: list[int]) -> None:
    limit = prompt + new
    found = turns(prompt + 1, limit, limit, pattern, k)
    assert sum(accepted + 1 for _, accepted in found) == new - 1
    assert all(accepted <= drafts <= k for drafts, accepted in found)


@pytest.mark.parametrize("k", range(1, 8))
def test_patterns_hold_every_count_and_both_extremes(k: int) -> None:
    found = patterns(k)
    assert {(count,) for count in range(k + 1)} <= set(found)
    assert {(0, k), (k, 0), tuple(range(k + 1))} <= set(found)
    assert len(found) == len(set(found))
    assert all(0 <= count <= k for pattern in found for count in pattern)
