"""The graph table: which graphs a geometry needs, each a straight line of calls over units.

One graph per kind and bucket. On a backend whose units take any context width (see `aot.graphs.units`) the graphs of
several context buckets call the same units, so more context buckets cost no compile time.
"""

from __future__ import annotations

from dataclasses import dataclass

from aot.graphs.geometry import Geometry
from aot.graphs.units import RANK, UnitFactory, UnitSpec
from runtime.bundle.manifest import Call, Graph, GraphKind, TensorSpec

PAGING = ("positions", "slot_mapping", "block_table")


@dataclass(frozen=True)
class GraphTable:
    """All graphs of a build, and the distinct units behind them in first-use order."""

    graphs: tuple[Graph, ...]
    units: tuple[UnitSpec, ...]


def graph_table(geometry: Geometry) -> GraphTable:
    """The graphs of `geometry` (the table in docs/design.md)."""
    builder = _Builder(geometry)
    buckets = geometry.buckets
    for context in buckets.context_tokens:
        for tokens in buckets.prefill_within(context):
            builder.target("target_prefill", 1, tokens, context)
            if geometry.draft_fused:
                builder.draft_fused_prefill(tokens, context)
            else:
                builder.draft_initial("draft_initial_prefill", 1, tokens, context)
        for requests in buckets.num_seqs:
            for drafts in geometry.drafts_in(requests):
                builder.target("target_verify", requests, 1 + drafts, context)
            if not geometry.exact_greedy:
                builder.target("target_decode", requests, 1, context)
            if geometry.draft_fused:
                builder.draft_fused(requests, context)
                continue
            for drafts in geometry.drafts_in(requests):
                builder.draft_initial("draft_initial", requests, 1 + drafts, context)
            if geometry.num_speculative_tokens > 1:
                builder.draft_recurrent(requests, context)
    return GraphTable(tuple(builder.graphs), tuple(builder.units.values()))


