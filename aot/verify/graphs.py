"""Each compiled graph beside eager PyTorch, call by call, on the same inputs, weights and KV content.

Every call gets inputs of its own, normal with unit variance, and not what the call before it made: through thirty bf16
layers two correct computations drift apart, and the few huge values of a real residual stream hide what is small. A
call's error then says something about that call.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from aot.models.eagle3 import Draft
from aot.models.fused import FusedChain
from aot.models.llama import TargetHead
from aot.verify.cases import head_cases
from aot.verify.draws import accepts_its_own, asked_inputs, draws_agree
from aot.verify.eager import EagerBackend
from runtime.backends import Backend
from runtime.bundle.manifest import Call, Check, Graph, KVCache, Manifest, TensorSpec, Unit
from runtime.graphs import table_columns

# Largest error accepted: norm of the difference over norm of the output. Rounding explains a tenth of it for most
# calls, and in bf16 up to 0.02 where large terms cancel.
TOLERANCE = {"float32": 1e-5, "float16": 1e-2, "bfloat16": 5e-2}


def integer_inputs(
    graph: Graph, manifest: Manifest, generator: torch.Generator, *, start: bool = False
) -> dict[str, Tensor]:
    """Tokens, positions and paging as the loop would give them, every request deep in its context; what is asked of
    sampling, where the graph draws tokens.

    Request r owns the blocks r*B+1 .. r*B+B; its last row can be the last place of the context bucket. Rows that the
    context has no place for are padding: position 0 and the null slot.

    Args:
        start: at the start of the context instead, request r at position r, and half of its rows are padding.
    """
    block_size = manifest.kv_cache.block_size
    blocks, rows_each = table_columns(graph, block_size), graph.rows // graph.requests
    table = 1 + torch.arange(graph.requests * blocks, dtype=torch.int32).view(graph.requests, blocks)
    last_first = max(0, graph.context - rows_each)
    low = min(graph.context // 2, last_first)
    first = torch.randint(low, last_first + 1, (graph.requests, 1), generator=generator)
    real = (rows_each + 1) // 2 if start else rows_each
    if start:
        first = torch.arange(graph.requests)[:, None].clamp(max=last_first)
    wanted = first + torch.arange(rows_each)
    fits = (wanted < graph.context) & (torch.arange(rows_each) < real)
    positions = torch.where(fits, wanted, 0).to(torch.int32)
    slots = torch.gather(table, 1, (positions // block_size).long()) * block_size + positions % block_size
    slots = torch.where(fits, slots, 0).to(torch.int32)
    vocab = manifest.target.vocab_size
    tokens = torch.randint(0, vocab, (graph.rows,), generator=generator, dtype=torch.int32)
    # Of each request the target kept one row at least
    kept = torch.arange(rows_each) < torch.randint(1, rows_each + 1, (graph.requests, 1), generator=generator)
    return {
        "tokens": tokens,
        "positions": positions.flatten(),
        "slot_mapping": slots.flatten(),
        "block_table": table,
        "num_draft_tokens": torch.full((graph.requests,), real - 1, dtype=torch.int32),
        "last_index": torch.arange(graph.requests, dtype=torch.int32) * rows_each + real - 1,
        "next_token": tokens[:1].clone(),
        "accepted": torch.where(kept, tokens.view(graph.requests, rows_each), -1),
        "length_limits": torch.full((graph.requests,), graph.context, dtype=torch.int32),
        **asked_inputs(graph, vocab, generator),
    }


def check_graph(
    graph: Graph,
    manifest: Manifest,
    compiled: Backend,
    eager: EagerBackend,
    seed: int = 0,
    met: set[str] | None = None,
) -> tuple[Check, float]:
    """Compare every call of one graph with eager PyTorch; returns the check and the largest relative error.

    The first call of each unit also runs at the start of the context, half filled: there a row sees few entries, so
    that one too many or too few is no rounding. A head's first call runs on what `aot.verify.cases` makes of it.

    Args:
        met: units that graphs before this one called, to which its own are added: a head is the same in every context.
    """
    generator = torch.Generator().manual_seed(seed)
    units = {unit.name: unit for unit in manifest.units}
    deep = integer_inputs(graph, manifest, generator)
    start = integer_inputs(graph, manifest, generator, start=True)
    absolute, relative, tokens = 0.0, 0.0, True
    met = set() if met is None else met
    with torch.inference_mode():
        for call in graph.calls:
            unit, head = units[call.unit], eager.module(call.unit, call.scope)
            first = call.unit not in met
            for integers in (deep, start) if first else (deep,):
                noise = _call_inputs(call, unit, graph, manifest.kv_cache, integers, generator)
                for inputs in head_cases(head, noise, generator) if first and integers is deep else (noise,):
                    ours, theirs = [value.clone() for value in inputs], [value.clone() for value in inputs]
                    got = compiled.open(unit, call.scope)(ours)
                    want = eager.open(unit, call.scope)(theirs)
                    if not want[0].is_floating_point():
                        if isinstance(head, FusedChain) and not torch.equal(got[0], want[0]):
                            theirs = [value.clone() for value in inputs]
                            tokens = tokens and chain_agrees(head, theirs, got[0])
                        else:
                            tokens = tokens and tokens_agree(head, theirs, got, want)
                    found = [row_errors(g, w) for g, w in zip(got, want, strict=True) if w.is_floating_point()]
                    for name, before, mine, right in zip(call.inputs, inputs, ours, theirs, strict=True):
                        if name.startswith("kv."):
                            found.append(kv_errors(before, mine, right, integers["slot_mapping"]))
                    absolute = max([absolute, *(pair[0] for pair in found)])
                    relative = max([relative, *(pair[1] for pair in found)])
            met.add(call.unit)
    return Check("eager PyTorch", round(absolute, 9), tokens), relative


def _call_inputs(
    call: Call,
    unit: Unit,
    graph: Graph,
    cache: KVCache,
    integers: Mapping[str, Tensor],
    generator: torch.Generator,
) -> list[Tensor]:
    """The loop's integers where the call reads them; normal noise for the rest, rotary angles and KV content too."""
    sizes = {"num_blocks": graph.requests * table_columns(graph, cache.block_size) + 1}

    def noise(spec: TensorSpec) -> Tensor:
        shape = [sizes[dim] if isinstance(dim, str) else dim for dim in spec.shape]
        return torch.randn(shape, generator=generator).to(getattr(torch, spec.dtype))

    return [
        integers[name] if name in integers else noise(spec) for name, spec in zip(call.inputs, unit.inputs, strict=True)
    ]


