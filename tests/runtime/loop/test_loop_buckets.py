"""Which graph runs: the smallest bucket that fits, but for the target only along axes that keep every bit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from torch import Tensor

from runtime.bundle.errors import IntegrityError
from runtime.bundle.manifest import Axis, Graph
from runtime.bundle.schedule import KSchedule
from runtime.engine import Engine
from runtime.graphs import GraphSet
from runtime.proposer import EagleProposer, NoProposer, Proposer, ScriptedProposer
from runtime.request import Request
from runtime.sequence import Sequence
from tests.runtime.loop.rig import K, Rig, Shape, make_rig, observe, oracle, prompt_of, text_of


def ran(engine: Engine, *requests: Request) -> list[str]:
    """The names of the graphs that a run called, in order."""
    names: list[str] = []
    observe(engine, lambda spec, inputs: names.append(spec.name))
    engine.generate(list(requests))
    return names


def of_kind(names: list[str], kind: str) -> set[str]:
    return {name for name in names if name.startswith(kind)}


@pytest.mark.parametrize(
    ("bitwise", "verify"),
    [
        (("requests", "context"), {"target_verify.r1.c32", "target_verify.r1.c64"}),
        (("requests",), {"target_verify.r1.c64"}),
        (("context",), {"target_verify.r4.c32", "target_verify.r4.c64"}),
        ((), {"target_verify.r4.c64"}),
    ],
    ids=str,
)
def test_the_target_moves_only_along_axes_that_keep_every_bit(bitwise: tuple[Axis, ...], verify: set[str]) -> None:
    """One request that grows from 20 to 40 tokens: both contexts fit it, and the smallest batch."""
    rig = make_rig(Shape(bitwise_across=bitwise, prefill_tokens=(32,)))
    request = Request("a", prompt_of(20), max_tokens=20)
    names = ran(rig.engine(), request)
    assert of_kind(names, "target_verify") == verify
    # The prompt's pass is the same for plain and speculative decoding, and drafts need not be exact
    assert of_kind(names, "target_prefill") == {"target_prefill.t32.c32"}
    requests = 4 if "requests" not in bitwise else 1
    assert of_kind(names, "draft_initial.r") == {
        f"draft_initial.r{requests}.c32",
        f"draft_initial.r{requests}.c64",
    }
    assert of_kind(names, "draft_recurrent") == {"draft_recurrent.r1.c32", "draft_recurrent.r1.c64"}
    # Plain decoding in the same bundle runs the same target graphs
    assert of_kind(ran(rig.plain_engine(), request), "target_verify") == verify


@pytest.mark.parametrize(("length", "context"), [(28, 32), (29, 32), (30, 64)])
def test_a_verify_pass_has_room_for_all_of_its_rows(length: int, context: int) -> None:
    """Of n tokens the last one runs at position n-1, with K = 3 rows behind it: n + 3 entries."""
    rig = make_rig(Shape(prefill_tokens=(32,)))
    # The first token makes n = length + 1 - 1, so that the only pass after the prompt has n = length
    request = Request("a", prompt_of(length - 1), max_tokens=2)
    assert ran(rig.plain_engine(), request)[1:] == [f"target_verify.r1.c{context}"]


@pytest.mark.parametrize(
    ("length", "graphs"),
    [
        (3, ["t4.c32"]),
        (4, ["t4.c32"]),
        (5, ["t8.c32"]),
        (8, ["t8.c32"]),
        (9, ["t8.c32", "t4.c32"]),
        (32, ["t8.c32"] * 4),
        (33, ["t8.c32"] * 4 + ["t4.c64"]),
    ],
)
def test_a_chunk_takes_the_smallest_prefill_bucket_and_context(length: int, graphs: list[str]) -> None:
    rig = make_rig(Shape(prefill_tokens=(4, 8)))
    names = ran(rig.plain_engine(), Request("a", prompt_of(length), max_tokens=1))
    assert names == [f"target_prefill.{graph}" for graph in graphs]


@pytest.mark.parametrize(("count", "size"), [(1, 2), (2, 2), (3, 4), (4, 4)])
def test_a_batch_takes_the_smallest_bucket_of_requests(count: int, size: int) -> None:
    rig = make_rig(Shape(num_seqs=(2, 4)))
    engine, passes = rig.plain_engine(), list[tuple[int, int]]()

    def look(spec: Graph, inputs: Mapping[str, Tensor]) -> None:
        if spec.kind == "target_verify":
            passes.append((int((inputs["block_table"][:, 0] > 0).sum()), spec.requests))

    observe(engine, look)
    engine.generate([Request(str(i), prompt_of(5, i), max_tokens=8) for i in range(count)])
    # Requests join and leave one by one, so every number of them up to `count` has its passes
    assert {members for members, _ in passes} == set(range(1, count + 1))
    assert all(requests == (2 if members <= 2 else 4) for members, requests in passes)
    assert max(passes) == (count, size)


# Width of the block table

WIDE = Shape(max_model_len=256, context_tokens=(128, 256), prefill_tokens=(128,), max_num_seqs=1, num_seqs=(1,))


def widths(rig: Rig, length: int) -> list[int]:
    """Block-table columns of every verify pass after a prompt of `length`."""
    engine, seen = rig.plain_engine(), []

    def look(spec: Graph, inputs: Mapping[str, Tensor]) -> None:
        if spec.kind == "target_verify":
            seen.append(inputs["block_table"].shape[1])

    observe(engine, look)
    request = Request("a", prompt_of(length), max_tokens=4)
    (output,) = engine.generate([request])
    assert list(output.token_ids) == rig.plain(request.prompt_token_ids, 4)
    return seen


@pytest.mark.parametrize(("length", "tokens"), [(10, 64), (56, 64), (70, 128), (130, 192), (240, 256)])
def test_a_dynamic_block_table_is_as_wide_as_needed(length: int, tokens: int) -> None:
    """In steps of 64 tokens, 16 blocks of four."""
    assert widths(make_rig(replace(WIDE, layers=4)), length) == [tokens // 4] * 3


@pytest.mark.parametrize(("length", "tokens"), [(10, 64), (70, 192), (130, 192), (190, 256)])
def test_decoding_takes_only_widths_that_keep_bits(length: int, tokens: int) -> None:
    """The builder saw other bits at 128 tokens: a pass that would do with 128 runs at 192."""
    rig = make_rig(replace(WIDE, layers=4, bitwise_across=("requests",), context_widths=(64, 192, 256)))
    assert widths(rig, length) == [tokens // 4] * 3


def test_a_pinned_context_is_always_whole() -> None:
    rig = make_rig(replace(WIDE, layers=4, bitwise_across=("requests",)))
    assert widths(rig, 10) == [256 // 4] * 3


def test_a_dynamic_block_table_has_at_least_two_blocks() -> None:
    """Export treats sizes 0 and 1 as special, so a width of one is never asked for, even where one block is enough."""
    for bitwise in (("requests", "context"), ()):
        shape = replace(WIDE, layers=4, block_size=128, context_tokens=(128,), max_model_len=128)
        assert widths(make_rig(replace(shape, bitwise_across=bitwise)), 10) == [2] * 3


# near_tie: a decode graph of its own

NEAR_TIE = Shape(exact_greedy=False, bitwise_across=())


def test_near_tie_decodes_through_target_decode() -> None:
    rig = make_rig(NEAR_TIE)
    request = Request("a", prompt_of(7), max_tokens=12)
    names = ran(rig.plain_engine(), request)
    assert names == ["target_prefill.t16.c32"] + ["target_decode.r1.c32"] * 11


def test_near_tie_verifies_where_a_request_holds_a_draft() -> None:
    """Two requests; the one without drafts rides along in target_verify, and both decode while neither has any."""
    rig = make_rig(NEAR_TIE)
    requests = [Request(str(i), prompt_of(7, i), max_tokens=9) for i in range(2)]
    texts = {request.request_id: text_of(rig, request) for request in requests}

    def script(sequence: Sequence, room: int) -> list[int]:
        at = len(sequence.token_ids)
        drafting = sequence.request.request_id == "0" and at >= 12
        return texts[sequence.request.request_id][at : at + room] if drafting else []

    names = ran(rig.engine(ScriptedProposer(script, K)), *requests)
    # Request 0 alone has 9 tokens when the other joins; at 12 it drafts, and that pass ends it. Request 1 goes on alone
    assert names == [
        "target_prefill.t16.c32",
        "target_decode.r1.c32",
        "target_prefill.t16.c32",
        *["target_decode.r4.c32"] * 3,
        "target_verify.r4.c32",
        *["target_decode.r1.c32"] * 4,
    ]


@pytest.mark.parametrize("draft", ["none", "eagle", "oracle"])
def test_near_tie_keeps_the_text_in_float32(draft: str) -> None:
    rig = make_rig(replace(NEAR_TIE, seed=25))
    requests = [Request(str(i), prompt_of(5 + i, i), max_tokens=10 + 2 * i) for i in range(4)]
    texts = {request.request_id: text_of(rig, request) for request in requests}
    proposers: dict[str, Proposer | type[EagleProposer]] = {
        "none": NoProposer(),
        "eagle": EagleProposer,
        "oracle": oracle(texts, (0, 3, 1)),
    }
    for request, output in zip(requests, rig.generate(*requests, proposer=proposers[draft]), strict=True):
        assert list(output.token_ids) == rig.plain(request.prompt_token_ids, request.max_tokens)


# A bundle that lacks something


def test_a_missing_graph_is_an_error_when_the_bundle_loads() -> None:
    rig = make_rig()
    graphs = tuple(graph for graph in rig.manifest.graphs if graph.name != "draft_initial.r4.c64")
    broken = replace(rig, manifest=replace(rig.manifest, graphs=graphs))
    with pytest.raises(IntegrityError) as caught:
        broken.graphs()
    assert caught.value.sentence() == (
        "The bundle lacks a graph: expected draft_initial for 4 and context 64, found none in the manifest."
    )


@pytest.mark.parametrize("name", ["draft_initial.r4.k1.c64", "target_verify.r4.k1.c64"])
def test_so_is_one_of_fewer_rows_that_a_schedule_can_ask_for(name: str) -> None:
    rig = make_rig(Shape(schedule=KSchedule.of([[1, 1, 3], [2, 4, 1]])))
    graphs = tuple(graph for graph in rig.manifest.graphs if graph.name != name)
    assert len(graphs) < len(rig.manifest.graphs)
    with pytest.raises(IntegrityError, match=rf"expected {name.split('.')[0]} for 4 and context 64, 2 rows each,"):
        replace(rig, manifest=replace(rig.manifest, graphs=graphs)).graphs()


def test_graphs_that_are_not_asked_for_are_not_missed_and_not_opened() -> None:
    rig = make_rig()
    graphs = tuple(graph for graph in rig.manifest.graphs if graph.name != "draft_initial.r4.c64")
    reduced = replace(rig, manifest=replace(rig.manifest, graphs=graphs))
    opened: GraphSet = reduced.graphs(kinds=["target_prefill", "target_verify"])
    assert {kind for kind, *_ in opened.loaded} == {"target_prefill", "target_verify"}


def test_a_value_that_nothing_makes_is_named() -> None:
    rig = make_rig()
    first = rig.manifest.graphs[0]
    call = replace(first.calls[1], inputs=("hidden.9", *first.calls[1].inputs[1:]))
    graphs = (replace(first, calls=(first.calls[0], call, *first.calls[2:])), *rig.manifest.graphs[1:])
    broken = replace(rig, manifest=replace(rig.manifest, graphs=graphs))
    with pytest.raises(IntegrityError, match=r"Graph target_prefill\.t16\.c32 reads hidden\.9, which nothing makes"):
        broken.graphs()
