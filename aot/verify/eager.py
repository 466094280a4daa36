"""A graph in eager PyTorch: the same calls and weights, the modules instead of compiled units.

`EagerBackend` stands beside compiled units to check them; with `eager_bundle` it runs the whole loop without any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from aot.build.scopes import Scope
from aot.graphs.geometry import Geometry
from aot.graphs.modules import module
from aot.graphs.table import GraphTable
from aot.graphs.units import UnitSpec
from runtime.backends import Run
from runtime.bundle.manifest import (
    FORMAT_VERSION,
    Exactness,
    KVCache,
    Limits,
    Manifest,
    Model,
    Requires,
    Speculation,
    Unit,
)
from runtime.bundle.open import ROW_CONVENTION, Bundle
from runtime.pools import allocate_pools


class EagerBackend:
    """Implements `runtime.backends.Backend` with the modules of `aot.models`."""

    def __init__(self, specs: Mapping[str, UnitSpec], weights: Mapping[str, Scope]) -> None:
        self._specs, self._weights = specs, weights
        self._opened: dict[tuple[str, str], nn.Module] = {}

    def open(self, unit: Unit, scope: str) -> Run:
        eager = self.module(unit.name, scope)

        def run(inputs: Sequence[Tensor]) -> list[Tensor]:
            with torch.no_grad():
                made = eager(*inputs)
            return list(made) if isinstance(made, tuple) else [made]

        return run

    def pools(self, cache: KVCache, num_blocks: int) -> Mapping[str, Tensor]:
        return allocate_pools(cache, num_blocks)

    def module(self, unit: str, scope: str) -> nn.Module:
        """The module behind a unit with the weights of `scope`, shared and not copied."""
        key = (unit, scope)
        if key not in self._opened:
            with torch.device("meta"):
                eager = module(self._specs[unit])
            own = {name: self._weights[scope][name] for name, _ in eager.named_parameters()}
            eager.load_state_dict(own, strict=True, assign=True)
            self._opened[key] = eager.requires_grad_(False)
        return self._opened[key]


def eager_bundle(sizes: Geometry, table: GraphTable) -> Bundle:
    """A bundle that lies nowhere: `table`'s graphs with units that only an `EagerBackend` can open."""
    t, d = sizes.target, sizes.draft
    manifest = Manifest(
        format_version=FORMAT_VERSION,
        bundle_id="",
        name="eager",
        state="ready",
        builder="",
        dtype=sizes.dtype,
        target=Model("", "", t.vocab_size, t.hidden_size, t.eos_token_ids, t.to_json()),
        draft=Model("", "", d.vocab_size, d.hidden_size, (), d.to_json()),
        speculation=Speculation(
            "eagle3",
            sizes.num_speculative_tokens,
            d.aux_layers,
            ROW_CONVENTION,
            () if sizes.schedule is None else sizes.schedule.ranges,
        ),
        limits=Limits(sizes.max_model_len, sizes.max_num_seqs),
        buckets=sizes.buckets,
        kv_cache=KVCache(sizes.block_size, sizes.num_blocks, sizes.kv_groups()),
        exactness=Exactness("exact", (), 0),
        requires=Requires("eager", "cpu", "", "", (), "", False),
        toolchain={},
        units=tuple(Unit(unit.name, "", "", (), unit.inputs, unit.outputs) for unit in table.units),
        graphs=table.graphs,
        weights={},
        files={},
    )
    return Bundle(Path("nowhere"), manifest)
