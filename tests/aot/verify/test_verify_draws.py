"""The builder's checks of graphs that draw tokens: right ones pass, and each way of drawing wrongly is seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
import torch
from torch import Tensor

from aot.models import sampling
from aot.verify.bits import BitsCheck
from aot.verify.draws import draws_agree
from aot.verify.eager import EagerBackend
from aot.verify.graphs import check_graph
from aot.verify.scripted import check_scripted, patterns
from runtime.backends import Run
from runtime.bundle.errors import CompileError
from runtime.bundle.manifest import Graph, KVCache, Unit
from tests.aot.verify.whole_numbers import WholeNumbers
from tests.runtime.loop.rig import Rig, Shape, make_rig

SAMPLED = Shape(sampled=True, exact_greedy=False, layers=4)
NAMES = [graph.name for graph in make_rig(SAMPLED).manifest.graphs if graph.kind.startswith("target")]


class Changed:
    """Eager PyTorch whose heads read other inputs: `change(kind, inputs)` gives them."""

    def __init__(self, eager: EagerBackend, **changes: float) -> None:
        self._eager, self._changes = eager, changes

    def pools(self, cache: KVCache, num_blocks: int) -> Mapping[str, Tensor]:
        return self._eager.pools(cache, num_blocks)

    def open(self, unit: Unit, scope: str) -> Run:
        run = self._eager.open(unit, scope)
        names = [value.name for value in unit.inputs]

        def changed(inputs: Sequence[Tensor]) -> Sequence[Tensor]:
            given = list(inputs)
            for name, value in self._changes.items():
                if name in names:
                    given[names.index(name)] = torch.full_like(given[names.index(name)], value)
            return run(given)

        return changed


def graph_named(rig: Rig, name: str) -> Graph:
    return next(graph for graph in rig.manifest.graphs if graph.name == name)


@pytest.mark.parametrize("name", NAMES)
def test_a_right_graph_passes(name: str) -> None:
    rig = make_rig(SAMPLED)
    check, relative = check_graph(graph_named(rig, name), rig.manifest, rig.backend, rig.backend)
    assert (check.max_abs_error, check.tokens_equal, relative) == (0.0, True, 0.0)


@pytest.mark.parametrize(
    "changes",
    [{"uniforms": 0.5}, {"temperature": 0.0}, {"temperature": 3.0}, {"top_k": 3}, {"top_p": 0.1}, {"min_p": 0.9}],
)
def test_a_graph_that_leaves_out_what_is_asked_is_seen(changes: dict[str, float]) -> None:
    """In the one look that a build takes."""
    rig = make_rig(SAMPLED)
    graph = graph_named(rig, "target_verify.r4.c32")
    wrong = Changed(rig.backend, **changes)
    check, _ = check_graph(graph, rig.manifest, wrong, rig.backend)
    assert not check.tokens_equal


def head_inputs(rig: Rig, uniform: float) -> tuple[sampling.Asked, list[Tensor]]:
    """A verify head's inputs for one request whose rows all draw with one uniform, no draft among them."""
    asked = sampling.Asked(
        torch.ones(1), torch.zeros(1, dtype=torch.int32), torch.ones(1), torch.zeros(1), torch.full((4,), uniform)
    )
    hidden = torch.randn(4, 32, generator=torch.Generator().manual_seed(0))
    tokens, counts = torch.zeros(4, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    return asked, [hidden, tokens, counts, *asked, *[hidden] * 3]


def test_a_token_next_to_the_boundary_passes_and_the_next_one_does_not() -> None:
    rig = make_rig(SAMPLED)
    head = rig.backend.module("target_verify_head.r1x4", "target.head")
    asked, inputs = head_inputs(rig, 0.5)
    with torch.no_grad():
        logits = head.logits(inputs[0])
        ends = sampling.kept_weights(logits, asked.of_rows()).flatten(1).double().cumsum(1)
        boundary = float((ends[0] / ends[0, -1])[20])
        for aside, right in ((1e-6, (20, 21)), (-1e-6, (20, 21)), (1e-3, (21,)), (-1e-3, (20,))):
            _, inputs = head_inputs(rig, boundary + aside)
            for token in (19, 20, 21, 22, 64, 10**6):
                accepted = torch.tensor([[token, -1, -1, -1]], dtype=torch.int32)
                assert draws_agree(head, inputs, accepted) == (token in right)
        none = torch.full((1, 4), -1, dtype=torch.int32)
        assert not draws_agree(head, inputs, none)
        # No draft was proposed, so none can have been accepted
        assert not draws_agree(head, inputs, torch.tensor([[20, 20, -1, -1]], dtype=torch.int32))


def test_the_scripted_check_runs_seeded_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = make_rig(Shape(sampled=True, layers=4))
    monkeypatch.setattr("runtime.graphs.backend_for", lambda bundle, weights, device=None: WholeNumbers())
    assert check_scripted(rig.bundle).patterns == len(patterns(3))
    # With one number for every row and position the text is still its own; with another in every pass it is not
    numbers = torch.Generator().manual_seed(0)

    def drifting(members: object, requests: int, rows_each: int) -> dict[str, Tensor]:
        made = right(members, requests, rows_each)  # type: ignore[arg-type]
        made["uniforms"] = torch.rand(made["uniforms"].shape, generator=numbers)
        return made

    from runtime.sampling import device

    right = device.device_inputs
    monkeypatch.setattr(device, "device_inputs", drifting)
    with pytest.raises(CompileError):
        check_scripted(rig.bundle)


def test_bits_are_measured_on_such_graphs_too() -> None:
    rig = make_rig(Shape(sampled=True, layers=4))
    assert BitsCheck(rig.manifest, rig.backend).rows_keep_bits()
