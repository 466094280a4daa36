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
from aot.verify.draws import asked_inputs, draws_agree
from aot.verify.eager import EagerBackend
from runtime.backends import Backend
from runtime.bundle.manifest import Call, Check, Graph, KVCache, Manifest, TensorSpec, Unit
from runtime.graphs import table_columns

# Largest error accepted: norm of the difference over norm of the output. Rounding explains a tenth of it for most
# calls, and in bf16 up to 0.02 where large terms cancel.
TOLERANCE = {"float32": 1e-5, "float16": 1e-2, "bfloat16": 5e-2}


def integer_inputs(graph: Graph, manifest: Manifest, generator: torch.Generator) -> dict[str, Tensor]:
    """Tokens, positions and paging as the loop would give them, every request deep in its context; what is asked of
    sampling, where the graph draws tokens.

    Request r owns the blocks r*B+1 .. r*B+B; its last row can be the last place of the context bucket. Rows that the
    context has no place for are padding: position 0 and the null slot.
    """
    block_size = manifest.kv_cache.block_size
    blocks, rows_each = table_columns(graph, block_size), graph.rows // graph.requests
    table = 1 + torch.arange(graph.requests * blocks, dtype=torch.int32).view(graph.requests, blocks)
    last_first = max(0, graph.context - rows_each)
    low = min(graph.context // 2, last_first)
    first = torch.randint(low, last_first + 1, (graph.requests, 1), generator=generator)
    wanted = first + torch.arange(rows_each)
    fits = wanted < graph.context
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
        "num_draft_tokens": torch.full((graph.requests,), rows_each - 1, dtype=torch.int32),
        "last_index": (torch.arange(graph.requests, dtype=torch.int32) + 1) * rows_each - 1,
        "next_token": tokens[:1].clone(),
        "accepted": torch.where(kept, tokens.view(graph.requests, rows_each), -1),
        "length_limits": torch.full((graph.requests,), graph.context, dtype=torch.int32),
        **asked_inputs(graph, vocab, generator),
    }


def check_graph(
    graph: Graph, manifest: Manifest, compiled: Backend, eager: EagerBackend, seed: int = 0
) -> tuple[Check, float]:
    """Compare every call of one graph with eager PyTorch; returns the check and the largest relative error."""
    generator = torch.Generator().manual_seed(seed)
    units = {unit.name: unit for unit in manifest.units}
    integers = integer_inputs(graph, manifest, generator)
    absolute, relative, tokens = 0.0, 0.0, True
    with torch.inference_mode():
        for call in graph.calls:
            inputs = _call_inputs(call, units[call.unit], graph, manifest.kv_cache, integers, generator)
            ours, theirs = [value.clone() for value in inputs], [value.clone() for value in inputs]
            got = compiled.open(units[call.unit], call.scope)(ours)
            want = eager.open(units[call.unit], call.scope)(theirs)
            if not want[0].is_floating_point():
                head = eager.module(call.unit, call.scope)
                if isinstance(head, FusedChain) and not torch.equal(got[0], want[0]):
                    theirs = [value.clone() for value in inputs]
                    tokens = tokens and chain_agrees(head, theirs, got[0])
                else:
                    tokens = tokens and tokens_agree(head, theirs, got, want)
            floats = [(g, w) for g, w in zip(got, want, strict=True) if w.is_floating_point()]
            pools = zip(ours, theirs, call.inputs, strict=True)
            # All but the null block: which of several padding rows wrote there last is nobody's business
            floats += [(g[1:], w[1:]) for g, w, name in pools if name.startswith("kv.")]
            found = [errors(g, w) for g, w in floats]
            absolute = max([absolute, *(pair[0] for pair in found)])
            relative = max([relative, *(pair[1] for pair in found)])
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


def tokens_agree(head: nn.Module, inputs: list[Tensor], got: list[Tensor], want: list[Tensor]) -> bool:
    """Whether the tokens agree, but for rows whose two best eager logits are too close for the dtype to tell apart.

    got[0] and want[0] are [R], or [R, 1+K] from a verify head, where one near tie changes all later tokens of its row.
    """
    if torch.equal(got[0], want[0]):
        return True
    if isinstance(head, Draft):
        logits = head.logits_of_output(want[1])
    elif isinstance(head, TargetHead) and head.sampled:
        return draws_agree(head, inputs, got[0])
    elif isinstance(head, TargetHead):
        logits = head.logits(inputs[0])
        if want[0].dim() == 1:
            logits = logits[inputs[1].long()]
    else:
        return False
    rows_close = _near_ties(logits, head).view(want[0].shape[0], -1).any(dim=1)
    rows_equal = (got[0] == want[0]).view(want[0].shape[0], -1).all(dim=1)
    return bool((rows_equal | rows_close).all())


def chain_agrees(head: FusedChain, inputs: list[Tensor], got: Tensor) -> bool:
    """Whether step tokens that are not eager's own are as good: each draft is eager's too, or near a tie of its logits.

    The eager chain goes on from the drafts that it is to judge, [R, K] at the end of `got`, so that a near tie says
    nothing of those behind it, and the KV rows that it writes into `inputs` are comparable throughout. What stands
    before the drafts is an input handed on and must be equal.
    """
    given = got[:, -head.drafts :]
    drafts, states = head.follow(given, *inputs)
    handed_on = head(*(value.clone() for value in inputs))[:, : -head.drafts]
    close = torch.stack([_near_ties(head.logits_of_output(state), head) for state in states], dim=1)
    return torch.equal(got[:, : -head.drafts], handed_on) and bool(((drafts == given) | close).all())


def _near_ties(logits: Tensor, head: Draft | TargetHead) -> Tensor:
    """For each row of [M, V] whether its two best are too close for the dtype of the states behind them."""
    best = logits.float().topk(2, dim=-1).values
    return (best[:, 0] - best[:, 1]) <= 4 * torch.finfo(head.lm_head.weight.dtype).eps * best.abs().amax(dim=-1)
