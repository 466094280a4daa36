"""Models shared by ranks are the whole models: tokens, features, states, KV and whole texts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import aot.models.layers
from aot.graphs.modules import export, fill_random, module
from runtime.batch import pad_rows
from runtime.bundle.manifest import GraphKind
from runtime.graphs import GraphSet
from runtime.request import Request
from runtime.sampling.params import GREEDY, SamplingParams
from tests.aot.models.test_target_model import FIRST, SECOND, decode, prefill
from tests.aot.ranked import odd_rig, on_every_rank, shared
from tests.aot.toy_drafts import rig_of_variant
from tests.runtime.loop.rig import Rig, Watch, prompt_of

PROMPT, OTHER = tuple(t % 61 for t in prompt_of(9, 1)), tuple(t % 61 for t in prompt_of(12, 2))
every_size = pytest.mark.parametrize("ranks", [2, 4, 8])


def target_passes(rig: Rig) -> tuple[list[Tensor], GraphSet]:
    """Two prompts and a verify pass of both: tokens, features and logits of each, and the pools they left."""
    graphs = rig.graphs()
    made = [*prefill(graphs, FIRST, PROMPT), *prefill(graphs, SECOND, OTHER)]
    made += decode(graphs, "target_verify", [FIRST, SECOND], [[7, 50, 21, 3], [60, 0, 1]], [9, 12])
    return made, graphs


def draft_passes(rig: Rig) -> tuple[list[Tensor], GraphSet]:
    """A prompt, a verify pass and two recurrent passes of the draft: tokens and states."""
    graphs, made = rig.graphs(), []
    width = rig.draft.num_aux * rig.draft.target_hidden_size
    features = torch.randn(20, width, generator=torch.Generator().manual_seed(3))
    kinds: list[tuple[GraphKind, list[int], int]] = [
        ("draft_initial_prefill", list(PROMPT), 0),
        ("draft_initial", [7, 50, 21, 3], 9),
    ]
    for kind, tokens, start in kinds:
        if kind == "draft_initial":
            graph, bucket = graphs.decode(kind, 1, start + 4)
        else:
            graph, bucket = graphs.prefill(kind, len(tokens), len(tokens))
        inputs = pad_rows([FIRST], [tokens], [start], bucket, 4)
        inputs["features"] = features[: bucket.rows_each]
        inputs["last_index"] = torch.tensor([len(tokens) - 1], dtype=torch.int32)
        made += graph(inputs)
    for step in range(2):
        graph, bucket = graphs.decode("draft_recurrent", 1, 14 + step)
        inputs = pad_rows([FIRST], [made[-2].tolist()], [13 + step], bucket, 4)
        inputs["state"] = made[-1]
        made += graph(inputs)
    return made, graphs


def close(made: Tensor, want: Tensor, tolerance: float = 1e-5) -> None:
    """Within `tolerance` of the largest number: sums over ranks are added in another order."""
    torch.testing.assert_close(made, want, atol=tolerance * max(1.0, float(want.abs().max())), rtol=0.0)


def compare(ours: list[Tensor], right: list[Tensor]) -> None:
    assert len(ours) == len(right)
    for made, want in zip(ours, right, strict=True):
        assert (made.dtype, made.shape) == (want.dtype, want.shape)
        if made.dtype == torch.int32:
            assert made.tolist() == want.tolist()
        else:
            close(made, want)


def compare_kv(rig: Rig, whole: GraphSet, parts: list[GraphSet]) -> None:
    """Each rank's pools are the whole pools' heads that its queries read; together they are all of them."""
    ranks = len(parts)
    for group in rig.manifest.kv_cache.groups:
        count = max(1, group.kv_heads // ranks)
        for layer in range(group.first_layer, group.first_layer + group.layers):
            for half in "kv":
                name = f"kv.{layer}.{half}"
                for rank, graphs in enumerate(parts):
                    first = rank * group.kv_heads // ranks
                    assert graphs.pools[name].shape[2] == count
                    # Block 0 is where padding rows write in turn
                    close(graphs.pools[name][1:], whole.pools[name][1:, :, first : first + count])


@every_size
@pytest.mark.parametrize("tied", [False, True])
def test_the_target_gives_the_whole_target_s_tokens_features_logits_and_kv(ranks: int, tied: bool) -> None:
    rig = odd_rig(tied)
    right, whole = target_passes(rig)
    found = on_every_rank(shared(rig, ranks), target_passes)
    for made, _ in found:
        compare(made, right)
    compare_kv(rig, whole, [graphs for _, graphs in found])
    assert any(pool.any() for name, pool in whole.pools.items())


@every_size
def test_the_draft_gives_the_whole_draft_s_tokens_states_and_kv(ranks: int) -> None:
    """M3: the draft's own layers are summed over the ranks too."""
    rig = odd_rig()
    right, whole = draft_passes(rig)
    found = on_every_rank(shared(rig, ranks), draft_passes)
    for made, _ in found:
        compare(made, right)
    compare_kv(rig, whole, [graphs for _, graphs in found])


