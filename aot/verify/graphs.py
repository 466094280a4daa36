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
from aot.models.llama import TargetHead
from aot.verify.eager import EagerBackend
from runtime.backends import Backend
from runtime.bundle.manifest import Call, Check, Graph, KVCache, Manifest, TensorSpec, Unit
from runtime.graphs import table_columns

# Largest error accepted: norm of the difference over norm of the output. Rounding explains a tenth of it for most
# calls, and in bf16 up to 0.02 where large terms cancel.
TOLERANCE = {"float32": 1e-5, "float16": 1e-2, "bfloat16": 5e-2}


def integer_inputs(graph: Graph, manifest: Manifest, generator: torch.Generator) -> dict[str, Tensor]:
    """Tokens, positions and paging as the loop would give them, every request deep in its context.

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
    return {
        "tokens": torch.randint(0, vocab, (graph.rows,), generator=generator, dtype=torch.int32),
        "positions": positions.flatten(),
        "slot_mapping": slots.flatten(),
        "block_table": table,
        "num_draft_tokens": torch.full((graph.requests,), rows_each - 1, dtype=torch.int32),
        "last_index": (torch.arange(graph.requests, dtype=torch.int32) + 1) * rows_each - 1,
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
            floats = [(g, w) for g, w in zip(got, want, strict=True) if w.is_floating_point()]
            floats += [(g, w) for g, w, name in zip(ours, theirs, call.inputs, strict=True) if name.startswith("kv.")]
            found = [errors(g, w) for g, w in floats]
            absolute = max([absolute, *(pair[0] for pair in found)])
            relative = max([relative, *(pair[1] for pair in found)])
            if not want[0].is_floating_point():
                head = eager.module(call.unit, call.scope)
                tokens = tokens and tokens_agree(head, theirs, got, want)
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
    elif isinstance(head, TargetHead):
        logits = head.logits(inputs[0])
        if want[0].dim() == 1:
            logits = logits[inputs[1].long()]
    else:
        return False
    best = logits.float().topk(2, dim=-1).values
    close = (best[:, 0] - best[:, 1]) <= 4 * torch.finfo(logits.dtype).eps * best.abs().amax(dim=-1)
    rows_close = close.view(want[0].shape[0], -1).any(dim=1)
    rows_equal = (got[0] == want[0]).view(want[0].shape[0], -1).all(dim=1)
    return bool((rows_equal | rows_close).all())
