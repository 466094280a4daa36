"""N2: what fails in one request's own handling ends that request alone; a pass that fails ends the step."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
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
from runtime.sampling import sampler
from runtime.sampling.counts import TokenCounts
from runtime.sampling.params import SamplingParams
from runtime.sampling.processors import RowProcessors
from runtime.schedule import KSchedule
from tests.runtime.loop.invariants import Stepper
from tests.runtime.loop.rig import K, Rig, Shape, make_rig, oracle, prompt_of

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
    stepper = Stepper(watched)
    while watched.has_unfinished():
        stepper.step()
    outputs = {output.request_id: output for output in watched.take_finished()}
    check(rig, [outputs[request.request_id] for request in asked], "1", after + 1)
    assert watched.blocks.num_free == watched.blocks.num_blocks - 1


class Ways:
    """Engines that make the same tokens in different ways, of requests whose texts are known."""

    def __init__(self, texts: Mapping[str, Sequence[int]]) -> None:
        self._texts = texts

    def plain(self) -> Engine:
        return self._engine(NoProposer())

    def right_drafts(self) -> Engine:
        return self._engine(oracle(self._texts, (K,)))

    def some_right_drafts(self) -> Engine:
        return self._engine(oracle(self._texts, (2, 0, K, 1)))

    def standard_rejection(self) -> Engine:
        return self._engine(oracle(self._texts, (K,)), rejection="standard")

    def schedule(self) -> Engine:
        return self._engine(oracle(self._texts, (K,)), schedule=KSchedule.of([[1, 1, 3], [2, 2, 1], [3, 4, 2]]))

    def replay(self) -> Engine:
        return self._engine(oracle(self._texts, (0, K, K)))

    def draft(self) -> Engine:
        return self._engine(draft_proposer)

    def fused_draft(self) -> Engine:
        return self._engine(draft_proposer, fused=True)

    def _engine(self, proposer: Any, *, fused: bool = False, **options: Any) -> Engine:
        graphs = make_rig(replace(SHAPE, greedy_only=False, draft_fused=fused)).graphs()
        return Engine(graphs, proposer(graphs) if callable(proposer) else proposer, **options)


WAYS = [name for name in vars(Ways) if not name.startswith("_")]


def fails_from(call: int, function: Any, of: Callable[..., bool] = lambda *_: True) -> Any:
    """`function`, which raises from its `call`th call on, of those that `of` counts."""
    calls = itertools.count()

    def failing(*arguments: Any) -> Any:
        if of(*arguments) and next(calls) >= call:
            raise ZeroDivisionError("a defect")
        return function(*arguments)

    return failing


def break_sampler(patch: pytest.MonkeyPatch, what: str, at: int, text: Sequence[int]) -> None:
    """The choice of the token `at` fails, of request 1 alone: no other has processors, or one log probability."""
    if what == "logprobs":
        failing = fails_from(at, sampler.token_logprobs, lambda row, token, count: count == 1)
        patch.setattr(sampler, "token_logprobs", failing)
    elif what == "processors":
        patch.setattr(RowProcessors, "apply", fails_from(at, RowProcessors.apply))
    else:
        # Its history is taken draft by draft within a pass, and without drafts at the beginning of the next
        failing = fails_from(0, TokenCounts.add, lambda counts, token: token == text[at - 1])
        patch.setattr(TokenCounts, "add", failing)


def preempted(engine: Engine, requests: Sequence[Request]) -> list[RequestOutput]:
    """Run `requests`, of which request 1 loses its blocks once it has two tokens."""
    for request in requests:
        engine.add_request(request)
    while engine.has_unfinished():
        engine.step()
        for sequence in list(engine.running):
            if (
                sequence.request.request_id == "1"
                and len(sequence.output_token_ids) == 2
                and not engine.num_preemptions
            ):
                engine.scheduler._preempt(sequence)
    return sorted(engine.take_finished(), key=lambda output: output.request_id)


@pytest.mark.parametrize("temperature", [0.0, 1.0], ids=["greedy", "random"])
@pytest.mark.parametrize(
    ("what", "at"), [("logprobs", 0), ("logprobs", 3), ("logprobs", 4), ("processors", 3), ("history", 3)]
)
@pytest.mark.parametrize("way", WAYS)
def test_n2_a_sampler_that_fails_for_one_request(
    way: str, what: str, at: int, temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps the tokens before the failure, with their log probabilities, however they were made."""
    if temperature and way == "standard_rejection":
        pytest.skip("its random text is another one with drafts")
    plain = SamplingParams(temperature=temperature, seed=7, logprobs=2)
    penalised = replace(plain, logprobs=1, presence_penalty=0.5)
    asked = [replace(one, sampling=penalised if one.request_id == "1" else plain) for one in REQUESTS]
    whole = Ways({}).plain().generate(asked)
    texts = {one.request_id: [*one.prompt_token_ids, *one.token_ids] for one in whole}
    text = whole[1].token_ids
    assert text.index(text[at - 1]) == at - 1 or not at
    engine = getattr(Ways(texts), way)()
    break_sampler(monkeypatch, what, at, text)
    outputs = preempted(engine, asked) if way == "replay" else engine.generate(asked)
    for right, output in zip(whole, outputs, strict=True):
        kept, reason = (at, "error") if output.request_id == "1" else (9, "length")
        assert (output.token_ids, output.finish_reason) == (right.token_ids[:kept], reason)
        assert output.logprobs == right.logprobs[:kept]
    assert outputs[1].error is not None
    assert outputs[1].error.code == "defect"
    assert engine.num_preemptions == (way == "replay" and at > 2)


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
