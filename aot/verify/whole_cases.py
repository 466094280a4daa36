"""Inputs of a whole graph that leave it something to decide: `aot.verify.cases` for graphs that are one unit.

Drafts that are right hang on all that stands before them, so they are found one row at a time, in eager PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from aot.models.llama import TargetHead, TargetVerifyHead
from aot.models.sampling import Asked
from aot.verify.cases import chosen, sampling_ways, with_drafts
from aot.verify.graphs import integer_inputs
from runtime.bundle.manifest import Graph, Manifest

# Values by name -> the module that ends the graph, and what it read
Ends = Callable[[Mapping[str, Tensor]], tuple[nn.Module, Sequence[Tensor]]]


def graph_cases(
    graph: Graph, manifest: Manifest, ends: Ends, generator: torch.Generator
) -> Iterator[dict[str, Tensor]]:
    """Inputs by name to run `graph` with: deep in its context, and at its start with half of the rows; for a target's
    graph with every way to sample, if it does, and for a verify pass with drafts that are right up to some count.

    Args:
        ends: runs the graph in eager PyTorch, on the KV content of the comparison, which it leaves as it is.
    """
    deep = _with_noise(graph, integer_inputs(graph, manifest, generator), generator)
    start = _with_noise(graph, integer_inputs(graph, manifest, generator, start=True), generator)
    yield deep
    yield start
    head, _ = ends(deep)
    if not isinstance(head, TargetHead):
        return
    rows = 1 if graph.kind == "target_prefill" else graph.rows
    ways = [dict(zip(Asked._fields, way, strict=True)) for way in sampling_ways(head, graph.requests, rows, generator)]
    if not isinstance(head, TargetVerifyHead):
        for way in ways:
            yield {**deep, **way}
        return
    drafts = graph.rows // graph.requests - 1
    place = torch.arange(graph.requests)
    # All right; each request up to another count; all right again, and only some of the rows hold a draft
    counts = [torch.full_like(place, drafts), place % (drafts + 1), (drafts - place) % (drafts + 1)]
    for turn in range(max(len(counts), len(ways))):
        asked = {**deep, **(ways[turn % len(ways)] if ways else {})}
        right = counts[turn % len(counts)]
        yield {**asked, "tokens": _right_drafts(head, asked, ends, right, drafts)}
    held = ((place + 1) % (drafts + 1)).to(torch.int32)
    every = _right_drafts(head, deep, ends, counts[0], drafts)
    yield {**deep, "tokens": every, "num_draft_tokens": held}


def _right_drafts(head: TargetHead, values: Mapping[str, Tensor], ends: Ends, right: Tensor, drafts: int) -> Tensor:
    """The tokens of a verify pass whose drafts are right up to `right` [R] for each request."""
    tokens = values["tokens"]
    asked = [values[name] for name in Asked._fields] if head.sampled else []
    for row in range(drafts + 1):
        _, read = ends({**values, "tokens": tokens})
        target = chosen(head, read[0], asked)
        until = torch.full_like(right, row)
        # What stands before the first that is not known yet is right, so its own row's token is
        tokens = with_drafts(values["tokens"], target, torch.minimum(right, until + 1), head.lm_head.weight.shape[0])
    return tokens


def _with_noise(graph: Graph, integers: Mapping[str, Tensor], generator: torch.Generator) -> dict[str, Tensor]:
    """Inputs of the graph: these integers, and normal noise for the rest."""
    values = dict(integers)
    for spec in graph.inputs:
        if spec.name not in values:
            shape = [int(dim) for dim in spec.shape]
            values[spec.name] = torch.randn(shape, generator=generator).to(getattr(torch, spec.dtype))
    return values
