"""Loading: which graphs an engine opens, the pools it allocates, and the weights it maps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from runtime.bundle.errors import HostError, IntegrityError
from runtime.bundle.manifest import Constant, WeightRef
from runtime.bundle.open import Bundle
from runtime.engine import Engine
from runtime.pools import allocate_pools
from runtime.proposer import EagleProposer, NoProposer
from runtime.request import Request
from runtime.weights import Weights, dtype_of
from tests.runtime.loop.rig import Shape, make_rig, oracle, prompt_of

TARGET, DRAFT = {"target_prefill", "target_verify"}, {"draft_initial_prefill", "draft_initial", "draft_recurrent"}


def load(patch: pytest.MonkeyPatch, shape: Shape, **options: object) -> Engine:
    """`Engine.load` of a toy bundle, with eager PyTorch where the bundle's backend would be."""
    rig = make_rig(shape)
    patch.setattr("runtime.graphs.backend_for", lambda bundle, weights, device=None: rig.backend)
    return Engine.load(rig.bundle, **options)  # type: ignore[arg-type]


def opened(engine: Engine) -> set[str]:
    return {kind for kind, *_ in engine.graphs.loaded}


def test_speculation_opens_the_drafts_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = load(monkeypatch, Shape())
    assert opened(engine) == TARGET | DRAFT
    assert isinstance(engine.proposer, EagleProposer)
    (output,) = engine.generate([Request("a", prompt_of(7), max_tokens=12)])
    assert list(output.token_ids) == make_rig(Shape()).plain(prompt_of(7), 12)
    assert output.spec_decode.num_drafts > 0


def test_plain_decoding_opens_the_targets_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = load(monkeypatch, Shape(), speculation=False)
    assert opened(engine) == TARGET
    assert isinstance(engine.proposer, NoProposer)
    (output,) = engine.generate([Request("a", prompt_of(7), max_tokens=12)])
    assert list(output.token_ids) == make_rig(Shape()).plain(prompt_of(7), 12)
    assert output.spec_decode.num_drafts == 0


def test_a_proposer_of_the_callers_own_needs_no_draft_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    text = [*prompt_of(7), *make_rig(Shape()).plain(prompt_of(7), 16)]
    engine = load(monkeypatch, Shape(), proposer=lambda graphs: oracle({"a": text}, (3,)))
    assert opened(engine) == TARGET
    (output,) = engine.generate([Request("a", prompt_of(7), max_tokens=9)])
    assert (list(output.token_ids), output.spec_decode.num_accepted_tokens) == (text[7:16], 6)


def test_one_draft_token_needs_no_recurrent_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    assert opened(load(monkeypatch, Shape(k=1))) == TARGET | DRAFT - {"draft_recurrent"}


@pytest.mark.parametrize("speculation", [True, False])
def test_near_tie_opens_target_decode(speculation: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = load(monkeypatch, Shape(exact_greedy=False), speculation=speculation)
    assert opened(engine) - DRAFT == {*TARGET, "target_decode"}


def test_the_pool_is_as_large_as_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """L12 (vllm#34671): the manifest's size, or the caller's, for blocks and pools alike."""
    assert load(monkeypatch, Shape()).blocks.num_blocks == 65
    engine = load(monkeypatch, Shape(), kv_blocks=11)
    assert engine.blocks.num_blocks == 11
    assert {pool.shape[0] for pool in engine.graphs.pools.values()} == {11}


# Pools


def test_each_layer_has_a_pool_of_keys_and_one_of_values() -> None:
    """K6 (LMCache#1153): the draft's layer is one of them, with heads of its own size."""
    rig = make_rig(Shape(draft_head_dim=16))
    pools = allocate_pools(rig.manifest.kv_cache, 5)
    assert list(pools) == [f"kv.{layer}.{half}" for layer in range(9) for half in "kv"]
    assert {name: tuple(pool.shape) for name, pool in pools.items() if name.startswith("kv.8")} == {
        "kv.8.k": (5, 4, 2, 16),
        "kv.8.v": (5, 4, 2, 16),
    }
    assert pools["kv.0.k"].shape == (5, 4, 2, 8)
    assert not any(pool.any() for pool in pools.values())


def test_a_pool_that_memory_cannot_hold_is_refused() -> None:
    with pytest.raises(HostError) as caught:
        allocate_pools(make_rig().manifest.kv_cache, 2**50)
    error = caught.value
    assert error.what == "There is not enough memory for the KV pool"
    assert error.expected == f"{2**50} blocks of 4 tokens"
    assert "smaller kv_blocks" in error.repair
    assert "\n" not in error.sentence()
    assert error.exit_code == 4


# Weights


@pytest.fixture
def stored(tmp_path: Path) -> Bundle:
    """A bundle of three weights: `b` lies where `a` lies, and `gone` names a tensor that its file lacks."""
    (tmp_path / "weights").mkdir()
    table = torch.arange(12, dtype=torch.float32).view(3, 4)
    save_file({"x": table, "y": table.bfloat16()}, tmp_path / "weights/w.safetensors")
    where = {
        "target.embed.weight": {"plain": WeightRef("weights/w.safetensors", "x", "")},
        "draft.embed.weight": {
            "plain": WeightRef("weights/w.safetensors", "x", ""),
            "packed": WeightRef("weights/w.safetensors", "y", ""),
        },
        "draft.gone": {"plain": WeightRef("weights/w.safetensors", "z", "")},
    }
    return Bundle(tmp_path, replace(make_rig().manifest, weights=where))


def test_weights_are_bound_by_scope_name_and_layout(stored: Bundle) -> None:
    weights = Weights(stored)
    plain = Constant("c0", "embed.weight", "plain", "float32", (3, 4))
    packed = Constant("c1", "embed.weight", "packed", "bfloat16", (3, 4))
    bound = weights.bind("draft", (plain, packed))
    assert bound["c0"].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert {name: tensor.dtype for name, tensor in bound.items()} == {"c0": torch.float32, "c1": torch.bfloat16}
    assert weights.mapped_bytes == 12 * 4 + 12 * 2


def test_a_tensor_that_two_models_share_is_one_in_memory(stored: Bundle) -> None:
    """B10: the embedding of target and draft."""
    weights = Weights(stored)
    first, second = weights.get("target.embed.weight", "plain"), weights.get("draft.embed.weight", "plain")
    assert first.data_ptr() == second.data_ptr()
    assert weights.mapped_bytes == 12 * 4


@pytest.mark.parametrize(
    ("name", "layout", "what"),
    [
        ("draft.nowhere", "plain", "The manifest holds no weight draft.nowhere in layout plain"),
        ("target.embed.weight", "packed", "The manifest holds no weight target.embed.weight in layout packed"),
        ("draft.gone", "plain", "weights/w.safetensors holds no tensor z"),
    ],
)
def test_a_weight_that_is_not_there_is_named(name: str, layout: str, what: str, stored: Bundle) -> None:
    with pytest.raises(IntegrityError) as caught:
        Weights(stored).get(name, layout)
    assert caught.value.what == what


def test_dtypes_by_name() -> None:
    assert (dtype_of("bfloat16"), dtype_of("int32")) == (torch.bfloat16, torch.int32)
