"""`check_graph` sees a graph that computes something else, however little, and passes one that does not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import pytest
import torch
from torch import Tensor

from aot.models.llama import TargetHead
from aot.verify.eager import EagerBackend
from aot.verify.graphs import TOLERANCE, check_graph, integer_inputs
from runtime.backends import Run
from runtime.bundle.manifest import Graph, KVCache, Unit
from runtime.schedule import KSchedule
from tests.runtime.loop.rig import Rig, Shape, make_rig

LIMIT = TOLERANCE["float32"]
Fault = Callable[[Unit, str, list[Tensor], list[Tensor]], list[Tensor]]


class Faulty:
    """Eager PyTorch whose outputs a fault may change: `fault(unit, scope, inputs, outputs)` gives the new ones."""

    def __init__(self, eager: EagerBackend, fault: Fault) -> None:
        self._eager, self._fault = eager, fault

    def pools(self, cache: KVCache, num_blocks: int) -> Mapping[str, Tensor]:
        return self._eager.pools(cache, num_blocks)

    def open(self, unit: Unit, scope: str) -> Run:
        run = self._eager.open(unit, scope)
        return lambda inputs: self._fault(unit, scope, list(inputs), run(inputs))


def graph_named(rig: Rig, name: str) -> Graph:
    return next(graph for graph in rig.manifest.graphs if graph.name == name)


SHAPE = Shape(exact_greedy=False, schedule=KSchedule.of([[1, 1, 3], [2, 3, 1], [4, 4, 0]]))
EVERY = [graph.name for graph in make_rig(SHAPE).manifest.graphs]
FUSED = Shape(draft_fused=True)
FUSED_DRAFTS = [graph.name for graph in make_rig(FUSED).manifest.graphs if graph.kind.startswith("draft")]


@pytest.mark.parametrize("name", EVERY)
def test_a_right_graph_has_no_error(name: str) -> None:
    rig = make_rig(SHAPE)
    check, relative = check_graph(graph_named(rig, name), rig.manifest, rig.backend, rig.backend)
    assert (check.max_abs_error, check.tokens_equal, relative) == (0.0, True, 0.0)
    assert check.reference == "eager PyTorch"


def with_weight(rig: Rig, scope: str, name: str, change: Callable[[Tensor], Tensor]) -> EagerBackend:
    """The rig's eager backend with one weight of one scope changed."""
    weights = {key: dict(tensors) for key, tensors in rig.backend._weights.items()}
    weights[scope][name] = change(weights[scope][name])
    return EagerBackend(rig.backend._specs, weights)


@pytest.mark.parametrize(
    ("graph", "scope", "weight"),
    [
        ("target_verify.r4.c32", "target.layers.3", "mlp.down_proj.weight"),
        ("target_prefill.t16.c64", "target.layers.7", "self_attn.o_proj.weight"),
        ("target_verify.r1.c64", "target.embed", "rotary.weight"),
        ("draft_initial.t16.c32", "draft", "fc.weight"),
        ("draft_recurrent.r4.c64", "draft", "hidden_norm.weight"),
    ],
)
def test_a_weight_that_is_a_thousandth_too_large_is_seen(graph: str, scope: str, weight: str) -> None:
    """In one call of many: the error of a layer is not lost among the layers behind it."""
    rig = make_rig()
    wrong = with_weight(rig, scope, weight, lambda tensor: tensor * 1.001)
    check, relative = check_graph(graph_named(rig, graph), rig.manifest, wrong, rig.backend)
    assert relative > 10 * LIMIT
    assert check.max_abs_error > 0


@pytest.mark.parametrize(
    ("kind", "changes", "graph"),
    [
        ("draft_initial", {"norm_before_residual": True}, "draft_initial.r4.c32"),
        ("draft_recurrent", {"norm_before_residual": True}, "draft_recurrent.r1.c32"),
        ("target_layer", {"eps": 1e-3}, "target_verify.r4.c32"),
    ],
)
def test_a_module_with_another_argument_is_seen(kind: str, changes: dict[str, float], graph: str) -> None:
    rig = make_rig()
    specs = {
        name: dataclasses.replace(spec, arguments={**spec.arguments, **changes}) if spec.kind == kind else spec
        for name, spec in rig.backend._specs.items()
    }
    wrong = EagerBackend(specs, rig.backend._weights)
    _, relative = check_graph(graph_named(rig, graph), rig.manifest, wrong, rig.backend)
    assert relative > 10 * LIMIT


