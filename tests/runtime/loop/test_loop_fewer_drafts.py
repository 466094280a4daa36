"""Fewer drafts a step than the bundle was built for: the same text, shorter chains, passes of 1+K rows as ever."""

from __future__ import annotations

import pytest

from runtime.bundle.errors import UsageError
from runtime.engine import Engine
from runtime.proposer import EagleProposer
from runtime.request import Request, StepOutput
from tests.runtime.loop.rig import K, Shape, make_rig, observe, oracle, prompt_of, text_of


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_text_is_plain_decodings_and_the_chains_are_the_references(k: int) -> None:
    rig = make_rig()
    asked: list[tuple[tuple[int, ...], list[int]]] = []
    engine = rig.engine(lambda graphs: EagleProposer(graphs, k))
    request = Request("a", prompt_of(7), max_tokens=20)
    engine.add_request(request)
    while engine.has_unfinished():
        engine.step()
        asked += [(tuple(sequence.token_ids), list(sequence.drafts)) for sequence in engine.running]
    (output,) = engine.take_finished()
    assert list(output.token_ids) == rig.plain(request.prompt_token_ids, 20)
    assert max(len(drafts) for _, drafts in asked) == k
    for committed, drafts in asked:
        assert drafts == rig.chain(committed, len(drafts))


def test_passes_keep_their_rows() -> None:
    rig = make_rig()
    rows: dict[str, set[int]] = {}
    engine = rig.engine(lambda graphs: EagleProposer(graphs, 1))
    observe(engine, lambda spec, inputs: rows.setdefault(spec.kind, set()).add(inputs["tokens"].shape[0]))
    engine.generate([Request("a", prompt_of(7), max_tokens=12)])
    assert rows["target_verify"] == rows["draft_initial"] == {1 + K}
    assert "draft_recurrent" not in rows


def test_several_requests_with_fewer_drafts() -> None:
    rig = make_rig(Shape(seed=25))
    requests = [Request(str(number), prompt_of(5 + number, number), max_tokens=20) for number in range(3)]
    outputs = rig.generate(*requests, proposer=lambda graphs: EagleProposer(graphs, 2))
    for request, output in zip(requests, outputs, strict=True):
        assert list(output.token_ids) == rig.plain(request.prompt_token_ids, 20)
        assert len(output.spec_decode.num_accepted_tokens_per_pos) == 2


def test_loading_opens_the_recurrent_graphs_only_for_more_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = make_rig()
    monkeypatch.setattr("runtime.graphs.backend_for", lambda bundle, weights, device=None: rig.backend)
    opened = {k: {kind for kind, *_ in Engine.load(rig.bundle, num_speculative_tokens=k).graphs.loaded} for k in (1, 2)}
    assert opened[2] - opened[1] == {"draft_recurrent"}


@pytest.mark.parametrize("k", [0, -1, K + 1])
def test_more_than_the_bundles_or_none_is_refused(k: int) -> None:
    with pytest.raises(UsageError, match=f"expected 1 to {K} .*, found {k}") as caught:
        Engine.load(make_rig().bundle, num_speculative_tokens=k)
    assert "rebuild the bundle with a larger num_speculative_tokens" in caught.value.repair


def test_a_step_tells_the_drafts_it_checked_and_accepted() -> None:
    """Prefill checks none; then 3, 0 and 2 of three are accepted, and the last step has no draft."""
    rig = make_rig()
    request = Request("a", prompt_of(7), max_tokens=10)
    text = text_of(rig, request)
    engine = rig.engine(oracle({"a": text}, (3, 0, 2)))
    engine.add_request(request)
    steps: list[StepOutput] = []
    while engine.has_unfinished():
        steps += engine.step()
    assert [(step.num_draft_tokens, step.num_accepted) for step in steps] == [(0, 0), (3, 3), (3, 0), (3, 2), (0, 0)]
    assert [len(step.token_ids) for step in steps] == [1, 4, 1, 3, 1]
