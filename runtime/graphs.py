"""All graphs of a bundle, opened, and the choice of a bucket for a pass.

Every graph that the loop can ask for is opened here, so a missing one is an error when the bundle loads and not a stall
while a user waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NoReturn

from torch import Tensor

from runtime.backends import Backend, backend_for
from runtime.batch import Bucket
from runtime.bundle.errors import IntegrityError
from runtime.bundle.manifest import Graph, GraphKind
from runtime.bundle.open import Bundle
from runtime.graph import LoadedGraph
from runtime.weights import Weights

# A dynamic block table grows in steps of this many tokens, and of a quarter of its width once that is more. The widths
# are few, so that the builder can try every one: kernels may sum in another order at 1024 tokens than at 2048.
LEAST_WIDTH = 64

# Kind; rows of a prefill pass or requests of another; context; rows of each request
Key = tuple[GraphKind, int, int, int]


class GraphSet:
    """The opened graphs, by kind and bucket, and the pools they share."""

    def __init__(
        self,
        bundle: Bundle,
        kinds: Iterable[GraphKind],
        num_blocks: int | None = None,
        backend: Backend | None = None,
        device: str | None = None,
    ) -> None:
        self.manifest = bundle.manifest
        self.num_blocks = num_blocks or self.manifest.kv_cache.num_blocks
        self.weights = Weights(bundle)
        backend = backend or backend_for(bundle, self.weights, device)
        self._backend = backend
        self.pools: Mapping[str, Tensor] = backend.pools(self.manifest.kv_cache, self.num_blocks)
        units = {unit.name: unit for unit in self.manifest.units}
        self._graphs: dict[Key, LoadedGraph] = {}
        # How many rows each request can have in a pass of some kind and size, fewest first
        self._row_counts: dict[tuple[GraphKind, int], list[int]] = {}
        for spec in self.manifest.graphs:
            if spec.kind in kinds:
                size, rows = (spec.rows, spec.rows) if "prefill" in spec.kind else (spec.requests, rows_each(spec))
                self._graphs[spec.kind, size, spec.context, rows] = LoadedGraph(spec, units, backend, self.pools)
                counts = self._row_counts.setdefault((spec.kind, size), [])
                counts[:] = sorted({*counts, rows})
        self._require(kinds)
        block_size = self.manifest.kv_cache.block_size
        self._columns = {key: table_widths(graph.spec, block_size) for key, graph in self._graphs.items()}
        exact = self.manifest.exactness
        pinned = exact.lossless == "exact"
        self._pin_rows = pinned and "drafts" not in exact.bitwise_across
        self._pin_requests = pinned and "requests" not in exact.bitwise_across
        self._widths: tuple[int, ...] | None = None  # the only block-table widths, in tokens, of decoding; None: any
        if pinned and "context" not in exact.bitwise_across:
            self._widths = exact.context_widths or (self.manifest.buckets.context_tokens[-1],)

    def _require(self, kinds: Iterable[GraphKind]) -> None:
        buckets = self.manifest.buckets
        for kind in kinds:
            for context in buckets.context_tokens:
                for size in buckets.prefill_within(context) if "prefill" in kind else buckets.num_seqs:
                    for rows in self._rows_wanted(kind, size):
                        if (kind, size, context, rows) not in self._graphs:
                            self._refuse(kind, size, context, rows)

    def _rows_wanted(self, kind: GraphKind, size: int) -> list[int]:
        """How many rows a request may have in such a pass; the draft's graphs stand beside those of target_verify."""
        if "prefill" in kind:
            return [size]
        most = self._most_rows(kind)
        return [most] if most == 1 else sorted({*self._row_counts.get(("target_verify", size), []), most})

    def _refuse(self, kind: GraphKind, size: int, context: int, rows: int) -> NoReturn:
        fewer = "" if "prefill" in kind or rows == self._most_rows(kind) else f", {rows} rows each"
        raise IntegrityError(
            "The bundle lacks a graph",
            expected=f"{kind} for {size} and context {context}{fewer}",
            found="none in the manifest",
            repair="rebuild the bundle with eagle3-build",
        )

    def close(self) -> None:
        """Give a device's memory back; the graphs cannot run after it. Backends in host memory have nothing to do."""
        close = getattr(self._backend, "close", None)
        if close is not None:
            close()

    @property
    def loaded(self) -> Mapping[Key, LoadedGraph]:
        """Every opened graph by (kind, size, context, rows of each request)."""
        return self._graphs

    def seconds(self) -> dict[GraphKind, float]:
        """Time inside the compiled calls so far, by kind of graph; kinds that are not opened are absent."""
        spent: dict[GraphKind, float] = {}
        for (kind, *_), graph in self._graphs.items():
            spent[kind] = spent.get(kind, 0.0) + graph.seconds
        return spent

    def wrap(self, wrapper: Callable[[LoadedGraph], LoadedGraph]) -> None:
        """Replace every graph by `wrapper(graph)`: for observers, such as a test that looks at all inputs."""
        self._graphs = {key: wrapper(graph) for key, graph in self._graphs.items()}

    def prefill(self, kind: GraphKind, tokens: int, context: int) -> tuple[LoadedGraph, Bucket]:
        """The graph for one chunk of `tokens` rows whose last row sees `context` entries."""
        size = min(size for size in self.manifest.buckets.prefill_tokens if size >= tokens)
        return self._pick(kind, size, Bucket(1, size, 0), context, None)

    def decode(
        self, kind: GraphKind, requests: int, context: int, drafts: int | None = None
    ) -> tuple[LoadedGraph, Bucket]:
        """The graph for `requests` requests, the longest of which sees `context` entries.

        For the target's passes the bucket moves only along axes that keep every bit, see `Exactness`.

        Args:
            drafts: the most that any of them has; by default the bundle's K.
        """
        target = kind.startswith("target")
        sizes = self.manifest.buckets.num_seqs
        size = sizes[-1] if target and self._pin_requests else min(s for s in sizes if s >= requests)
        rows = self._most_rows(kind)
        if drafts is not None and not self._pin_rows:
            rows = min((count for count in self._row_counts[kind, size] if count > drafts), default=rows)
        return self._pick(kind, size, Bucket(size, rows, 0), context, self._widths if target else None)

    def beside(self, kind: GraphKind, bucket: Bucket, context: int) -> tuple[LoadedGraph, Bucket]:
        """The draft's graph for the same requests and rows as a target's pass that ran in `bucket`."""
        return self._pick(kind, bucket.requests, bucket, context, None)

    def _most_rows(self, kind: GraphKind) -> int:
        single = kind in ("draft_recurrent", "target_decode")
        return 1 if single else 1 + self.manifest.speculation.num_speculative_tokens

    def _pick(
        self, kind: GraphKind, size: int, bucket: Bucket, context: int, widths: tuple[int, ...] | None
    ) -> tuple[LoadedGraph, Bucket]:
        contexts, block_size = self.manifest.buckets.context_tokens, self.manifest.kv_cache.block_size
        if widths is not None:
            context = min(width for width in widths if width >= context)
        key = (kind, size, min(c for c in contexts if c >= min(context, contexts[-1])), bucket.rows_each)
        columns = self._columns[key]
        blocks = next((w for w in columns if w * block_size >= context), columns[-1])
        return self._graphs[key], Bucket(bucket.requests, bucket.rows_each, blocks)


def rows_each(spec: Graph) -> int:
    """Rows of each request in a pass of `spec`."""
    return spec.rows // spec.requests


def table_columns(spec: Graph, block_size: int) -> int:
    """Block-table columns of a graph that sees its whole context; a dynamic width is compiled for two at least."""
    columns = spec.context // block_size
    return max(columns, 2) if _dynamic_width(spec) else columns


def table_widths(spec: Graph, block_size: int) -> list[int]:
    """Every number of block-table columns that a pass may run `spec` with, narrowest first."""
    whole = table_columns(spec, block_size)
    if not _dynamic_width(spec):
        return [whole]
    widths, columns = [], max(LEAST_WIDTH // block_size, 2)
    while columns < whole:
        widths.append(columns)
        columns += max(max(LEAST_WIDTH // block_size, 2), (1 << columns.bit_length() - 1) // 4)
    return [*widths, whole]


def _dynamic_width(spec: Graph) -> bool:
    return any(value.name == "block_table" and isinstance(value.shape[1], str) for value in spec.inputs)