class _Builder:
    def __init__(self, geometry: Geometry) -> None:
        self.g = geometry
        self.factory = UnitFactory(geometry)
        self.graphs: list[Graph] = []
        self.units: dict[str, UnitSpec] = {}
        self.rank = (RANK,) if geometry.ranks > 1 else ()

    def _use(self, unit: UnitSpec) -> UnitSpec:
        return self.units.setdefault(unit.name, unit)

    def _add(
        self,
        name: str,
        kind: GraphKind,
        requests: int,
        rows: int,
        context: int,
        steps: list[tuple[UnitSpec, Call]],
    ) -> None:
        """Add a graph whose inputs are the values that no call makes and that the backend does not hold.

        The backend holds the KV pools and the rank.
        """
        inputs: dict[str, TensorSpec] = {}
        made: dict[str, TensorSpec] = {}
        for unit, call in steps:
            for value, spec in zip(call.inputs, unit.inputs, strict=True):
                if value not in made and value != RANK and not value.startswith("kv."):
                    inputs.setdefault(value, TensorSpec(value, spec.dtype, spec.shape))
            for value, spec in zip(call.outputs, unit.outputs, strict=True):
                made[value] = TensorSpec(value, spec.dtype, spec.shape)
        last = steps[-1][1]
        self.graphs.append(
            Graph(
                name=name,
                kind=kind,
                requests=requests,
                rows=rows,
                context=context,
                inputs=tuple(inputs.values()),
                outputs=tuple(made[value] for value in last.outputs),
                calls=tuple(call for _, call in steps),
            )
        )

    def target(self, kind: GraphKind, requests: int, per_request: int, context: int) -> None:
        g, rows = self.g, requests * per_request
        embed = self._use(self.factory.embed(rows))
        steps = [(embed, Call(embed.name, "target.embed", (*self.rank, "tokens", "positions"), ("hidden.0", "angles")))]
        for i in range(g.target.num_layers):
            layer = self._use(self.factory.layer(requests, per_request, i))
            values = (f"hidden.{i}", "angles", *PAGING, f"kv.{i}.k", f"kv.{i}.v")
            steps.append((layer, Call(layer.name, f"target.layers.{i}", values, (f"hidden.{i + 1}",))))
        last = f"hidden.{g.target.num_layers}"
        taps = tuple(f"hidden.{position}" for position in g.draft.aux_layers)
        if g.draft.features == "final":
            norm = self._use(self.factory.final_features(rows))
            steps.append((norm, Call(norm.name, "target.head", (last,), ("final",))))
            taps = ("final",)
        if kind == "target_prefill":
            head, bucket = self._use(self.factory.prefill_head(rows)), f"t{rows}"
            extra: tuple[str, ...] = ("last_index",)
            asked = self.factory.asked(1, 1)
        else:
            head = self._use(self.factory.verify_head(requests, per_request))
            extra, bucket = ("tokens", "num_draft_tokens"), self._bucket(kind, requests, per_request)
            asked = self.factory.asked(requests, rows)
        extra += tuple(spec.name for spec in asked)
        outputs = tuple(spec.name for spec in head.outputs)
        steps.append((head, Call(head.name, "target.head", (*self.rank, last, *extra, *taps), outputs)))
        self._add(f"{kind}.{bucket}.c{context}", kind, requests, rows, context, steps)

    def _bucket(self, kind: GraphKind, requests: int, per_request: int) -> str:
        """The middle of a graph's name: "r4", and with fewer drafts than K, "r4.k1"."""
        fewer = kind != "target_decode" and per_request < self.g.verify_rows
        return f"r{requests}.k{per_request - 1}" if fewer else f"r{requests}"

    def _draft_pools(self) -> tuple[str, ...]:
        first = self.g.target.num_layers  # draft layers follow the target's under one block table
        return tuple(f"kv.{first + layer}.{half}" for layer in range(self.g.draft.num_layers) for half in "kv")

    def draft_initial(self, kind: GraphKind, requests: int, per_request: int, context: int) -> None:
        unit = self._use(self.factory.draft_initial(requests, per_request))
        values = (*self.rank, "tokens", *PAGING, "features", "last_index", *self._draft_pools())
        call = Call(unit.name, "draft", values, ("draft_token", "state"))
        prefill = kind == "draft_initial_prefill"
        bucket = f"t{per_request}" if prefill else self._bucket(kind, requests, per_request)
        name = f"draft_initial.{bucket}.c{context}"
        self._add(name, kind, requests, requests * per_request, context, [(unit, call)])

    def draft_recurrent(self, requests: int, context: int) -> None:
        unit = self._use(self.factory.draft_recurrent(requests))
        call = Call(
            unit.name,
            "draft",
            (*self.rank, "tokens", "state", *PAGING, *self._draft_pools()),
            ("draft_token", "next_state"),
        )
        name = f"draft_recurrent.r{requests}.c{context}"
        self._add(name, "draft_recurrent", requests, requests, context, [(unit, call)])

    def draft_fused_prefill(self, rows: int, context: int) -> None:
        unit = self._use(self.factory.draft_fused_prefill(rows))
        values = (
            *self.rank,
            "tokens",
            "next_token",
            "last_index",
            *PAGING,
            "features",
            "length_limits",
            *self._draft_pools(),
        )
        call = Call(unit.name, "draft", values, ("step_tokens",))
        self._add(f"draft_fused.t{rows}.c{context}", "draft_fused_prefill", 1, rows, context, [(unit, call)])

    def draft_fused(self, requests: int, context: int) -> None:
        unit = self._use(self.factory.draft_fused(requests))
        values = (*self.rank, "accepted", *PAGING, "features", "length_limits", *self._draft_pools())
        call = Call(unit.name, "draft", values, ("step_tokens",))
        rows = requests * self.g.verify_rows
        self._add(f"draft_fused.r{requests}.c{context}", "draft_fused", requests, rows, context, [(unit, call)])
