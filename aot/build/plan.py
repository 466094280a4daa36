"""The plan: every unit of a build, its cache key, hit or miss, and why a miss misses. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aot.backends.protocol import BuildBackend, Spec
from aot.cache import Cache, key_of
from aot.checkpoint.draft import DraftConfig
from aot.checkpoint.source import ModelSource
from aot.checkpoint.target import TargetConfig
from aot.config import BuildConfig
from aot.graphs.geometry import Geometry, geometry
from aot.graphs.table import GraphTable, graph_table


@dataclass(frozen=True)
class PlannedUnit:
    """A unit with its key. `reason` is "" on a hit."""

    spec: Spec
    key: str
    factors: Mapping[str, str]
    hit: bool
    reason: str


@dataclass(frozen=True)
class Models:
    """Both models: where they come from and what they are.

    Without sources, weights are random ones over given configs, or with `without_weights` there are none: the bundle
    holds graphs alone, and `notes` says why.
    """

    target_source: ModelSource | None
    draft_source: ModelSource | None
    target: TargetConfig
    draft: DraftConfig
    without_weights: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """What a build will do."""

    config: BuildConfig
    config_folder: Path
    models: Models
    geometry: Geometry
    table: GraphTable
    units: tuple[PlannedUnit, ...]

    @property
    def misses(self) -> tuple[PlannedUnit, ...]:
        return tuple(unit for unit in self.units if not unit.hit)


def make_plan(config: BuildConfig, folder: Path, models: Models, backend: BuildBackend, cache: Cache) -> Plan:
    """Plan the build of `config`, whose file lies in `folder`."""
    sizes = geometry(config, models.target, models.draft)
    table = graph_table(sizes)
    planned = []
    for spec in backend.units(sizes, table):
        factors = backend.factors(spec)
        key = key_of(factors)
        hit = cache.has(key)
        planned.append(PlannedUnit(spec, key, factors, hit, "" if hit else cache.explain_miss(factors)))
    return Plan(config, folder, models, sizes, table, tuple(planned))


def weight_bytes(models: Models, dtype: str) -> int:
    """An estimate of the bytes of both models' weights in `dtype`, packing aside."""
    t, d, size = models.target, models.draft, 4 if dtype == "float32" else 2
    attention = t.hidden_size * t.head_dim * (2 * t.num_heads + 2 * t.num_kv_heads)
    layer = attention + 3 * t.hidden_size * t.intermediate_size
    # The embedding is read by row and the head as a packed product, so a tied model still stores both
    target = t.num_layers * layer + 2 * t.vocab_size * t.hidden_size
    draft = d.hidden_size * (d.num_aux * d.target_hidden_size if d.features == "auxiliary" else 0)
    # The first layer's queries, keys and values read twice the width
    draft += d.hidden_size * d.head_dim * (d.num_heads + 2 * d.num_kv_heads)
    draft += d.num_layers * d.hidden_size * d.head_dim * (2 * d.num_heads + 2 * d.num_kv_heads)
    draft += d.num_layers * 3 * d.hidden_size * d.intermediate_size + d.draft_vocab_size * d.hidden_size
    draft += d.vocab_size * d.hidden_size if d.own_embedding else 0
    return size * (target + draft)


def kv_bytes(sizes: Geometry) -> int:
    """Bytes of the whole KV pool, target and draft layers, on all ranks together."""
    element = 4 if sizes.dtype == "float32" else 2
    per_token = sum(2 * group.layers * group.kv_heads * group.head_dim for group in sizes.kv_groups())
    return sizes.ranks * per_token * sizes.num_blocks * sizes.block_size * element
