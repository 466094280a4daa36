"""A draft in one graph: the text of plain decoding and the drafts of the separate passes, with one read a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from torch import Tensor

from runtime.bundle.manifest import Graph
from runtime.engine import Engine
from runtime.fused import FusedProposer
from runtime.graph import LoadedGraph
from runtime.request import Request, RequestOutput
from tests.runtime.loop.rig import K, Rig, Shape, Watch, make_rig, observe, prompt_of, text_of, with_eos

# On this seed the target agrees with some of the draft's own proposals
FUSED = Shape(draft_fused=True, seed=25)
Proposed = set[tuple[str, tuple[int, ...], tuple[int, ...]]]


def run(rig: Rig, requests: list[Request], pattern: tuple[int, ...] | None) -> tuple[list[RequestOutput], Proposed]:
    """The outputs, and each proposal as (request, committed tokens, drafts)."""
    texts = {request.request_id: text_of(rig, request) for request in requests}
    watch = Watch()
    outputs = rig.generate(*requests, proposer=watch.over(texts if pattern else None, pattern or (K,)))
    return outputs, {(name, committed, tuple(drafts)) for name, committed, drafts in watch.proposed}


@pytest.mark.parametrize("pattern", [None, (0,), (1,), (3,), (1, 3, 0, 2)], ids=str)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"k": 1},
        {"prefill_tokens": (5, 8)},
        {"max_model_len": 32, "context_tokens": (16, 32)},
        {"exact_greedy": False},
        {"context_tokens": (24, 64), "block_size": 8},
    ],
    ids=str,
)
def test_text_and_proposals_are_those_of_the_separate_passes(
    changes: dict[str, Any], pattern: tuple[int, ...] | None
) -> None:
    """Requests that end at different times, one of them by the length of the model."""
    shape = replace(FUSED, **changes)
    fused, separate = make_rig(shape), make_rig(replace(shape, draft_fused=False))
    if pattern:
        pattern = tuple(min(count, shape.k) for count in pattern)
    room = shape.max_model_len
    requests = [
        Request("a", prompt_of(6, 1), max_tokens=13),
        Request("b", prompt_of(13, 2), max_tokens=9),
        Request("c", prompt_of(room - 9, 3), max_tokens=50),
        Request("d", prompt_of(room - 1, 4), max_tokens=50),
        Request("e", prompt_of(1, 5), max_tokens=3),
    ]
    outputs, proposed = run(fused, requests, pattern)
    expected, same = run(separate, requests, pattern)
    assert proposed == same
    assert [output.spec_decode for output in outputs] == [output.spec_decode for output in expected]
    assert [(o.token_ids, o.finish_reason) for o in outputs] == [(o.token_ids, o.finish_reason) for o in expected]
    for request, output in zip(requests, outputs, strict=True):
        room_left = min(request.max_tokens, room - len(request.prompt_token_ids))
        assert list(output.token_ids) == fused.plain(request.prompt_token_ids, room_left)


def test_the_draft_s_own_proposals_are_accepted() -> None:
    """So that the tests above compare more than rejections."""
    rig = make_rig(FUSED)
    (output,) = rig.generate(Request("a", prompt_of(9, 3), max_tokens=24))
    assert output.spec_decode.num_accepted_tokens_per_pos == [1, 1, 1]


def test_an_end_of_sequence_among_accepted_drafts_ends_the_request_and_leaves_the_others() -> None:
    rig = make_rig(FUSED)
    requests = [Request(str(i), prompt_of(6 + i, i), max_tokens=14) for i in range(3)]
    texts = {request.request_id: text_of(rig, request) for request in requests}
    plain = rig.plain(requests[1].prompt_token_ids, 14)
    stops = with_eos(rig, plain[2])
    outputs = stops.engine(Watch().over(texts, (K,))).generate(requests)
    for request, output in zip(requests, outputs, strict=True):
        whole = rig.plain(request.prompt_token_ids, 14)
        ends = whole.index(plain[2]) + 1 if plain[2] in whole else 14
        assert list(output.token_ids) == whole[:ends]
    assert outputs[1].finish_reason == "stop"


@pytest.mark.parametrize("k", [1, 2])
def test_fewer_drafts_are_the_first_of_the_chain(k: int) -> None:
    rig = make_rig(FUSED)
    engine = rig.engine(lambda graphs: FusedProposer(graphs, k))
    engine.add_request(Request("a", prompt_of(7), max_tokens=20))
    longest = 0
    while engine.has_unfinished():
        engine.step()
        for sequence in engine.running:
            assert sequence.drafts == rig.chain(sequence.token_ids, len(sequence.drafts))
            longest = max(longest, len(sequence.drafts))
    assert longest == k
    assert list(engine.take_finished()[0].token_ids) == rig.plain(prompt_of(7), 20)


class Unread:
    """A tensor that must not be read, as one on a device that the host would wait for; its shape is known."""

    def __init__(self, inner: Tensor) -> None:
        self.inner, self.shape = inner, inner.shape


def _inside(value: Tensor | Unread) -> Tensor:
    return value.inner if isinstance(value, Unread) else value


class Device:
    """A graph whose results stay on a device: only other graphs may have them, and step_tokens may be read."""

    def __init__(self, graph: LoadedGraph, reads: list[str]) -> None:
        self._graph, self._reads = graph, reads

    def __getattr__(self, name: str) -> object:
        return getattr(self._graph, name)

    def __call__(self, inputs: Mapping[str, Tensor | Unread]) -> Sequence[Tensor | Unread]:
        made = self._graph({name: _inside(value) for name, value in inputs.items()})
        if self._graph.spec.kind.startswith("target"):
            return [Unread(tensor) for tensor in made]
        self._reads.append(self._graph.spec.kind)
        return made


def test_a_step_reads_one_result() -> None:
    """The target's tokens and features go to the draft's graph as they are, and are not looked at."""
    rig = make_rig(replace(FUSED, prefill_tokens=(4, 8)))
    engine, ran = rig.engine(), list[str]()
    engine.graphs.wrap(lambda graph: cast(LoadedGraph, Device(graph, ran)))
    engine.add_request(Request("a", prompt_of(13), max_tokens=20))
    for _ in range(5):
        engine.step()
    assert ran == [*["draft_fused_prefill"] * 2, *["draft_fused"] * 3]
    (sequence,) = engine.running
    assert sequence.output_token_ids == rig.plain(prompt_of(13), len(sequence.output_token_ids))


def test_a_pass_after_which_nobody_can_draft_runs_no_draft() -> None:
    rig = make_rig(FUSED)
    engine, ran = rig.engine(Watch().over({"a": text_of(rig, Request("a", prompt_of(7), 5))}, (0,))), list[str]()
    observe(engine, lambda spec, inputs: ran.append(spec.kind))
    engine.generate([Request("a", prompt_of(7), max_tokens=5)])
    # One token of five from the prompt; behind the second and third there is room for a draft, behind the fourth none
    assert ran[:2] == ["target_prefill", "draft_fused_prefill"]
    assert ran[2:] == ["target_verify", "draft_fused"] * 2 + ["target_verify"] * 2


def test_a_chunk_that_is_not_the_last_takes_the_prompt_s_next_token_and_writes_no_more() -> None:
    rig = make_rig(replace(FUSED, prefill_tokens=(5, 8)))
    engine, seen = rig.engine(), list[tuple[int, int]]()
    prompt = prompt_of(13, 3)

    def look(spec: Graph, inputs: Mapping[str, Tensor]) -> None:
        if spec.kind == "draft_fused_prefill":
            seen.append((int(inputs["next_token"]), int(inputs["length_limits"])))

    observe(engine, look)
    engine.add_request(Request("a", prompt, max_tokens=16))
    for _ in range(2):
        engine.step()
    # Five blocks so far, so no row goes to position 20 or behind
    assert seen == [(prompt[8], 0), (rig.plain(prompt, 1)[0], 20)]


@pytest.mark.parametrize("k", [1, K])
def test_loading_takes_the_fused_draft_where_the_bundle_has_it(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = make_rig(FUSED)
    monkeypatch.setattr("runtime.graphs.backend_for", lambda bundle, weights, device=None: rig.backend)
    engine = Engine.load(rig.bundle, num_speculative_tokens=k)
    assert isinstance(engine.proposer, FusedProposer)
    assert {kind for kind, *_ in engine.graphs.loaded} == {
        *("target_prefill", "target_verify", "draft_fused_prefill", "draft_fused")
    }


def test_blocks_that_nobody_owns_are_not_written() -> None:
    """The recurrent rows of requests without room, and those of padding requests, go to the null block."""
    rig = make_rig(FUSED)
    engine = rig.engine()
    requests = [Request(str(i), prompt_of(6 + i, i), max_tokens=7 + i) for i in range(3)]
    pools = list(engine.graphs.pools.values())
    for pool in pools:
        pool[1:].fill_(7.0)
    owned = {0}
    for request in requests:
        engine.add_request(request)
    while engine.has_unfinished():
        engine.step()
        owned |= {block for sequence in engine.running for block in sequence.block_ids}
        free = [block for block in range(engine.blocks.num_blocks) if block not in owned]
        assert all(bool((pool[free] == 7.0).all()) for pool in pools)
    assert 1 < len(owned) < engine.blocks.num_blocks
