"""Every published variant of a draft, served over the paged pool, is the reference of its published semantics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from aot.checkpoint.draft import DraftConfig
from aot.reference import draft_features, draft_forward, draft_state, with_shared
from runtime.batch import pad_rows
from runtime.graphs import GraphSet
from runtime.request import Request
from runtime.sequence import Sequence as Running
from tests.aot.toy_drafts import VARIANTS, rig_of_variant
from tests.runtime.loop.rig import K, Rig, Watch, prompt_of, text_of

CLOSE = {"atol": 1e-4, "rtol": 1e-4}
BLOCKS = [9, 3, 14, 5, 11, 2]
every_variant = pytest.mark.parametrize("name", VARIANTS)


def features_of(rig: Rig, tokens: Sequence[int]) -> Tensor:
    return draft_features(rig.target_weights, rig.target, rig.draft, tokens)


def initial(rig: Rig, graphs: GraphSet, committed: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The draft's prefill over `committed`: draft token [1], state [1, H]."""
    rows = len(committed) - 1
    graph, bucket = graphs.prefill("draft_initial_prefill", rows, rows)
    inputs = pad_rows([Running(Request("a", (0,)), 0, [], BLOCKS)], [committed[1:]], [0], bucket, 4)
    true = features_of(rig, committed[:-1])
    inputs["features"] = torch.cat([true, torch.full((bucket.rows_each - rows, true.shape[1]), 7.0)])
    inputs["last_index"] = torch.tensor([rows - 1], dtype=torch.int32)
    token, state = graph(inputs)
    return token, state


@every_variant
@pytest.mark.parametrize("length", [2, 14])
def test_the_first_pass_gives_the_references_state_and_token(name: str, length: int) -> None:
    """C1: logits and the state that is handed on, of one row and of a row that sees thirteen."""
    rig = rig_of_variant(name)
    committed = prompt_of(length, length)
    token, state = initial(rig, rig.graphs(), committed)
    weights = with_shared(rig.draft_weights, rig.target_weights)
    logits, states = draft_forward(weights, rig.draft, committed[1:], features_of(rig, committed[:-1]))
    torch.testing.assert_close(state, states[-1:], **CLOSE)
    draft_id = int(logits[-1].argmax())
    assert token.tolist() == [draft_id + int(rig.draft_weights["d2t"][draft_id])]


@every_variant
def test_the_chain_is_the_references_token_by_token(name: str) -> None:
    """One pass over true features, then five rows that live on the draft's own states and KV."""
    rig = rig_of_variant(name)
    for seed in range(2):
        graphs, committed = rig.graphs(), prompt_of(9, seed)
        token, state = initial(rig, graphs, committed)
        chain = token.tolist()
        for step in range(5):
            position = len(committed) - 1 + step
            graph, bucket = graphs.decode("draft_recurrent", 1, position + 1)
            inputs = pad_rows([Running(Request("a", (0,)), 0, [], BLOCKS)], [chain[-1:]], [position], bucket, 4)
            inputs["state"] = state
            token, state = graph(inputs)
            chain += token.tolist()
        assert chain == rig.chain(committed, 6)


@every_variant
def test_speculation_is_plain_decoding_and_every_proposal_the_references(name: str) -> None:
    """G5, D1: whatever is accepted, the draft's KV is rewritten with true features, in every layer of the draft."""
    rig = rig_of_variant(name)
    requests = [Request("a", prompt_of(7), max_tokens=15), Request("b", prompt_of(12, 3), max_tokens=12)]
    watch = Watch()
    engine = rig.engine(watch.over({one.request_id: text_of(rig, one) for one in requests}, (0, 3, 1, 2)))
    for output, request in zip(engine.generate(requests), requests, strict=True):
        assert list(output.token_ids) == rig.plain(request.prompt_token_ids, request.max_tokens)
    assert len(watch.proposed) > 6
    for _, committed, proposed in watch.proposed[:6]:
        assert proposed == rig.chain(committed, len(proposed))
    assert max(len(proposed) for _, _, proposed in watch.proposed) == K
    # And unwatched, with whatever the draft itself proposes
    own = rig.generate(requests[0])[0]
    assert list(own.token_ids) == rig.plain(requests[0].prompt_token_ids, requests[0].max_tokens)


DROPPED: dict[str, dict[str, object]] = {
    "norm before residual": {"norm_before_residual": False},
    "two layers": {"num_layers": 1},
    "joined norm": {"feature_norm": "none"},
    "norm of each state": {"feature_norm": "none"},
    "norm of each state by older names": {"feature_norm": "none"},
    "sliding window": {"windows": ()},
    "sliding window in the second layer": {"windows": ()},
    "window by override": {"windows": ()},
    "rope llama3": {"rope_scaling": None},
    "rope yarn": {"rope_scaling": None},
    "rope linear": {"rope_scaling": None},
    "norm output": {"norm_output": False},
}


@pytest.mark.parametrize("name", DROPPED)
def test_a_variant_read_as_the_plain_draft_computes_something_else(name: str) -> None:
    """The comparisons above would see it if reference and graphs both ignored what the checkpoint says."""
    rig = rig_of_variant(name)
    committed = prompt_of(20, 1)
    features, weights = features_of(rig, committed[:-1]), with_shared(rig.draft_weights, rig.target_weights)
    plain: DraftConfig = replace(rig.draft, **DROPPED[name])  # type: ignore[arg-type]
    right = draft_forward(weights, rig.draft, committed[1:], features)[1]
    wrong = draft_forward(weights, plain, committed[1:], features)[1]
    assert (right - wrong).abs().max() > 0.01