def test_a_wrong_softmax_scale_is_seen() -> None:
    """Queries a hundredth too long, as a scale of another head size would make them."""
    rig = make_rig()
    split = rig.target.num_heads * rig.target.head_dim

    def longer(weight: Tensor) -> Tensor:
        return torch.cat([weight[:split] * 1.01, weight[split:]])

    wrong = with_weight(rig, "target.layers.0", "self_attn.qkv_proj.weight", longer)
    _, relative = check_graph(graph_named(rig, "target_verify.r1.c64"), rig.manifest, wrong, rig.backend)
    assert relative > 10 * LIMIT


def check_with(fault: Fault, name: str) -> tuple[float, bool]:
    rig = make_rig()
    check, relative = check_graph(graph_named(rig, name), rig.manifest, Faulty(rig.backend, fault), rig.backend)
    return relative, check.tokens_equal


def test_kv_written_to_another_slot_is_seen() -> None:
    """The outputs are right; what later passes would read is not."""

    def misplaced(unit: Unit, scope: str, inputs: list[Tensor], outputs: list[Tensor]) -> list[Tensor]:
        if scope == "target.layers.5":
            for pool in inputs[-2:]:
                pool.copy_(pool.flatten(0, 1).roll(1, 0).view_as(pool))
        return outputs

    relative, tokens = check_with(misplaced, "target_verify.r4.c32")
    assert relative > 0.1
    assert tokens


def test_nan_is_an_infinite_error() -> None:
    def poisoned(unit: Unit, scope: str, inputs: list[Tensor], outputs: list[Tensor]) -> list[Tensor]:
        if scope == "target.layers.2":
            outputs[0][-1, -1] = float("nan")
        return outputs

    relative, _ = check_with(poisoned, "target_verify.r1.c32")
    assert relative == float("inf")


@pytest.mark.parametrize(
    "name", ["target_verify.r4.c32", "target_prefill.t16.c32", "draft_initial.r4.c32", "draft_recurrent.r4.c64"]
)
def test_another_token_with_right_floats_is_seen(name: str) -> None:
    def other_token(unit: Unit, scope: str, inputs: list[Tensor], outputs: list[Tensor]) -> list[Tensor]:
        if scope in ("target.head", "draft"):
            outputs[0] = outputs[0].clone()
            outputs[0].view(-1)[0] = (outputs[0].view(-1)[0] + 1) % 64
        return outputs

    relative, tokens = check_with(other_token, name)
    assert relative == 0.0
    assert not tokens