def errors(ours: Tensor, theirs: Tensor) -> tuple[float, float]:
    """(largest absolute difference, norm of the difference over norm of `theirs`); NaN counts as infinite."""
    difference, scale = ours.float() - theirs.float(), theirs.float().norm().item()
    if difference.isnan().any():
        return float("inf"), float("inf")
    return difference.abs().max().item(), difference.norm().item() / max(scale, 1e-6)


def row_errors(ours: Tensor, theirs: Tensor) -> tuple[float, float]:
    """As `errors`, but of the worst row: one wrong row among thousands is no rounding of them all.

    A row that is smaller than most is measured by their size.
    """
    if not theirs.numel():
        return 0.0, 0.0
    rows = theirs.float().flatten(1)
    difference, norms = ours.float().flatten(1) - rows, rows.norm(dim=1)
    if difference.isnan().any():
        return float("inf"), float("inf")
    scale = torch.maximum(norms, norms.square().mean().sqrt()).clamp(min=1e-6)
    return difference.abs().max().item(), (difference.norm(dim=1) / scale).max().item()


def kv_errors(before: Tensor, ours: Tensor, theirs: Tensor, slots: Tensor) -> tuple[float, float]:
    """`row_errors` of the rows of a KV pool that a pass was to write; infinite where ours wrote another one.

    Args:
        before, ours, theirs: [blocks, block_size, kv_heads, head_dim], of one rank.
        slots: those that the pass was given, [M]; what else `theirs` changed was to be written too.
    """
    written, kept = rows_written(before, theirs, slots)
    mine, right, old = (pool.flatten(0, 1).flatten(1) for pool in (ours, theirs, before))
    if not torch.equal(mine[kept], old[kept]):
        return float("inf"), float("inf")
    return row_errors(mine[written], right[written])


