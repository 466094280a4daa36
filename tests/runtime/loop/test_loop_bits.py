"""In bfloat16 as in float32: speculation writes plain decoding's ids, whatever is accepted and whoever runs beside."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runtime.fused import draft_proposer
from runtime.request import Request, SpecDecodeStats
from tests.runtime.loop.rig import K, Shape, Watch, make_rig, prompt_of

SHAPE = Shape(seed=25, layers=4, dtype="bfloat16", max_num_seqs=8, num_seqs=(1, 8))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("pattern", [None, (0, 3, 1, 2)], ids=str)
@pytest.mark.parametrize("fused", [False, True], ids=["separate", "fused"])
def test_speculation_equals_plain_decoding_id_for_id(fused: bool, pattern: tuple[int, ...] | None, dtype: str) -> None:
    """G1 (vllm#54506), G4 (EAGLE#75): plain decoding runs the passes of 1+K rows too, one request at a time here."""
    rig = make_rig(replace(SHAPE, dtype=dtype, draft_fused=fused))
    requests = [Request(str(i), prompt_of(3 + 2 * i, i), max_tokens=20) for i in range(8)]
    plain = rig.plain_engine()
    texts = {request.request_id: list(plain.generate([request])[0].token_ids) for request in requests}
    spare = {r.request_id: [*r.prompt_token_ids, *texts[r.request_id], *[0] * K] for r in requests}
    engine = rig.engine(Watch().over(spare, pattern) if pattern else draft_proposer)
    for output in engine.generate(requests):
        assert list(output.token_ids) == texts[output.request_id]
    assert engine.totals.num_accepted_tokens > 0


def test_the_golden_acceptance_of_the_toy() -> None:
    """N5 (vllm#26191): what its draft gets accepted; another number is another draft, feature, position or mask."""
    rig = make_rig(Shape(seed=25))
    engine = rig.engine()
    engine.generate([Request(str(i), prompt_of(9, i), max_tokens=40) for i in range(4)])
    assert engine.totals == SpecDecodeStats(144, 420, 8, [4, 3, 1])
