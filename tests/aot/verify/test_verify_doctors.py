"""Every check of the builder fails on a graph that is wrong in exactly the way it looks for, and passes the right one.

The table says which check must see which doctor's work (`doctors.py`). A check is what a build runs: it raises, with
exit code 6.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from aot.build.verify import check_bits, check_graphs
from aot.verify.scripted import check_scripted, patterns
from runtime.backends import Backend
from runtime.bundle.errors import Eagle3Error
from runtime.bundle.manifest import Axis
from runtime.schedule import KSchedule
from tests.aot.verify import doctors
from tests.aot.verify.doctors import Change, doctor
from tests.aot.verify.whole_numbers import WholeNumbers
from tests.runtime.loop.rig import Rig, Shape, make_rig

LAYERS = 4
SHAPE = Shape(layers=LAYERS, context_tokens=(64,))
FUSED = replace(SHAPE, draft_fused=True)
SAMPLED = replace(SHAPE, sampled=True)
FEWER = replace(SHAPE, schedule=KSchedule.of([[1, 2, 3], [3, 4, 1]]), bitwise_across=("requests", "context", "drafts"))
# The dtype that tells least apart, and a context in which what one row does is next to nothing
LONG = replace(SHAPE, dtype="bfloat16", max_model_len=2048, context_tokens=(2048,), max_num_seqs=2, num_seqs=(2,))
LONG_FUSED = replace(LONG, draft_fused=True)
SHAPES = {"plain": SHAPE, "fused": FUSED, "sampled": SAMPLED, "fewer": FEWER, "long": LONG, "long fused": LONG_FUSED}


def graphs(rig: Rig, backend: Backend, patch: pytest.MonkeyPatch) -> None:
    """Each graph against eager PyTorch."""
    check_graphs(rig.manifest, backend, rig.backend)


def scripted(rig: Rig, backend: Backend, patch: pytest.MonkeyPatch) -> None:
    """Accept and reject patterns through the loop."""
    patch.setattr("runtime.graphs.backend_for", lambda bundle, weights, device=None: backend)
    found = check_scripted(rig.bundle)
    assert found.patterns == len(patterns(rig.shape.k))
    assert 0 < found.accepted < found.drafts


Check = Callable[[Rig, Backend, pytest.MonkeyPatch], None]
HEAD, LAYER, VERIFY_LAYERS, PROMPT_LAYERS = (
    "target_verify_head",
    "target_layer",
    "target_layer.r4x4",
    "target_layer.r1x16",
)
# Unit, what is wrong with it, the shape of the toy, the checks that must see it
TABLE: dict[str, tuple[str, Change, str, tuple[Check, ...]]] = {
    "never accepts": (HEAD, doctors.never_accepts, "plain", (graphs, scripted)),
    "never accepts, drawing": (HEAD, doctors.never_accepts, "sampled", (graphs, scripted)),
    "never accepts in a batch": (f"{HEAD}.r4", doctors.never_accepts, "plain", (graphs, scripted)),
    "never accepts with fewer rows": (f"{HEAD}.r4x2", doctors.never_accepts, "fewer", (graphs, scripted)),
    "never accepts beside a fused draft": (HEAD, doctors.never_accepts, "fused", (graphs, scripted)),
    "accepts one too few": (HEAD, doctors.accepts_one_too_few, "plain", (graphs, scripted)),
    "accepts one too many": (HEAD, doctors.accepts_one_too_many, "plain", (graphs, scripted)),
    "accepts one too many, drawing": (HEAD, doctors.accepts_one_too_many, "sampled", (graphs, scripted)),
    "accepts one too many with fewer rows": (f"{HEAD}.r4x2", doctors.accepts_one_too_many, "fewer", (graphs, scripted)),
    "accepts padding": (HEAD, doctors.accepts_padding, "plain", (graphs,)),
    "commits the draft": (HEAD, doctors.commits_the_draft, "plain", (graphs, scripted)),
    "commits the draft, drawing": (HEAD, doctors.commits_the_draft, "sampled", (graphs, scripted)),
    "wrong next token of a prefill": ("target_prefill_head", doctors.wrong_next_token, "plain", (graphs,)),
    "next token of a padding row": ("target_prefill_head", doctors.next_token_of_the_last_row, "plain", (graphs,)),
    "wrong tokens of a verify pass": (HEAD, doctors.wrong_next_token, "plain", (graphs,)),
    # KV
    "row 0 is stale": (VERIFY_LAYERS, doctors.forgets_row(0), "plain", (graphs,)),
    "row 1 is stale": (VERIFY_LAYERS, doctors.forgets_row(1), "plain", (graphs, scripted)),
    "row 2 is stale": (VERIFY_LAYERS, doctors.forgets_row(2), "plain", (graphs, scripted)),
    "the bonus row is stale": (VERIFY_LAYERS, doctors.forgets_row(3), "plain", (graphs, scripted)),
    "one request's row is stale": (VERIFY_LAYERS, doctors.forgets_row(2, 3), "plain", (graphs, scripted)),
    "a lone request's row is stale": ("target_layer.r1x4", doctors.forgets_row(3), "plain", (graphs, scripted)),
    "a shorter pass's row is stale": ("target_layer.r4x2", doctors.forgets_row(1), "fewer", (graphs, scripted)),
    "rejected rows stay": (VERIFY_LAYERS, doctors.keeps_what_is_there, "plain", (graphs, scripted)),
    "a row lands in another block": (VERIFY_LAYERS, doctors.writes_into_another_block, "plain", (graphs, scripted)),
    "a prompt's rows in another order": (PROMPT_LAYERS, doctors.writes_in_another_order, "plain", (graphs,)),
    "the draft's first pass writes nothing": ("draft_initial", doctors.forgets_all, "plain", (graphs,)),
    "the draft's recurrent pass writes nothing": ("draft_recurrent", doctors.forgets_all, "plain", (graphs,)),
    "the fused draft writes nothing": ("draft_fused.r4x4", doctors.forgets_all, "fused", (graphs,)),
    "the fused draft's prefill writes nothing": ("draft_fused_prefill", doctors.forgets_all, "fused", (graphs,)),
    # Positions
    "the target one position on": ("target_embed", doctors.one_position_on, "plain", (graphs,)),
    "a mask of one entry more": (LAYER, doctors.sees_one_entry_more, "plain", (graphs,)),
    "a mask of one entry less": (LAYER, doctors.one_position_back, "plain", (graphs,)),
    "the draft's first pass one position on": ("draft_initial", doctors.one_position_on, "plain", (graphs,)),
    "the draft's recurrent pass one position on": ("draft_recurrent", doctors.one_position_on, "plain", (graphs,)),
    "the draft's recurrent pass one position back": ("draft_recurrent", doctors.one_position_back, "plain", (graphs,)),
    "the fused draft one position on": ("draft_fused.r", doctors.one_position_on, "fused", (graphs,)),
    "the fused prefill one position on": ("draft_fused_prefill", doctors.one_position_on, "fused", (graphs,)),
    # Features
    "features of another row": (HEAD, doctors.features_of_another_row, "plain", (graphs,)),
    "features of another prompt row": ("target_prefill_head", doctors.features_of_another_row, "plain", (graphs,)),
    "a draft that reads another row's": ("draft_initial", doctors.reads_features_of_another_row, "plain", (graphs,)),
    "a fused draft that does": ("draft_fused", doctors.reads_features_of_another_row, "fused", (graphs,)),
    # Little beside much
    "one stale row among 4096": ("target_layer.r2x4", doctors.forgets_row(2, 1), "long", (graphs,)),
    "a mask of one entry more, of 2048": (LAYER, doctors.sees_one_entry_more, "long", (graphs,)),
    "a mask of one entry less, of 2048": (LAYER, doctors.one_position_back, "long", (graphs,)),
    "one row of 4096 in another block": ("target_layer.r2x4", doctors.writes_into_another_block, "long", (graphs,)),
    "a recurrent row of 4096 is missing": ("draft_recurrent", doctors.forgets_row(0, 1), "long", (graphs,)),
    "the fused draft's rows of 4096 are": ("draft_fused.r2", doctors.forgets_row(0), "long fused", (graphs,)),
    "features of another of few rows": ("target_verify_head.r2", doctors.features_of_another_row, "long", (graphs,)),
    # Draws
    "no top_p": ("target_", doctors.asks(top_p=1.0), "sampled", (graphs,)),
    "no top_p after a prompt": ("target_prefill_head", doctors.asks(top_p=1.0), "sampled", (graphs,)),
    "no top_k": ("target_", doctors.asks(top_k=0), "sampled", (graphs,)),
    "no top_k after a prompt": ("target_prefill_head", doctors.asks(top_k=0), "sampled", (graphs,)),
    "no min_p": ("target_", doctors.asks(min_p=0.0), "sampled", (graphs,)),
    "no min_p after a prompt": ("target_prefill_head", doctors.asks(min_p=0.0), "sampled", (graphs,)),
    "no temperature": ("target_", doctors.asks(temperature=1.0), "sampled", (graphs,)),
    "always greedy": ("target_", doctors.asks(temperature=0.0), "sampled", (graphs,)),
    "another's temperature": (HEAD, doctors.asks_of_another_request("temperature"), "sampled", (graphs,)),
    "another's top_p": (HEAD, doctors.asks_of_another_request("top_p"), "sampled", (graphs,)),
    "another row's uniform": (HEAD, doctors.draws_in_steps, "sampled", (graphs,)),
    "draws the token behind": (HEAD, doctors.wrong_next_token, "sampled", (graphs,)),
    "draws the token behind a prompt": ("target_prefill_head", doctors.wrong_next_token, "sampled", (graphs,)),
}


@pytest.mark.parametrize(("name", "check"), [(name, check) for name, (*_, checks) in TABLE.items() for check in checks])
def test_p1_a_wrong_graph_is_seen(name: str, check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, change, shape, _ = TABLE[name]
    rig = make_rig(SHAPES[shape])
    with pytest.raises(Eagle3Error) as caught:
        check(rig, doctor(kind, change)(start(rig, check)), monkeypatch)
    assert caught.value.exit_code == 6


@pytest.mark.parametrize("shape", [name for name in SHAPES if "long" not in name])
@pytest.mark.parametrize("check", [graphs, scripted])
def test_p1_the_right_graphs_pass(shape: str, check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = make_rig(SHAPES[shape])
    check(rig, start(rig, check), monkeypatch)


def start(rig: Rig, check: Check) -> Backend:
    """What a doctor works on: whole numbers where bits count, see there."""
    return WholeNumbers() if check is scripted else rig.backend


def test_p1_every_doctor_has_work() -> None:
    """A doctor whose unit no graph calls would be seen by nobody, for another reason."""
    for kind, _, shape, _ in TABLE.values():
        assert any(unit.name.startswith(kind) for unit in make_rig(SHAPES[shape]).manifest.units), kind


# Bits. Whole numbers keep theirs on every machine, so that the doctor's one is the only one that differs.

BITS = replace(FEWER, num_seqs=(1, 2, 4), context_tokens=(32, 64), schedule=KSchedule.of([[1, 2, 2], [3, 4, 0]]))
WIDE = replace(SHAPE, max_model_len=256, context_tokens=(64, 256), max_num_seqs=2, num_seqs=(1, 2))
EVERY: tuple[Axis, ...] = ("requests", "context", "drafts")


def bits_axes(change: Change | None, shape: Shape, kind: str = LAYER, scope: str = "") -> tuple[Axis, ...]:
    backend: Backend = WholeNumbers()
    if change is not None:
        backend = doctor(kind, change, scope)(backend)
    return check_bits(make_rig(shape).manifest, backend, lambda line: None).bitwise_across


ROWS = {
    **{f"row {row}": (doctors.last_bit(doctors.in_row(row)), BITS) for row in (1, 2, 3)},
    **{f"request {index}": (doctors.last_bit(doctors.in_request(index)), BITS) for index in (1, 2, 3)},
    "row 2 of long contexts": (doctors.last_bit(doctors.in_row_behind(2, 150)), WIDE),
}


@pytest.mark.parametrize("name", ROWS)
def test_p1_one_last_bit_of_a_row_fails_the_build(name: str) -> None:
    change, shape = ROWS[name]
    with pytest.raises(Eagle3Error, match="other bits in another row") as caught:
        bits_axes(change, shape)
    assert caught.value.exit_code == 6


def test_p1_what_the_head_alone_reads_counts() -> None:
    """The last layer's states are in no feature and no KV: only the head's choice shows them, where it is near."""
    with pytest.raises(Eagle3Error, match="other bits in another row"):
        bits_axes(doctors.last_bit(doctors.in_row(2)), BITS, scope=f"target.layers.{LAYERS - 1}")


@pytest.mark.parametrize("row", [1, 2, 3])
def test_p1_logits_count(row: int) -> None:
    logits = replace(BITS, greedy_only=False)
    assert bits_axes(None, logits) == EVERY
    with pytest.raises(Eagle3Error, match="other bits in another row"):
        bits_axes(doctors.last_bit_of_logits(row), logits, kind=HEAD)


def test_p1_the_right_bits_pass() -> None:
    assert bits_axes(None, BITS) == EVERY
    assert bits_axes(None, WIDE) == ("requests", "context")


AXES: dict[str, tuple[Change, Shape, Axis]] = {
    "a batch of one": (doctors.next_number(doctors.of_requests(1)), BITS, "requests"),
    "the wider context": (doctors.next_number(doctors.at_width(16)), BITS, "context"),
    "a width between": (doctors.next_number(doctors.at_width(48)), WIDE, "context"),
    "passes of fewer rows": (doctors.next_number(doctors.of_rows(3)), BITS, "drafts"),
    "passes of one row": (doctors.next_number(doctors.of_rows(1)), BITS, "drafts"),
}


@pytest.mark.parametrize("name", AXES)
def test_p1_other_bits_of_a_bucket_take_its_axis_away(name: str) -> None:
    """Everything is as it was along the others; the loop then keeps to one bucket of that axis."""
    change, shape, axis = AXES[name]
    assert axis in bits_axes(None, shape)
    assert axis not in bits_axes(change, shape)


def test_p1_a_row_with_other_bits_at_one_width_takes_the_width_away() -> None:
    def change(zeros: doctors.Tensor, given: dict[str, doctors.Tensor]) -> doctors.Tensor:
        return doctors.in_row(2)(zeros, given) * (given["block_table"].shape[1] == 48)

    backend = doctor(LAYER, doctors.last_bit(change))(WholeNumbers())
    manifest = make_rig(WIDE).manifest
    right = check_bits(manifest, WholeNumbers(), lambda line: None)
    found = check_bits(manifest, backend, lambda line: None)
    assert right.bitwise_across == ("requests", "context")
    assert found.bitwise_across == ("requests",)
    assert found.context_widths == (64, 128, 256)
