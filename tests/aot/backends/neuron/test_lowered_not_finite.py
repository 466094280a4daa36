"""N1 on lowered graphs: the sign in `accepted`, and pools in which nobody finds another's damage."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from aot.verify.graphs import integer_inputs
from aot.verify.lowered import _on_ranks, heads_of
from runtime.backends.device import to_host
from runtime.bundle.signs import NOT_FINITE
from tests.aot.backends.neuron.lowered import OnSimulator
from tests.aot.ranked import odd_rig
from tests.runtime.loop.poison import BAD, damaged
from tests.runtime.loop.rig import Shape, make_rig

pytestmark = pytest.mark.neuron


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("ranks", [1, 2])
def test_n1_a_verify_pass_gives_the_sign_and_leaves_values_that_weigh_nothing(
    ranks: int, sampled: bool, tmp_path: Path
) -> None:
    """Two passes over the same pools, the second without the damaged token and with blocks that the first wrote."""
    small = Shape(num_seqs=(4,), context_tokens=(64,), layers=3, sampled=sampled)
    sound = odd_rig(greedy_only=True, sampled=sampled) if ranks > 1 else make_rig(small)
    rig = damaged(sound, "model.embed_tokens.weight", (BAD, 3))
    name = next(graph.name for graph in rig.table.graphs if graph.name.startswith("target_verify.r4"))
    on_sim = OnSimulator(rig, tmp_path, [name], ranks)
    graph, unit, reference = on_sim.reference.graphs[name], on_sim.units[name], on_sim.reference
    rows_each = graph.rows // 4
    values: dict[str, Tensor] = integer_inputs(graph, reference.manifest, torch.Generator().manual_seed(1))
    values["tokens"] = torch.where(values["tokens"] == BAD, BAD + 1, values["tokens"])
    pools = reference.eager.pools(reference.manifest.kv_cache, reference.sizes.num_blocks)
    used = [spec.name for spec in unit.inputs if spec.name.startswith("kv.")]
    ours = {pool: _on_ranks(on_sim.sim, unit, pool, pools[pool]) for pool in used}
    theirs = {pool: pools[pool].clone() for pool in used}
    for turn in range(2):
        tokens = values["tokens"].clone()
        if not turn:
            tokens[rows_each] = BAD
            tokens[2 * rows_each + 1] = BAD
        given = {**values, "tokens": tokens}
        _, _, want = reference.run(graph, {**given, **theirs})
        got = on_sim.sim.open(unit, "")([{**given, **ours}[spec.name] for spec in unit.inputs])
        accepted = to_host(got[0])
        assert torch.equal(accepted, want[0])
        signs = (accepted == NOT_FINITE).any(dim=1).tolist()
        assert signs[1] == (not turn)
        assert not signs[0]
        assert not signs[3]
        for pool in used:
            for made, part in zip(ours[pool].parts(), heads_of(theirs[pool], ranks), strict=True):
                assert torch.equal(made[1:].isfinite(), part[1:].isfinite())
                assert pool.endswith(".k") or made.isfinite().all()