VARIANTS = [
    "biases",
    "final state",
    "full vocabulary",
    "joined norm",
    "logit scale",
    "no head of its own",
    "norm before residual",
    "norm of each state",
    "norm output",
    "other width",
    "query and key norms",
    "sliding window in the second layer",
    "targets embedding by override",
    "three layers of which the config names one",
]


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("ranks", [2, 4])
def test_every_variant_of_a_draft_gives_what_it_gives_whole(name: str, ranks: int) -> None:
    rig = rig_of_variant(name)
    right, _ = draft_passes(rig)
    for made, _ in on_every_rank(shared(rig, ranks), draft_passes):
        compare(made, right)


def test_auxiliary_states_are_whole_and_the_same_on_every_rank() -> None:
    """M1, M2: features are taken from the summed stream, all rows of it on each rank, before `fc` reads them."""
    right, _ = target_passes(odd_rig())
    found = [made for made, _ in on_every_rank(shared(odd_rig(), 2), target_passes)]
    for index in (1, 4, 7):
        assert torch.equal(found[0][index], found[1][index])
        close(found[0][index], right[index], 1e-6)


@pytest.mark.parametrize(("passes", "index"), [(target_passes, 1), (draft_passes, 1)])
def test_partial_sums_would_be_seen(
    monkeypatch: pytest.MonkeyPatch, passes: Callable[[Rig], tuple[list[Tensor], GraphSet]], index: int
) -> None:
    """M1, M3: without the sum behind o_proj and down_proj, features and states are far off."""
    right, _ = passes(odd_rig())
    rigs = shared(odd_rig(), 2)
    monkeypatch.setattr(aot.models.layers, "all_reduce", lambda part, ranks: part)
    for made, _ in on_every_rank(rigs, passes):
        assert (made[index] - right[index]).abs().max() > 0.1


@every_size
@pytest.mark.parametrize("fill", [1e4, torch.nan])
@pytest.mark.parametrize("passes", [target_passes, draft_passes])
def test_the_last_ranks_never_choose_their_padding(
    ranks: int, fill: float, passes: Callable[[Rig], tuple[list[Tensor], GraphSet]]
) -> None:
    """M7, H1: whatever stands in the rows behind the vocabulary, on whichever ranks they are."""
    right, _ = passes(odd_rig())
    for made, _ in on_every_rank(shared(odd_rig(), ranks, fill), passes):
        compare(made, right)


@every_size
def test_the_text_and_every_proposal_are_the_whole_pair_s(ranks: int) -> None:
    """The whole loop on every rank at once, as it would be with one bundle on several devices."""

    def text(rig: Rig) -> tuple[list[int], list[list[int]]]:
        watch = Watch()
        (output,) = rig.generate(Request("a", OTHER, max_tokens=16), proposer=watch.over())
        return list(output.token_ids), [proposed for _, _, proposed in watch.proposed]

    right = text(odd_rig(greedy_only=True))
    assert len(right[1]) > 2
    assert on_every_rank(shared(odd_rig(greedy_only=True), ranks), text) == [right] * ranks


@every_size
def test_drawn_text_is_one_device_s(ranks: int) -> None:
    """Each rank gathers the logits and draws the same token; padded rows of the vocabulary are never drawn."""

    def text(rig: Rig) -> list[tuple[int, ...]]:
        asked = (SamplingParams(temperature=1.5, seed=5), GREEDY, SamplingParams(temperature=1.0, top_p=0.9, seed=6))
        batch = [Request(str(i), OTHER[i:], max_tokens=8, sampling=params) for i, params in enumerate(asked)]
        return [output.token_ids for output in rig.generate(*batch)]

    right = text(odd_rig(sampled=True))
    assert right == text(odd_rig())  # whose graphs return logits, for the host to draw
    # Logits of padded rows would be the best by far if they counted
    assert on_every_rank(shared(odd_rig(sampled=True), ranks, fill=100.0), text) == [right] * ranks


@every_size
def test_every_unit_can_be_exported_and_adds_no_integers(ranks: int) -> None:
    """Nor does it scatter sums, nor know which rank it is but by its input."""
    sampled = [unit for unit in shared(odd_rig(sampled=True), ranks)[0].table.units if unit.kind.endswith("_head")]
    for spec in (*shared(odd_rig(), ranks)[0].table.units, *sampled):
        unit = module(spec)
        fill_random(unit)
        with torch.no_grad():
            program = export(spec, unit)
        placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
        inputs = placeholders[len(placeholders) - len(spec.inputs) :]
        for node, value in zip(inputs, spec.inputs, strict=True):
            assert node.name == value.name or node.name.startswith("further")
            assert str(node.meta["val"].dtype) == f"torch.{value.dtype}"
            assert len(node.meta["val"].shape) == len(value.shape)
        called = [node for node in program.graph.nodes if node.op == "call_function"]
        reduced = [node for node in called if "all_reduce" in str(node.target)]
        assert all(node.meta["val"].is_floating_point() for node in reduced)
        assert not any("scatter" in str(node.target) or "index_add" in str(node.target) for node in called)
        takes_rank = spec.kind not in ("target_layer", "target_final_features")
        assert (spec.inputs[0].name == "rank") is takes_rank
        assert bool(inputs[0].users)
