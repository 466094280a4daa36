"""What a graph of each kind takes and gives, and which graphs a bundle has: the contract of loop and builder.

The loop hands in what is named here, by name and in these dtypes and shapes, and reads the outputs in this order. n is
a graph's rows, r its requests, p = n / r the rows of each. Where a unit's code can tell a caller's width, the block
table's second dimension is the name "context_blocks"; else it is context / block_size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from runtime.bundle.errors import Eagle3Error, UsageError
from runtime.bundle.manifest import UNIFORMS, Dim, Graph, GraphKind, Manifest, TensorSpec
from runtime.bundle.sizes import problem

PAGING = ("positions", "slot_mapping", "block_table")
# What a graph that draws tokens reads beside logits: of each request, and of each row
ASKED = ("temperature", "top_k", "top_p", "min_p", UNIFORMS)

Key = tuple[GraphKind, int, int, int]  # kind, requests, rows, context


def asked(manifest: Manifest) -> tuple[str, ...]:
    """The inputs of the target's graphs that are about sampling."""
    return ASKED if manifest.sampling == "random" else ()


@dataclass(frozen=True)
class _Values:
    """Specs of the values of one graph."""

    manifest: Manifest
    graph: Graph

    def ints(self, name: str, *shape: Dim) -> TensorSpec:
        return TensorSpec(name, "int32", shape)

    def paging(self) -> tuple[TensorSpec, ...]:
        rows, requests = self.graph.rows, self.graph.requests
        columns: Dim = self.graph.context // self.manifest.kv_cache.block_size
        given = next((value for value in self.graph.inputs if value.name == "block_table"), None)
        if given is not None and "context_blocks" in given.shape and self.manifest.requires.backend == "aoti":
            columns = "context_blocks"
        table = self.ints("block_table", requests, columns)
        return self.ints("positions", rows), self.ints("slot_mapping", rows), table

    def asked(self, requests: int, rows: int) -> tuple[TensorSpec, ...]:
        if not asked(self.manifest):
            return ()
        each = [TensorSpec(name, "int32" if name == "top_k" else "float32", (requests,)) for name in ASKED[:-1]]
        return (*each, TensorSpec(UNIFORMS, "float32", (rows,)))

    def features(self) -> TensorSpec:
        states = len(self.manifest.speculation.aux_layers) or 1
        return TensorSpec("features", self.manifest.dtype, (self.graph.rows, states * self.manifest.target.hidden_size))

    def logits(self, rows: int) -> tuple[TensorSpec, ...]:
        if self.manifest.sampling != "logits":
            return ()
        return (TensorSpec("logits", "float32", (rows, self.manifest.target.vocab_size)),)

    def state(self, name: str) -> TensorSpec:
        """A draft's hidden state. Hardware may want more channels than the model has; all graphs then have as many."""
        width: Dim = self.manifest.draft.hidden_size
        if self.manifest.requires.backend != "aoti":
            states = [v for g in self.manifest.graphs for v in (*g.inputs, *g.outputs) if v.name == "state"]
            width = states[0].shape[-1] if states and states[0].shape else width
        return TensorSpec(name, self.manifest.dtype, (self.graph.requests, width))