def rows_written(before: Tensor, after: Tensor, slots: Tensor) -> tuple[Tensor, Tensor]:
    """Which rows of a KV pool [blocks, block_size, ...] a right pass wrote, and which it left alone, [rows] bool each.

    A pass writes few rows of many, and among all of them an error of one would be lost. The null block is in neither:
    which of several padding rows wrote there last is nobody's business.
    """
    written = (before != after).flatten(2).any(dim=2).flatten()
    written[slots.long()] = True
    kept = ~written
    written[: before.shape[1]] = kept[: before.shape[1]] = False
    return written, kept


def tokens_agree(head: nn.Module, inputs: list[Tensor], got: list[Tensor], want: list[Tensor]) -> bool:
    """Whether the tokens agree, but for those whose logit is too near the best one for the dtype to tell apart.

    got[0] and want[0] are [R], or [R, 1+K] from a verify head, which must also have accepted what its own tokens say:
    one near tie changes all that follows in its request.
    """
    if torch.equal(got[0], want[0]):
        return True
    if isinstance(head, Draft):
        return bool(near_best(head.logits_of_output(want[1]), got[0], head).all())
    if not isinstance(head, TargetHead):
        return False
    if got[0].dim() == 2 and not accepts_its_own(got[0], inputs[1], inputs[2]):
        return False
    if head.sampled:
        return draws_agree(head, inputs, got[0])
    logits = head.logits(inputs[0])
    if got[0].dim() == 1:
        logits = logits[inputs[1].long()]
    tokens = got[0].flatten()
    return bool(((tokens < 0) | near_best(logits, tokens, head)).all())


def chain_agrees(head: FusedChain, inputs: list[Tensor], got: Tensor) -> bool:
    """Whether step tokens that are not eager's own are as good: each draft is eager's too, or near a tie of its logits.

    The eager chain goes on from the drafts that it is to judge, [R, K] at the end of `got`, so that a near tie says
    nothing of those behind it, and the KV rows that it writes into `inputs` are comparable throughout. What stands
    before the drafts is an input handed on and must be equal.
    """
    given = got[:, -head.drafts :]
    drafts, states = head.follow(given, *inputs)
    handed_on = head(*(value.clone() for value in inputs))[:, : -head.drafts]
    pairs = zip(states, given.unbind(dim=1), strict=True)
    close = torch.stack([near_best(head.logits_of_output(state), tokens, head) for state, tokens in pairs], dim=1)
    return torch.equal(got[:, : -head.drafts], handed_on) and bool(((drafts == given) | close).all())


def near_best(logits: Tensor, tokens: Tensor, head: Draft | TargetHead) -> Tensor:
    """For each row of [M, V] whether the logit of its token [M] is too near the best for the model's dtype to tell.

    A draft's tokens are the target's ids, of which its own vocabulary may be a part.
    """
    ids = torch.arange(logits.shape[1], dtype=torch.int32)
    if isinstance(head, Draft) and head.target_ids is not None:
        ids = head.target_ids(ids)
    values = logits.float()
    best = values.amax(dim=-1)
    own = torch.where(ids[None, :] == tokens[:, None], values, float("-inf")).amax(dim=-1)
    return best - own <= 4 * torch.finfo(head.lm_head.weight.dtype).eps * best.abs()