def test_another_token_at_a_near_tie_is_no_error() -> None:
    """Two rows of the head are the same, so either token is right."""
    rig = make_rig()

    def twin(weight: Tensor) -> Tensor:
        return weight[torch.arange(64) // 2 * 2]

    tied = with_weight(rig, "target.head", "lm_head.weight", twin)

    def other_twin(unit: Unit, scope: str, inputs: list[Tensor], outputs: list[Tensor]) -> list[Tensor]:
        if scope == "target.head":
            outputs[0] = outputs[0] ^ 1
        return outputs

    name = "target_prefill.t16.c32"
    check, _ = check_graph(graph_named(rig, name), rig.manifest, Faulty(tied, other_twin), tied)
    assert check.tokens_equal
    # Without the tie the same change is an error
    check, _ = check_graph(graph_named(rig, name), rig.manifest, Faulty(rig.backend, other_twin), rig.backend)
    assert not check.tokens_equal


@pytest.mark.parametrize("name", EVERY)
def test_inputs_are_those_that_the_loop_could_give(name: str) -> None:
    rig = make_rig(SHAPE)
    graph = graph_named(rig, name)
    inputs = integer_inputs(graph, rig.manifest, torch.Generator().manual_seed(1))
    each = graph.rows // graph.requests
    positions = inputs["positions"].view(graph.requests, each)
    assert positions.min() >= 0
    assert positions.max() < graph.context
    assert torch.equal(positions - positions[:, :1], torch.arange(each).expand(graph.requests, each))
    table: Sequence[Sequence[int]] = inputs["block_table"].tolist()
    slots = [table[r][p // 4] * 4 + p % 4 for r, row in enumerate(positions.tolist()) for p in row]
    assert inputs["slot_mapping"].tolist() == slots
    assert len(set(slots)) == graph.rows
    assert min(slots) >= 4
    assert inputs["tokens"].max() < 64
    assert {inputs[value.name].dtype for value in graph.inputs if value.name in inputs} == {torch.int32}


@pytest.mark.parametrize(("tokens", "context"), [(32, 32), (64, 32)], ids=["fills the context", "larger than it"])
def test_a_prefill_bucket_may_fill_or_pass_the_context(tokens: int, context: int) -> None:
    """Legal configurations, defaults among them; rows without a place are padding in the null slot."""
    rig = make_rig(Shape(prefill_tokens=(tokens,), context_tokens=(context, 64)))
    graph = graph_named(rig, f"target_prefill.t{tokens}.c{context}")
    inputs = integer_inputs(graph, rig.manifest, torch.Generator().manual_seed(0))
    fits = torch.arange(tokens) < context
    assert inputs["positions"].max() < context
    assert (inputs["slot_mapping"][~fits] == 0).all()
    assert len(set(inputs["slot_mapping"][fits].tolist())) == int(fits.sum())
    check, relative = check_graph(graph, rig.manifest, rig.backend, rig.backend)
    assert (check.tokens_equal, relative) == (True, 0)


@pytest.mark.parametrize(
    ("shape", "verify", "prefill"), [(Shape(), 16, 8), (Shape(sampled=True), 24, 32)], ids=["greedy", "drawing"]
)
def test_p1_a_head_is_computed_few_times_and_once_more_in_each_further_context(
    shape: Shape, verify: int, prefill: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real model's head takes seconds in eager PyTorch. Counted on both sides, the inputs' own one too."""
    rig, computed, met = make_rig(shape), [0], set[str]()
    logits = TargetHead.logits

    def counted(self: TargetHead, *arguments: Tensor) -> Tensor:
        computed[0] += 1
        return logits(self, *arguments)

    monkeypatch.setattr(TargetHead, "logits", counted)
    for kind, most in (("target_verify.r4", verify), ("target_prefill.t16", prefill)):
        for context, limit in ((32, most), (64, 2)):
            computed[0] = 0
            check_graph(graph_named(rig, f"{kind}.c{context}"), rig.manifest, rig.backend, rig.backend, met=met)
            assert 0 < computed[0] <= limit, (kind, context, computed)


# Fused drafts


@pytest.mark.parametrize("name", FUSED_DRAFTS)
def test_a_right_fused_draft_has_no_error(name: str) -> None:
    rig = make_rig(FUSED)
    check, relative = check_graph(graph_named(rig, name), rig.manifest, rig.backend, rig.backend)
    assert (check.max_abs_error, check.tokens_equal, relative) == (0.0, True, 0.0)


@pytest.mark.parametrize("name", FUSED_DRAFTS)
@pytest.mark.parametrize("weight", ["fc.weight", "self_attn.qkv_proj.weight", "lm_head.weight"])
def test_a_fused_draft_with_a_wrong_weight_is_seen(weight: str, name: str) -> None:
    rig = make_rig(FUSED)
    wrong = with_weight(rig, "draft", weight, lambda tensor: tensor.roll(1, 0))
    check, relative = check_graph(graph_named(rig, name), rig.manifest, wrong, rig.backend)
    assert not check.tokens_equal or relative > 10 * LIMIT


@pytest.mark.parametrize("column", [0, 2, 4, 5, 6])
def test_any_wrong_step_token_is_seen(column: int) -> None:
    """Of four accepted tokens, which are handed on, and of three drafts."""
    rig = make_rig(FUSED)

    def fault(unit: Unit, scope: str, inputs: list[Tensor], outputs: list[Tensor]) -> list[Tensor]:
        outputs[0][-1, column] = (outputs[0][-1, column] + 1) % 64
        return outputs

    graph = graph_named(rig, "draft_fused.r4.c64")
    check, _ = check_graph(graph, rig.manifest, Faulty(rig.backend, fault), rig.backend)
    assert not check.tokens_equal


@pytest.mark.parametrize("name", FUSED_DRAFTS)
def test_after_a_near_tie_the_rest_of_a_chain_is_still_judged(name: str) -> None:
    """A head whose rows all come in pairs ties everywhere; the compiled draft takes the other of each pair."""
    rig = make_rig(FUSED)

    def pairs(tensor: Tensor) -> Tensor:
        return tensor.repeat_interleave(2, 0)[: len(tensor)]

    tied = with_weight(rig, "draft", "lm_head.weight", pairs)

    def lowest_bit_off(tensor: Tensor) -> Tensor:
        # Odd rows a little larger: every choice becomes the pair's other, by less than the dtype tells apart
        scale = torch.ones(len(tensor), 1)
        scale[1::2] += 2 * torch.finfo(tensor.dtype).eps
        return pairs(tensor) * scale

    other = with_weight(rig, "draft", "lm_head.weight", lowest_bit_off)
    check, relative = check_graph(graph_named(rig, name), rig.manifest, other, tied)
    assert check.tokens_equal
    assert relative < LIMIT
    wrong = with_weight(rig, "draft", "fc.weight", lambda tensor: tensor.roll(1, 0))
    _, relative = check_graph(graph_named(rig, name), rig.manifest, wrong, tied)
    assert relative > 10 * LIMIT