@pytest.mark.parametrize(("name", "tensor"), [("biases", "bias"), ("query and key norms", "_norm.weight")])
def test_biases_and_norms_of_heads_count(name: str, tensor: str) -> None:
    rig = rig_of_variant(name)
    committed = prompt_of(20, 1)
    features, weights = features_of(rig, committed[:-1]), with_shared(rig.draft_weights, rig.target_weights)
    added = [key for key in weights if key.endswith(tensor) and (tensor == "bias" or "self_attn" in key)]
    right = draft_forward(weights, rig.draft, committed[1:], features)[1]
    for key in added:
        without = {other: value for other, value in weights.items() if other != key}
        if tensor != "bias":
            without[key] = torch.ones_like(weights[key])
        wrong = draft_forward(without, rig.draft, committed[1:], features)[1]
        assert (right - wrong).abs().max() > 0.001, key
    assert len(added) == {"biases": 8, "query and key norms": 2}[name]


def test_a_draft_on_the_final_state_takes_it_normed_and_as_it_is() -> None:
    """A8: its features are what the target's head reads."""
    rig = rig_of_variant("final state")
    tokens = prompt_of(6)
    graph, bucket = rig.graphs().prefill("target_prefill", 6, 6)
    inputs = pad_rows([Running(Request("a", (0,)), 0, [], BLOCKS)], [list(tokens)], [0], bucket, 4)
    inputs["last_index"] = torch.tensor([5], dtype=torch.int32)
    next_token, features = graph(inputs)
    head = rig.target_weights.get("lm_head.weight", rig.target_weights["model.embed_tokens.weight"])
    assert int((features[5] @ head.T).argmax()) == int(next_token) == rig.plain(tokens, 1)[0]
    assert draft_state(rig.draft_weights, rig.draft, features) is features


def test_the_target_s_vocabulary_needs_no_map_in_the_graph() -> None:
    """B6: one gather less."""
    for name, mapped in (("full vocabulary", False), ("specforge", True)):
        rig = rig_of_variant(name)
        unit = next(unit for unit in rig.table.units if unit.kind == "draft_recurrent")
        assert unit.arguments.get("mapped", True) is mapped
        module = rig.backend.module(unit.name, "draft")
        assert ("target_ids.weight" in dict(module.named_parameters())) is mapped


def test_a_head_that_is_shared_is_the_target_s_rows() -> None:
    rig = rig_of_variant("no head of its own")
    unit = next(unit for unit in rig.table.units if unit.kind == "draft_recurrent")
    ids = torch.arange(16) + rig.draft_weights["d2t"]
    head = rig.target_weights.get("lm_head.weight", rig.target_weights["model.embed_tokens.weight"])
    assert torch.equal(rig.backend.module(unit.name, "draft").get_parameter("lm_head.weight"), head[ids])


def test_further_layers_have_pools_of_their_own_behind_the_target_s() -> None:
    """D8, M5: the draft's KV is its layers' share of one block pool, and the manifest says so by group of layers."""
    rig = rig_of_variant("two layers")
    draft = next(graph for graph in rig.table.graphs if graph.kind == "draft_recurrent")
    assert draft.calls[0].inputs[-4:] == ("kv.8.k", "kv.8.v", "kv.9.k", "kv.9.v")
    pools = rig.graphs().pools
    assert set(pools) == {f"kv.{layer}.{half}" for layer in range(10) for half in "kv"}
    groups = [(group.role, group.first_layer, group.layers) for group in rig.manifest.kv_cache.groups]
    assert groups == [("target", 0, 8), ("draft", 8, 2)]


def test_a_row_sees_its_window_and_nothing_before_it() -> None:
    """E10: of fourteen rows the last sees five, 9 to 13."""
    rig = rig_of_variant("sliding window")
    committed = prompt_of(15, 1)
    graph, bucket = rig.graphs().prefill("draft_initial_prefill", 14, 14)
    true = features_of(rig, committed[:-1])

    def last_state(changed: int | None) -> Tensor:
        inputs = pad_rows([Running(Request("a", (0,)), 0, [], BLOCKS)], [committed[1:]], [0], bucket, 4)
        inputs["features"] = torch.cat([true, torch.zeros(bucket.rows_each - 14, 96)])
        if changed is not None:
            inputs["features"][changed] += 1.0
        inputs["last_index"] = torch.tensor([13], dtype=torch.int32)
        return graph(inputs)[1]

    states = [last_state(row) for row in range(14)]
    seen = [row for row, state in enumerate(states) if not torch.equal(state, last_state(None))]
    assert seen == [9, 10, 11, 12, 13]


@pytest.mark.parametrize("name", ["two layers", "final state", "sliding window in the second layer"])
def test_every_unit_can_be_exported(name: str) -> None:
    """With context and pools of any size, further layers' pools among them."""
    from aot.graphs.modules import export, fill_random, module

    for unit in rig_of_variant(name).table.units:
        if unit.kind in ("draft_initial", "draft_recurrent", "target_final_features") and "x4" not in unit.name:
            made = module(unit)
            fill_random(made)
            with torch.no_grad():
                program = export(unit, made)
            assert len(program.graph_signature.user_inputs) == len(unit.inputs)
