"""Every kind of graph, lowered and run from its HLO, gives what eager PyTorch gives; over ranks too."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from aot.backends.neuron import lowering
from tests.aot.backends.neuron.lowered import OnSimulator, chains, lowered
from tests.aot.ranked import odd_rig
from tests.aot.toy_drafts import rig_of_variant
from tests.aot.verify import doctors
from tests.runtime.loop.rig import Shape, make_rig

pytestmark = pytest.mark.neuron

SMALL = Shape(num_seqs=(4,), context_tokens=(64,), layers=3)
ALL = dataclasses.replace(SMALL, exact_greedy=False, greedy_only=False, num_seqs=(1, 4), context_tokens=(32, 64))


def names(shape: Shape) -> list[str]:
    return [graph.name for graph in make_rig(shape).table.graphs]


@pytest.mark.parametrize("name", names(ALL))
def test_a_graph_gives_what_eager_pytorch_gives(name: str, tmp_path: Path) -> None:
    """Plain decoding's own graph and logits as results are among them."""
    absolute, relative, tokens = OnSimulator(make_rig(ALL), tmp_path, [name]).compare(name)
    assert tokens
    assert relative < 1e-5
    assert 0 < absolute < 1e-4


@pytest.mark.parametrize("name", ["draft_fused.t16.c64", "draft_fused.r4.c64"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_the_fused_draft(name: str, ranks: int, tmp_path: Path) -> None:
    rig = odd_rig() if ranks > 1 else make_rig(SMALL)
    shape = dataclasses.replace(rig.shape, draft_fused=True, num_seqs=(4,), context_tokens=(64,))
    fused = type(rig)(
        shape,
        geometry := dataclasses.replace(rig.geometry, draft_fused=True),
        rig.table,
        rig.manifest,
        rig.backend,
        rig.target_weights,
        rig.draft_weights,
    )
    assert geometry.draft_fused
    name = next(graph for graph in chains(geometry) if graph.startswith(name.rpartition(".")[0][:13]))
    _, relative, tokens = OnSimulator(fused, tmp_path, [name], ranks).compare(name)
    assert tokens
    assert relative < 1e-4


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("kind", ["target_prefill", "target_verify", "draft_initial", "draft_recurrent"])
def test_several_ranks_give_one_device_s_tokens_features_and_kv(kind: str, ranks: int, tmp_path: Path) -> None:
    """Vocabularies, MLP and KV heads that the ranks do not divide; the simulator itself wants equal bits on all."""
    rig = odd_rig()
    name = [graph.name for graph in rig.table.graphs if graph.name.startswith(kind)][-1]
    on_ranks = OnSimulator(rig, tmp_path, [name], ranks)
    absolute, relative, tokens = on_ranks.compare(name)
    assert tokens
    assert relative < 1e-3
    assert absolute < 1e-3
    sharded = {p.name for p in on_ranks.modules[name].parameters if p.sharded}
    assert {"rank"} <= sharded
    assert any(name.startswith("kv.") for name in sharded)
    assert any(name.endswith("mlp.down_proj.weight") for name in sharded)


@pytest.mark.parametrize(
    "variant", ["biases", "final state", "logit scale", "norm output", "query and key norms", "full vocabulary"]
)
def test_variants_of_drafts(variant: str, tmp_path: Path) -> None:
    rig = rig_of_variant(variant)
    wanted = [graph.name for graph in rig.table.graphs if graph.kind in ("draft_initial", "draft_recurrent")][-2:]
    on_simulator = OnSimulator(rig, tmp_path, wanted)
    for name in wanted:
        _, relative, tokens = on_simulator.compare(name)
        assert tokens
        assert relative < 1e-4


@pytest.mark.parametrize("name", ["target_prefill.t16.c64", "target_verify.r4.c64", "target_decode.r4.c64"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_graphs_that_draw_tokens(name: str, ranks: int, tmp_path: Path) -> None:
    """Every way of sampling; on several ranks from logits that are gathered, no padding of theirs drawn."""
    shape = dataclasses.replace(SMALL, sampled=True, exact_greedy=False)
    rig = odd_rig(sampled=True, exact_greedy=False) if ranks > 1 else make_rig(shape)
    _, relative, tokens = OnSimulator(rig, tmp_path, [name], ranks).compare(name)
    assert tokens
    assert relative < 1e-3


@pytest.mark.parametrize(
    "change",
    [
        doctors.never_accepts,
        doctors.accepts_one_too_few,
        doctors.accepts_one_too_many,
        doctors.accepts_padding,
        doctors.commits_the_draft,
        doctors.wrong_next_token,
    ],
    ids=lambda change: change.__name__,
)
def test_p1_a_lowered_graph_that_accepts_otherwise_is_seen(change: doctors.Change, tmp_path: Path) -> None:
    name = "target_verify.r4.c64"
    on_simulator = OnSimulator(make_rig(SMALL), tmp_path, [name])
    on_simulator.sim = doctors.doctor("target_verify", change)(on_simulator.sim)  # type: ignore[assignment]
    _, relative, tokens = on_simulator.compare(name)
    assert not tokens
    assert relative < 1e-4


@pytest.mark.parametrize("name", ["target_verify.r4.c64", "draft_initial.r4.c64", "draft_recurrent.r4.c64"])
def test_p1_a_lowered_graph_one_position_on_is_seen(name: str, tmp_path: Path) -> None:
    on_simulator = OnSimulator(make_rig(SMALL), tmp_path, [name])
    on_simulator.sim = doctors.doctor("", doctors.one_position_on)(on_simulator.sim)  # type: ignore[assignment]
    assert on_simulator.compare(name)[1] > 1e-2


def test_bfloat16_within_its_rounding(tmp_path: Path) -> None:
    name = "target_verify.r4.c64"
    rig = make_rig(dataclasses.replace(SMALL, dtype="bfloat16"))
    _, relative, tokens = OnSimulator(rig, tmp_path, [name]).compare(name)
    assert tokens
    assert 1e-4 < relative < 5e-2


def test_the_same_chain_gives_the_same_bytes() -> None:
    spec = chains(make_rig(SMALL).geometry)["target_verify.r4.c64"]
    assert lowered(spec).data == lowered(spec).data


def test_a_module_s_tables_and_bytes(tmp_path: Path) -> None:
    """Weights, KV, inputs in this order; every pool aliased; no name of a file or folder of this machine."""
    made = lowered(chains(make_rig(SMALL).geometry)["target_verify.r4.c64"])
    roles = [parameter.role for parameter in made.parameters]
    assert roles == sorted(roles, key=("weight", "kv", "rank", "input").index)
    assert "rank" not in roles
    assert [p.name for p in made.parameters if p.role == "kv"] == [f"kv.{i}.{half}" for i in range(3) for half in "kv"]
    assert [r.name for r in made.results[:2]] == ["accepted", "features"]
    assert all(r.alias_of == r.name for r in made.results[2:])
    assert {p.dtype for p in made.parameters if p.role == "input"} == {"int32"}
    for trace in (b".py", b"site-packages", str(Path.home()).encode(), str(Path.cwd()).encode()):
        assert trace not in made.data


# A fault in one operator's lowering, or in the model as it is lowered and not as it is run
Patch = Callable[[pytest.MonkeyPatch], None]


def replaced(name: str, change: Callable[..., Any]) -> Patch:
    def apply(patch: pytest.MonkeyPatch) -> None:
        target = getattr(torch.ops.aten, name).default if name != "index" else torch.ops.aten.index.Tensor
        right = lowering.LOWERINGS[target]
        patch.setitem(lowering.LOWERINGS, target, lambda made, *args, **kwargs: change(right, made, *args, **kwargs))

    return apply


def shifted_write(right: Any, made: Any, table: Tensor, indices: Any, rows: Tensor, *rest: Any) -> Tensor:
    result: Tensor = right(made, table, [indices[0] + made.number(1, torch.int32)], rows, *rest)
    return result


def last_of_ties(right: Any, made: Any, values: Tensor, *rest: Any) -> Tensor:
    result: Tensor = right(made, -values, *rest)
    return result


def no_mask(patch: pytest.MonkeyPatch) -> None:
    def where(made: Any, condition: Tensor, first: Tensor, second: Tensor) -> Tensor:
        # A mask is where(hidden, minus infinity, scores)
        return second if first.dim() == 0 else torch.where(condition, first, second)

    patch.setitem(lowering.LOWERINGS, torch.ops.aten.where.self, where)


def other_sign(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(lowering.LOWERINGS, torch.ops.aten.sub.Tensor, lambda made, first, second: first + second)


def other_slice(patch: pytest.MonkeyPatch) -> None:
    def sliced(made: Any, tensor: Tensor, dim: int = 0, start: int = 0, end: int = 1 << 62, step: int = 1) -> Tensor:
        size = min(end, tensor.shape[dim]) - start
        first = 0 if start and dim == 1 and tensor.dim() == 2 else start
        return tensor.narrow(dim, first, size)

    patch.setitem(lowering.LOWERINGS, torch.ops.aten.slice.Tensor, sliced)


FAULTS: dict[str, Patch] = {
    "KV rows one slot off": replaced("index_put", shifted_write),
    "the least likely token": replaced("argmax", last_of_ties),
    "no causal mask": no_mask,
    "a rotation the wrong way": other_sign,
    "a slice from the wrong place": other_slice,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_lowering_is_seen(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "target_verify.r4.c64"
    FAULTS[fault](monkeypatch)
    _, relative, tokens = OnSimulator(make_rig(SMALL), tmp_path, [name]).compare(name)
    assert relative > 1e-2 or not tokens
