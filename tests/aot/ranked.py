"""A toy pair shared by several ranks, run by the real loop in threads that exchange tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

import torch
from torch import Tensor

from aot.build.scopes import Scope, scopes
from aot.build.sharding import shard_scope
from aot.checkpoint.draft import draft_config_from_json
from aot.checkpoint.random_weights import random_draft_weights, random_target_weights
from aot.checkpoint.target import target_config_from_json
from aot.graphs.geometry import over_ranks
from aot.graphs.table import graph_table
from aot.graphs.units import UnitSpec
from aot.models.parallel import Ranks
from aot.verify.eager import EagerBackend, eager_bundle
from runtime.bundle.manifest import KVCache
from tests.runtime.loop.rig import Rig, Shape, attentive, rig_of_pair

Made = TypeVar("Made")


class RankBackend(EagerBackend):
    """The eager backend of one rank."""

    def __init__(self, specs: Mapping[str, UnitSpec], weights: Mapping[str, Scope], rank: int) -> None:
        super().__init__(specs, weights)
        self.rank = rank

    def pools(self, cache: KVCache, num_blocks: int) -> Mapping[str, Tensor]:
        return {**super().pools(cache, num_blocks), "rank": torch.tensor([self.rank], dtype=torch.int32)}


def shared(rig: Rig, ranks: int, fill: float = 0.0) -> list[Rig]:
    """`rig` as each of `ranks` ranks sees it, with `fill` in the heads' rows that stand for no token."""
    geometry = over_ranks(rig.geometry, ranks)
    table = graph_table(geometry)
    specs = {unit.name: unit for unit in table.units}
    held = dict(scopes(geometry, rig.target_weights, rig.draft_weights))
    held["target.head"]["lm_head.weight"][geometry.target.vocab_size :] = fill
    held["draft"]["lm_head.weight"][geometry.draft.draft_vocab_size :] = fill
    plain = eager_bundle(geometry, table).manifest
    manifest = replace(plain, target=rig.manifest.target, exactness=rig.manifest.exactness)
    return [
        replace(
            rig,
            geometry=geometry,
            table=table,
            manifest=manifest,
            backend=RankBackend(
                specs, {name: shard_scope(name, scope, rank, geometry) for name, scope in held.items()}, rank
            ),
        )
        for rank in range(ranks)
    ]


def on_every_rank(rigs: list[Rig], work: Callable[[Rig], Made]) -> list[Made]:
    """`work` with each rank's rig, all at the same time."""

    def one(rank: int) -> Made:
        return work(rigs[rank])

    return Ranks(len(rigs)).run(one)


@lru_cache(maxsize=4)
def odd_rig(tied: bool = False, greedy_only: bool = False, sampled: bool = False, exact_greedy: bool = True) -> Rig:
    """Eight query heads on four KV heads (the draft: two); vocabularies of 61 and 13 and MLPs of 50 and 45 channels.

    So with 2, 4 and 8 ranks there are more KV heads than ranks, as many, and fewer, and hardly a size can be divided.
    """
    target = target_config_from_json(
        {
            "model_type": "llama",
            "hidden_size": 32,
            "intermediate_size": 50,
            "num_hidden_layers": 4,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 4,
            "vocab_size": 61,
            "tie_word_embeddings": tied,
        }
    )
    draft = draft_config_from_json(
        {
            "hidden_size": 36,
            "intermediate_size": 45,
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
            "head_dim": 6,
            "draft_vocab_size": 13,
        },
        target,
        aux_layers=(1, 2, 3),
    )
    weights = attentive(random_target_weights(target, 1, torch.float32))
    drafting = attentive(random_draft_weights(draft, 2, torch.float32))
    shape = Shape(layers=4, greedy_only=greedy_only, sampled=sampled, exact_greedy=exact_greedy)
    return rig_of_pair(target, weights, draft, drafting, shape)
