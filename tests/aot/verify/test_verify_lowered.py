"""The checks of lowered bundles fail on graphs that are wrong in the way they look for, whoever lowered them.

No lowering here: graphs are wrong in eager PyTorch, behind the simulator's interface. `tests/aot/backends/neuron` runs
the same checks on what was lowered.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from aot.build.verify_lowered import judged, judged_lockstep
from aot.verify.lockstep import Lockstep
from aot.verify.lowered import Reference, checked
from runtime.backends import Backend
from runtime.bundle.errors import Eagle3Error
from runtime.fused import draft_proposer
from runtime.judge import Known
from runtime.request import Request
from runtime.sampling.params import GREEDY, SamplingParams
from runtime.scripted import PatternProposer
from tests.aot.verify import doctors
from tests.aot.verify.doctors import Change, doctor
from tests.aot.verify.host_sim import HostPool, HostSim
from tests.runtime.loop.rig import Rig, Shape, make_rig, prompt_of

SHAPE = Shape(layers=3, num_seqs=(4,), context_tokens=(64,))
FUSED = replace(SHAPE, draft_fused=True)
SAMPLED = replace(SHAPE, sampled=True)
LONG = replace(SHAPE, dtype="bfloat16", max_model_len=1024, context_tokens=(1024,), max_num_seqs=2, num_seqs=(2,))
SHAPES = {"plain": SHAPE, "fused": FUSED, "sampled": SAMPLED, "long": LONG}
HEAD, LAYER, VERIFY = "target_verify_head", "target_layer", "target_layer.r4x4"


def reduced(rig: Rig, backend: Backend) -> None:
    """Whole graphs beside eager PyTorch, as a build checks them with few layers."""
    reference = Reference.make(rig.geometry, rig.backend._weights)
    sim = HostSim(reference, backend)
    judged(checked(list(sim.units), reference, sim.as_sim(), sim.units, "few layers"), rig.shape.dtype)


def lockstep(rig: Rig, backend: Backend) -> None:
    """Every pass of the loop beside eager PyTorch and float32, as a build checks a bundle's own weights."""
    watcher = Lockstep.make(rig.geometry, rig.backend._weights, 1)
    engine = replace(rig, backend=backend).engine(draft_proposer)  # type: ignore[arg-type]
    pools = {name: HostPool(pool) for name, pool in engine.graphs.pools.items()}
    engine.graphs.wrap(lambda graph: watcher.watch(graph, pools))
    drawing = SamplingParams(temperature=1.0, seed=0) if rig.shape.sampled else GREEDY
    asked = (GREEDY, drawing)
    requests = [Request(str(i), prompt_of(20, i), 12, True, asked[i]) for i in range(2)]
    known = {o.request_id: Known(o.prompt_token_ids + o.token_ids) for o in engine.generate(requests)}
    patterns = dict.fromkeys(known, (3, 2, 1, 0))
    engine.beside(PatternProposer(known, patterns, 64, 3)).generate(requests)
    judged_lockstep(watcher)


TABLE: dict[str, tuple[str, Change, str]] = {
    "never accepts": (HEAD, doctors.never_accepts, "plain"),
    "never accepts, drawing": (HEAD, doctors.never_accepts, "sampled"),
    "accepts one too few": (HEAD, doctors.accepts_one_too_few, "plain"),
    "accepts one too many": (HEAD, doctors.accepts_one_too_many, "plain"),
    "commits the draft": (HEAD, doctors.commits_the_draft, "plain"),
    "commits the draft, drawing": (HEAD, doctors.commits_the_draft, "sampled"),
    "wrong next token": ("target_prefill_head", doctors.wrong_next_token, "plain"),
    "wrong next token, drawing": ("target_prefill_head", doctors.wrong_next_token, "sampled"),
    "next token of a padding row": ("target_prefill_head", doctors.next_token_of_the_last_row, "plain"),
    "a stale row": (VERIFY, doctors.forgets_row(1), "plain"),
    "a stale bonus row": (VERIFY, doctors.forgets_row(3), "plain"),
    "a request's stale row": (VERIFY, doctors.forgets_row(2, 1), "plain"),
    "a row in another block": (VERIFY, doctors.writes_into_another_block, "plain"),
    "the draft writes nothing": ("draft_initial", doctors.forgets_all, "plain"),
    "the recurrent draft writes nothing": ("draft_recurrent", doctors.forgets_all, "plain"),
    "the fused draft writes nothing": ("draft_fused.r", doctors.forgets_all, "fused"),
    "one position on": ("target_embed", doctors.one_position_on, "plain"),
    "a mask of one entry more": (LAYER, doctors.sees_one_entry_more, "plain"),
    "the draft one position on": ("draft_initial", doctors.one_position_on, "plain"),
    "the recurrent draft one position on": ("draft_recurrent", doctors.one_position_on, "plain"),
    "the fused draft one position on": ("draft_fused.r", doctors.one_position_on, "fused"),
    "features of another row": (HEAD, doctors.features_of_another_row, "plain"),
    "one stale row among many": ("target_layer.r2x4", doctors.forgets_row(2, 1), "long"),
    "one row of many in another block": ("target_layer.r2x4", doctors.writes_into_another_block, "long"),
}
# What the loop's two requests need not ask for
SAMPLING: dict[str, tuple[str, Change, str]] = {
    "no top_p": ("target_", doctors.asks(top_p=1.0), "sampled"),
    "no top_k": ("target_", doctors.asks(top_k=0), "sampled"),
    "no min_p": ("target_", doctors.asks(min_p=0.0), "sampled"),
    "always greedy": ("target_", doctors.asks(temperature=0.0), "sampled"),
    "another's temperature": (HEAD, doctors.asks_of_another_request("temperature"), "sampled"),
}


@pytest.mark.parametrize("name", TABLE | SAMPLING)
def test_p1_a_wrong_whole_graph_is_seen(name: str) -> None:
    kind, change, shape = (TABLE | SAMPLING)[name]
    rig = make_rig(SHAPES[shape])
    with pytest.raises(Eagle3Error) as caught:
        reduced(rig, doctor(kind, change)(rig.backend))
    assert caught.value.exit_code == 6


@pytest.mark.parametrize("name", TABLE)
def test_p1_a_wrong_pass_of_the_loop_is_seen(name: str) -> None:
    kind, change, shape = TABLE[name]
    rig = make_rig(SHAPES[shape])
    with pytest.raises(Eagle3Error) as caught:
        lockstep(rig, doctor(kind, change)(rig.backend))
    assert caught.value.exit_code == 6


@pytest.mark.parametrize("shape", SHAPES)
def test_p1_right_whole_graphs_and_passes_are_right(shape: str) -> None:
    rig = make_rig(SHAPES[shape])
    reduced(rig, rig.backend)
    lockstep(rig, rig.backend)