def interface(manifest: Manifest, graph: Graph) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """The inputs, in no order, and the outputs, in order, that `graph` must have."""
    of = _Values(manifest, graph)
    n, r, k = graph.rows, graph.requests, manifest.speculation.num_speculative_tokens
    match graph.kind:
        case "target_prefill":
            inputs = (of.ints("tokens", n), *of.paging(), of.ints("last_index", 1), *of.asked(1, 1))
            return inputs, (of.ints("next_token", 1), of.features(), *of.logits(1))
        case "target_verify" | "target_decode":
            inputs = (of.ints("tokens", n), *of.paging(), of.ints("num_draft_tokens", r), *of.asked(r, n))
            return inputs, (of.ints("accepted", r, n // r), of.features(), *of.logits(n))
        case "draft_initial_prefill" | "draft_initial":
            inputs = (of.ints("tokens", n), *of.paging(), of.features(), of.ints("last_index", r))
            return inputs, (of.ints("draft_token", r), of.state("state"))
        case "draft_recurrent":
            inputs = (of.ints("tokens", r), of.state("state"), *of.paging())
            return inputs, (of.ints("draft_token", r), of.state("next_state"))
        case "draft_fused_prefill":
            one = (of.ints("next_token", 1), of.ints("last_index", 1), of.ints("length_limits", 1))
            return (of.ints("tokens", n), *one, *of.paging(), of.features()), (of.ints("step_tokens", 1, 1 + k),)
        case "draft_fused":
            inputs = (of.ints("accepted", r, 1 + k), *of.paging(), of.features(), of.ints("length_limits", r))
            return inputs, (of.ints("step_tokens", r, 1 + 2 * k),)


def wanted_graphs(manifest: Manifest) -> Iterator[Key]:
    """Every graph that the loop can ask for: one for each kind and bucket, and number of drafts of the schedule.

    Raises:
        UsageError: the schedule is none.
    """
    fused = any(graph.kind.startswith("draft_fused") for graph in manifest.graphs)
    buckets, k = manifest.buckets, manifest.speculation.num_speculative_tokens
    for context in buckets.context_tokens:
        for rows in buckets.prefill_within(context):
            yield "target_prefill", 1, rows, context
            yield ("draft_fused_prefill" if fused else "draft_initial_prefill"), 1, rows, context
        for requests in buckets.num_seqs:
            counts = _drafts(manifest, requests)
            for drafts in counts:
                yield "target_verify", requests, requests * (1 + drafts), context
            if manifest.exactness.lossless == "near_tie":
                yield "target_decode", requests, requests, context
            if fused:
                yield "draft_fused", requests, requests * (1 + k), context
                continue
            for drafts in counts:
                yield "draft_initial", requests, requests * (1 + drafts), context
            if k > 1:
                yield "draft_recurrent", requests, requests, context


def _drafts(manifest: Manifest, requests: int) -> list[int]:
    """How many drafts a verify pass of this bucket can have: K, and what the bundle's schedule has for such a batch."""
    k, schedule = manifest.speculation.num_speculative_tokens, manifest.speculation.schedule
    fewer = set() if schedule is None else {used for _, _, used in schedule.ranges} - {k}
    sizes = manifest.buckets.num_seqs
    return [*sorted(d for d in fewer if schedule and requests in schedule.buckets(sizes, d)), k]


def graph_problems(manifest: Manifest) -> Iterator[Eagle3Error]:
    """Every graph that is missing, too many, or takes or gives something else than the loop expects."""
    try:
        wanted = Counter(wanted_graphs(manifest))
    except UsageError as error:
        yield problem(f"speculation.{error.what}", error.expected, error.found)
        return
    there = Counter((graph.kind, graph.requests, graph.rows, graph.context) for graph in manifest.graphs)
    for kind, requests, rows, context in wanted - there:
        yield problem("The bundle lacks a graph", _named(kind, requests, rows, context), "none in the manifest")
    for kind, requests, rows, context in there - wanted:
        yield problem("The bundle has a graph that no pass asks for", "none", _named(kind, requests, rows, context))
    for graph in manifest.graphs:
        if (graph.kind, graph.requests, graph.rows, graph.context) in wanted:
            inputs, outputs = interface(manifest, graph)
            yield from _differences(
                f"Graph {graph.name} takes", sorted(inputs, key=_name), sorted(graph.inputs, key=_name)
            )
            yield from _differences(f"Graph {graph.name} gives", list(outputs), list(graph.outputs))


def _named(kind: str, requests: int, rows: int, context: int) -> str:
    return f"{kind} of {rows} rows for {requests} and context {context}"


def _name(value: TensorSpec) -> str:
    return value.name


def _differences(what: str, expected: list[TensorSpec], found: list[TensorSpec]) -> Iterator[Eagle3Error]:
    if [value.name for value in expected] != [value.name for value in found]:
        names = [", ".join(value.name for value in values) or "nothing" for values in (expected, found)]
        yield problem(f"{what} other values than the loop knows", *names)
        return
    for one, other in zip(expected, found, strict=True):
        if one != other:
            yield problem(f"{what} another {one.name} than the manifest's sizes say", shown(one), shown(other))


def shown(value: TensorSpec) -> str:
    """A value's dtype and shape, "int32 [4, context_blocks]"."""
    return f"{value.dtype} [{', '.join(map(str, value.shape))}]"
