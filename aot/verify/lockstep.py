"""A lowered bundle's loop on the simulator, every pass beside eager PyTorch on the same inputs and KV: its own weights.

Through many layers of bf16 two right computations drift apart, so an error has no absolute measure here. What is asked
is that a pass be as close to the same model in float32 as eager PyTorch in the bundle's dtype is. Inputs are those of
the running loop, not noise: a trained model given noise for its KV answers chaotically, and every rounding with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from aot.build.scopes import Scope
from aot.graphs.geometry import Geometry
from aot.models.fused import FusedChain
from aot.models.llama import TargetHead
from aot.verify.draws import accepts_its_own, draws_agree, noise_slack
from aot.verify.graphs import chain_agrees, errors, rows_written, tokens_agree
from aot.verify.lowered import Reference, heads_of
from runtime.backends.device import to_host
from runtime.backends.sim import SimPool
from runtime.bundle.manifest import Check
from runtime.graph import LoadedGraph

# How much farther from float32 than eager PyTorch a pass may be, and what is nothing to speak of
FACTOR, SMALL = 2.0, {"float32": 1e-4, "float16": 1e-3, "bfloat16": 1e-2}
# Relative difference of KV rows from which on they are not the same rows rounded otherwise
OTHER_CONTENT = 0.1


@dataclass
class Watched:
    """What the passes of one graph have shown so far.

    absolute: largest difference from eager PyTorch in the same dtype.
    kept_kv: whether KV rows that a pass was not to write stayed as they were.
    error, allowed: relative error against float32 of the worst pass, and what eager PyTorch's error allows it.
    """

    absolute: float = 0.0
    error: float = 0.0
    allowed: float = 0.0
    tokens_equal: bool = True
    kept_kv: bool = True
    runs: int = 0

    @property
    def right(self) -> bool:
        return self.tokens_equal and self.kept_kv and self.error <= self.allowed

    def check(self, what: str) -> Check:
        """The manifest's entry."""
        return Check(f"eager PyTorch, {what}", round(self.absolute, 9), self.tokens_equal)


@dataclass
class Lockstep:
    """Two references, in the bundle's dtype and in float32, and what the graphs have shown beside them."""

    same: Reference
    wide: Reference
    ranks: int
    seen: dict[str, Watched] = field(default_factory=dict)

    @classmethod
    def make(cls, sizes: Geometry, weights: Mapping[str, Scope], ranks: int) -> Lockstep:
        """For the graphs of one device, `aot.verify.lowered.alone(sizes)`, with their weights."""
        wide = {scope: {name: _wide(weight) for name, weight in held.items()} for scope, held in weights.items()}
        return cls(Reference.make(sizes, weights), Reference.make(replace(sizes, dtype="float32"), wide), ranks)

    def watch(self, graph: LoadedGraph, pools: Mapping[str, Any]) -> LoadedGraph:
        """`graph`, compared on every run."""
        return _Beside(graph, self, pools)

    def compare(
        self, name: str, inputs: Mapping[str, Tensor], before: Mapping[str, Tensor], after: Mapping[str, Any], got: Any
    ) -> None:
        """One pass: its host inputs, whole KV pools before, the simulator's pools and outputs after it."""
        watched = self.seen.setdefault(name, Watched())
        watched.runs += 1
        graph = self.same.graphs[name]
        near = {pool: value.clone() for pool, value in before.items()}
        far = {pool: _wide(value) for pool, value in before.items()}
        head, read, want = self.same.run(graph, {**inputs, **near})
        wide_head, wide_read, truth = self.wide.run(graph, {**{n: _wide(v) for n, v in inputs.items()}, **far})
        got = [to_host(value) for value in got]
        if isinstance(head, FusedChain):
            agree = torch.equal(got[0], want[0])
            if not agree:
                near = {pool: value.clone() for pool, value in before.items()}
                values = {**inputs, **near}
                with torch.inference_mode():
                    agree = chain_agrees(head, [values[value] for value in graph.calls[-1].inputs], got[0])
            # Behind the first near tie float32 drafts other tokens: what eager PyTorch gave is the measure
            far = {pool: _wide(value) for pool, value in near.items()}
        elif isinstance(head, TargetHead):
            agree = _within_noise(head, read, wide_head, wide_read, got[0], want[0])
        else:
            agree = tokens_agree(head, read, got, want)
        watched.tokens_equal = watched.tokens_equal and agree
        triples = [(g, w, t) for g, w, t in zip(got, want, truth, strict=True) if w.is_floating_point()]
        for pool, old in before.items():
            # Rows that were to be written, and of the others that they were not: one among thousands would be lost
            written, kept = rows_written(old, near[pool], inputs["slot_mapping"])
            parts = (heads_of(value, self.ranks) for value in (old, near[pool], far[pool]))
            for mine, *rest in zip(after[pool].parts(), *parts, strict=True):
                ours, unchanged, theirs, right = (value.flatten(0, 1) for value in (mine, *rest))
                # A row of an earlier pass that eager PyTorch writes with the very same bits only looks kept
                moved = kept & (ours != unchanged).flatten(1).any(dim=1)
                rows = written | moved
                triples.append((ours[rows], theirs[rows], right[rows]))
                if moved.any() and errors(ours[moved], unchanged[moved])[1] > OTHER_CONTENT:
                    watched.kept_kv = False
        for ours, theirs, right in triples:
            watched.absolute = max(watched.absolute, errors(ours, theirs)[0])
            error = errors(ours, right)[1]
            allowed = max(SMALL[self.same.sizes.dtype], FACTOR * errors(theirs, right)[1])
            if error / allowed >= watched.error / (watched.allowed or 1.0):
                watched.error, watched.allowed = error, allowed


