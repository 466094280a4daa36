"""K by the number of requests, request by request: as written for each pass, whoever joins and leaves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runtime.request import Request
from runtime.schedule import KSchedule
from tests.runtime.loop.kv import TOLERANCE, worst_draft_row
from tests.runtime.loop.rig import K, Shape, Watch, make_rig, observe, oracle, prompt_of, text_of

WRITTEN = KSchedule.of([[1, 2, 3], [3, 4, 1], [5, 8, 0]])
SHAPE = Shape(max_num_seqs=6, num_seqs=(1, 2, 4, 6), seed=25, layers=4)


@pytest.mark.parametrize("draft", ["separate", "fused", "oracle"])
def test_each_pass_has_the_k_that_is_written_for_its_requests(draft: str) -> None:
    """N4 (vllm#26504): 1-2 requests check three drafts each, 3-4 one, 5 and more none."""
    rig = make_rig(replace(SHAPE, draft_fused=draft == "fused"))
    requests = [Request(str(i), prompt_of(5 + i, i), max_tokens=16 + 3 * i) for i in range(6)]
    texts = {request.request_id: text_of(rig, request) for request in requests}
    engine = rig.engine(oracle(texts, (1, 0, 3)) if draft == "oracle" else Watch().over(), schedule=WRITTEN)
    kinds: list[str] = []
    observe(engine, lambda spec, inputs: kinds.append(spec.kind))
    for request in requests:
        engine.add_request(request)
    used: dict[int, set[int]] = {}
    while engine.has_unfinished():
        room = {s.request.request_id: s.draft_room(K) for s in engine.running}
        kinds.clear()
        outputs = engine.step()
        if "target_verify" not in kinds:
            continue
        for output in outputs:
            # Fewer only where the request's end is near
            k = WRITTEN.k_for(len(outputs))
            assert output.num_draft_tokens == min(k, room[output.request_id])
            used.setdefault(len(outputs), set()).add(k)
    assert used == {1: {3}, 2: {3}, 3: {1}, 4: {1}, 5: {0}, 6: {0}}
    for output in engine.take_finished():
        request = requests[int(output.request_id)]
        assert list(output.token_ids) == rig.plain(request.prompt_token_ids, request.max_tokens)


@pytest.mark.parametrize("fused", [False, True], ids=["separate", "fused"])
def test_k_of_0_keeps_the_draft_s_kv_and_drafting_starts_again_right(fused: bool) -> None:
    """While two run nothing is drafted; when one ends the other's next chain is the reference's at once."""
    rig = make_rig(replace(SHAPE, draft_fused=fused))
    engine = rig.engine(schedule=KSchedule.of([[1, 1, 3], [2, 8, 0]]))
    for name, length, max_tokens in (("short", 6, 8), ("long", 9, 30)):
        engine.add_request(Request(name, prompt_of(length, length), max_tokens=max_tokens))
    together = alone = 0
    while engine.has_unfinished():
        engine.step()
        assert worst_draft_row(rig, engine) < TOLERANCE
        decoding = [s for s in engine.running if not s.prefilling]
        together += len(decoding) == 2
        for sequence in decoding:
            want = 0 if len(decoding) == 2 else min(3, sequence.draft_room(K))
            # The first one's drafts were made before the other's prompt was there; the next pass drops them
            if len(engine.running) == 1 or engine.scheduler._prefilled is False:
                assert sequence.drafts == rig.chain(sequence.token_ids, len(sequence.drafts))
            if len(engine.running) == 1:
                assert len(sequence.drafts) == want
                alone += 1
    assert together > 3
    assert alone > 3
    for output in engine.take_finished():
        assert list(output.token_ids) == rig.plain(output.prompt_token_ids, len(output.token_ids))


def test_drafts_that_a_larger_batch_has_no_room_for_are_dropped() -> None:
    """Three drafts were made for one request; when the second's prompt is there each checks one."""
    rig = make_rig(SHAPE)
    requests = [Request(str(i), prompt_of(6, i), max_tokens=20) for i in range(2)]
    texts = {request.request_id: text_of(rig, request) for request in requests}
    engine = rig.engine(oracle(texts, (3,)), schedule=KSchedule.of([[1, 1, 3], [2, 8, 1]]))
    engine.add_request(requests[0])
    engine.step()
    assert len(engine.running[0].drafts) == 3
    engine.add_request(requests[1])
    seen = []
    while engine.has_unfinished():
        seen.append([(output.num_draft_tokens, len(output.token_ids)) for output in engine.step()])
    # Alone first, for the passes take turns; then the newcomer's prompt, then both
    assert seen[:3] == [[(3, 4)], [(0, 1)], [(1, 2), (1, 2)]]
    for output in engine.take_finished():
        assert list(output.token_ids) == rig.plain(output.prompt_token_ids, 20)
