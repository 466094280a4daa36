"""N2: what fails in one request's own handling ends that request alone; a pass that fails ends the step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from runtime.engine import Engine
from runtime.fused import draft_proposer
from runtime.graph import LoadedGraph
from runtime.proposer import NoProposer
from runtime.request import Request, RequestOutput
from runtime.sampling.params import SamplingParams
from tests.runtime.loop.invariants import Stepper
from tests.runtime.loop.rig import Rig, Shape, make_rig, prompt_of

SHAPE = Shape(seed=25)
REQUESTS = [Request(str(i), prompt_of(5 + 3 * i, i), max_tokens=9) for i in range(3)]


class Breaking:
    """Stop strings whose text cannot be made from some token on."""

    def __init__(self, after: int) -> None:
        self.left = after

    def push(self, ids: Sequence[int]) -> tuple[str, str | None]:
        self.left -= len(ids)
        if self.left < 0:
            raise UnicodeError("no text of this")
        return "", None


def check(rig: Rig, outputs: list[RequestOutput], failing: str, tokens: int) -> None:
    """The others have the text of plain decoding, the failing one its beginning."""
    for request, output in zip(REQUESTS, outputs, strict=True):
        whole = rig.plain(request.prompt_token_ids, 9)
        if request.request_id == failing:
            assert (list(output.token_ids), output.finish_reason) == (whole[:tokens], "error")
            assert output.error is not None
            assert output.error.code == "defect"
        else:
            assert (list(output.token_ids), output.finish_reason, output.error) == (whole, "length", None)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("proposer", [draft_proposer, lambda graphs: NoProposer()], ids=["draft", "plain"])
@pytest.mark.parametrize("after", [0, 1, 4])
def test_n2_stop_strings_that_cannot_be_looked_for(after: int, proposer: Any, fused: bool) -> None:
    rig = make_rig(replace(SHAPE, draft_fused=fused))
    graphs = rig.graphs()
    watched = Engine(
        graphs,
        proposer(graphs),
        watches=lambda request: Breaking(after if request.request_id == "1" else 1000),
    )
    asked = [replace(request, sampling=SamplingParams(temperature=0, stop=("x",))) for request in REQUESTS]
    for request in asked:
        watched.add_request(request)
    Stepper(watched)
    stepper = Stepper(watched)
    while watched.has_unfinished():
        stepper.step()
    outputs = {output.request_id: output for output in watched.take_finished()}
    check(rig, [outputs[request.request_id] for request in asked], "1", after + 1)
    assert watched.blocks.num_free == watched.blocks.num_blocks - 1


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("at", [0, 2])
def test_n2_a_sampler_that_fails_for_one_request(at: int, fused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Log probabilities are part of choosing: here they cannot be told from the third token on."""
    from runtime.sampling import sampler

    rig = make_rig(replace(SHAPE, greedy_only=False, draft_fused=fused))
    told = sampler.token_logprobs
    calls: list[int] = []

    def broken(row: Any, token: int, count: int) -> Any:
        if count == 1:
            calls.append(token)
            if len(calls) > at:
                raise ZeroDivisionError("a defect of log probabilities")
        return told(row, token, count)

    monkeypatch.setattr(sampler, "token_logprobs", broken)
    counts = {"0": 2, "1": 1, "2": 3}
    asked = [
        replace(request, sampling=SamplingParams(temperature=0, logprobs=counts[request.request_id]))
        for request in REQUESTS
    ]
    outputs = rig.engine(NoProposer()).generate(asked)
    check(rig, outputs, "1", at)
    assert [len(output.logprobs) for output in outputs] == [9, at, 9]


class Changed:
    """A graph whose tokens are changed for the second request of a pass."""

    def __init__(self, graph: LoadedGraph, row: list[int]) -> None:
        self._graph, self._row = graph, row

    def __getattr__(self, name: str) -> object:
        return getattr(self._graph, name)

    def __call__(self, inputs: Mapping[str, Tensor]) -> list[Tensor]:
        accepted, *others = self._graph(inputs)
        if self._graph.spec.kind == "target_verify" and len(accepted) > 1:
            accepted[1] = torch.tensor(self._row, dtype=torch.int32)
        return [accepted, *others]


@pytest.mark.parametrize("row", [[-1, -1, -1, -1], [64, -1, -1, -1], [2**30, 1, 1, 1], [-7, -1, -1, -1]], ids=str)
@pytest.mark.parametrize("draft", [False, True])
def test_n2_a_row_of_a_pass_that_is_no_answer(row: list[int], draft: bool) -> None:
    """None where one is due, or ids outside of the vocabulary, which would index a table in everybody's next pass."""
    rig = make_rig(SHAPE)
    engine = rig.engine(draft_proposer if draft else NoProposer())
    engine.graphs.wrap(lambda graph: cast(LoadedGraph, Changed(graph, row)))
    for request in REQUESTS:
        engine.add_request(request)
    outputs: dict[str, RequestOutput] = {}
    while engine.has_unfinished():
        engine.step()
        outputs |= {output.request_id: output for output in engine.take_finished()}
        if len(outputs) == 1:
            # The next in the row group is another request
            engine.graphs.wrap(lambda graph: getattr(graph, "_graph", graph))
    failed = [output for output in outputs.values() if output.finish_reason == "error"]
    assert len(failed) == 1
    check(rig, [outputs[request.request_id] for request in REQUESTS], failed[0].request_id, len(failed[0].token_ids))
    assert failed[0].error is not None
    assert "vocabulary" in failed[0].error.sentence() or "token" in failed[0].error.sentence()


def test_n2_a_pass_that_fails_is_everybody_s() -> None:
    class Leaking:
        def __init__(self, graph: LoadedGraph) -> None:
            self.spec, self.runs, self.seconds = graph.spec, 0, 0.0

        def __call__(self, inputs: Mapping[str, Tensor]) -> list[Tensor]:
            raise RuntimeError("the pool has sprung a leak")

    engine = make_rig(SHAPE).engine()
    engine.graphs.wrap(lambda graph: cast(LoadedGraph, Leaking(graph)))
    with pytest.raises(RuntimeError, match="leak"):
        engine.generate(REQUESTS)