class _Beside(LoadedGraph):
    """A loaded graph that is compared on every run."""

    def __init__(self, inner: LoadedGraph, lockstep: Lockstep, pools: Mapping[str, Any]) -> None:
        self.spec, self.runs, self.seconds = inner.spec, 0, 0.0
        self._inner, self._lockstep = inner, lockstep
        used = {name for call in inner.spec.calls for name in call.inputs if name.startswith("kv.")}
        self._pools = {name: pool for name, pool in pools.items() if name in used}

    def __call__(self, inputs: Mapping[str, Tensor]) -> list[Tensor]:
        held = {name: to_host(value) for name, value in inputs.items()}
        heads = {name: self._lockstep.same.eager_heads(name) for name in self._pools}
        before = {name: whole(pool, heads[name]) for name, pool in self._pools.items()}
        made = self._inner(inputs)
        self._lockstep.compare(self.spec.name, held, before, self._pools, made)
        return made


def whole(pool: SimPool, heads: int) -> Tensor:
    """All KV heads of a pool out of the ranks' parts; where several ranks hold one head, the first's is taken."""
    parts = pool.parts()
    each = parts[0].shape[2]
    first = [rank * heads // len(parts) for rank in range(len(parts))]
    kept = [part for rank, part in enumerate(parts) if rank == 0 or first[rank] != first[rank - 1]]
    joined = torch.cat(kept, dim=2)
    return joined if joined.shape[2] == heads else joined[:, :, : max(heads, each)]


def _within_noise(
    head: TargetHead, read: Sequence[Tensor], wide_head: Any, wide_read: Sequence[Tensor], got: Tensor, want: Tensor
) -> bool:
    """Whether tokens agree, but for those whose logit is behind the best by no more than the dtype's noise in these
    logits, and drafts are accepted as the tokens say."""
    if torch.equal(got, want):
        return True
    if head.sampled:
        return draws_agree(head, read, got, noise_slack(head, read, wide_head, wide_read))
    if want.dim() == 2 and not accepts_its_own(got, read[1], read[2]):
        return False
    near, far = head.logits(read[0]).float(), wide_head.logits(wide_read[0]).float()
    if want.dim() == 1:
        near, far = near[read[1].long()], far[read[1].long()]
    tokens = got.flatten()
    own = far.gather(1, tokens.clamp(min=0, max=far.shape[1] - 1).long()[:, None])[:, 0]
    close = far.amax(dim=-1) - own <= FACTOR * 2 * (near - far).abs().amax(dim=-1)
    return bool(((tokens < 0) | ((tokens < far.shape[1]) & close)).all())


def _wide(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor
