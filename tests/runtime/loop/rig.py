"""A toy pair in memory, run by the real loop through eager PyTorch: no compiler, no files, milliseconds a step.

The target has eight layers of width 32 and 64 tokens, the draft one layer and 16 of those tokens, K = 3, blocks of
four, all in float32 with seeded random weights. What a compiled bundle would hold is here by other means: the graph
table is the builder's own, the units are its modules, and only the compiled code is replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from aot.build.scopes import scopes
from aot.checkpoint.draft import DraftConfig, draft_config_from_json
from aot.checkpoint.random_weights import random_draft_weights, random_target_weights
from aot.checkpoint.rope import inverse_frequencies
from aot.checkpoint.target import TargetConfig, target_config_from_json
from aot.graphs.geometry import Geometry, Padding
from aot.graphs.table import GraphTable, graph_table
from aot.reference import (
    eagle3_greedy_chain,
    rms_norm,
    rotate,
    target_forward,
    target_greedy,
    with_shared,
)
from aot.verify.eager import EagerBackend, eager_bundle
from runtime.batch import Bucket
from runtime.bundle.manifest import (
    Axis,
    Buckets,
    Exactness,
    Graph,
    GraphKind,
    Manifest,
)
from runtime.bundle.open import Bundle
from runtime.bundle.schedule import KSchedule
from runtime.engine import Engine
from runtime.fused import draft_proposer
from runtime.graph import LoadedGraph
from runtime.graphs import GraphSet
from runtime.prefix import PrefixCaching
from runtime.proposer import NoProposer, Proposer, ScriptedProposer
from runtime.request import Request, RequestOutput
from runtime.sequence import Sequence as Running

K, BLOCK, MAX_LEN, VOCAB = 3, 4, 64, 64
# No id of the vocabulary, for tests in which nothing may stop a request but its length
NO_EOS: tuple[int, ...] = ()
NO_PADDING = Padding()


@dataclass(frozen=True)
class Shape:
    """What a test may vary. `kv_blocks` 0 means room for max_num_seqs requests of max_model_len.

    Graphs return logits where `greedy_only` is False, and draw tokens themselves where `sampled` is True.
    """

    k: int = K
    max_model_len: int = MAX_LEN
    max_num_seqs: int = 4
    prefill_tokens: tuple[int, ...] = (16,)
    num_seqs: tuple[int, ...] = (1, 4)
    context_tokens: tuple[int, ...] = (32, 64)
    exact_greedy: bool = True
    bitwise_across: tuple[Axis, ...] = ("requests", "context")
    context_widths: tuple[int, ...] = ()
    kv_blocks: int = 0
    block_size: int = BLOCK
    layers: int = 8
    norm_before_residual: bool = False
    draft_head_dim: int = 8
    eos: tuple[int, ...] = NO_EOS
    greedy_only: bool = True
    sampled: bool = False
    draft_fused: bool = False
    schedule: KSchedule | None = None
    dtype: str = "float32"
    target_padding: Padding = NO_PADDING
    draft_padding: Padding = NO_PADDING
    seed: int = 0


@dataclass
class Rig:
    """A toy bundle with its models, and what the plain reference says about them."""

    shape: Shape
    geometry: Geometry
    table: GraphTable
    manifest: Manifest
    backend: EagerBackend
    target_weights: dict[str, Tensor]
    draft_weights: dict[str, Tensor]
    _plain: dict[tuple[tuple[int, ...], int], list[int]] = field(default_factory=dict)

    @property
    def target(self) -> TargetConfig:
        return self.geometry.target

    @property
    def draft(self) -> DraftConfig:
        return self.geometry.draft

    @property
    def bundle(self) -> Bundle:
        return Bundle(Path("nowhere"), self.manifest)

    def graphs(self, kv_blocks: int | None = None, kinds: Sequence[GraphKind] | None = None) -> GraphSet:
        """All graphs of the table, or those of `kinds`, over pools of their own."""
        every = dict.fromkeys(graph.kind for graph in self.table.graphs)
        return GraphSet(self.bundle, list(kinds or every), kv_blocks, self.backend)

    def engine(
        self,
        proposer: Proposer | Callable[[GraphSet], Proposer] = draft_proposer,
        *,
        kv_blocks: int | None = None,
        prefix_caching: PrefixCaching = "exact",
        schedule: KSchedule | None = None,
    ) -> Engine:
        """The loop over fresh pools; by default with the toy's own EAGLE3 draft."""
        graphs = self.graphs(kv_blocks)
        made = proposer(graphs) if callable(proposer) else proposer
        return Engine(graphs, made, prefix_caching=prefix_caching, schedule=schedule)

    def plain_engine(self) -> Engine:
        return self.engine(NoProposer())

    def generate(
        self, *requests: Request, proposer: Proposer | Callable[[GraphSet], Proposer] = draft_proposer
    ) -> list[RequestOutput]:
        return self.engine(proposer).generate(list(requests))

    # What the reference says

    def plain(self, prompt: Sequence[int], n: int) -> list[int]:
        """The `n` greedy tokens after `prompt`, by the reference, which knows no cache and no pages."""
        key = (tuple(prompt), n)
        if key not in self._plain:
            longest = max((m for p, m in self._plain if p == key[0]), default=0)
            if longest >= n:
                return self._plain[key[0], longest][:n]
            self._plain[key] = target_greedy(self.target_weights, self.target, prompt, n)
        return self._plain[key]

    def chain(self, committed: Sequence[int], k: int) -> list[int]:
        """The reference's k draft tokens after `committed`."""
        if k == 0:
            return []
        weights = (self.target_weights, self.target, self.draft_weights, self.draft)
        return eagle3_greedy_chain(*weights, committed, k)

    def draft_kv(self, committed: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Keys and values [L-1, kv_heads, head_dim] of draft rows 0..L-2 over true features, L = len(committed).

        Row i holds (feature i, token i+1) at position i; a row's key and value depend on that row alone.
        """
        w, d = with_shared(self.draft_weights, self.target_weights), self.draft
        _, features = target_forward(self.target_weights, self.target, committed[:-1], d.aux_layers)
        embedded = w["embed_tokens.weight"][torch.tensor(list(committed[1:]))]
        rows = torch.cat(
            [
                rms_norm(embedded, w["midlayer.input_layernorm.weight"], d.rms_norm_eps),
                rms_norm(F.linear(features, w["fc.weight"]), w["midlayer.hidden_norm.weight"], d.rms_norm_eps),
            ],
            dim=-1,
        )
        keys = F.linear(rows, w["midlayer.self_attn.k_proj.weight"]).view(-1, d.num_kv_heads, d.head_dim)
        values = F.linear(rows, w["midlayer.self_attn.v_proj.weight"]).view(-1, d.num_kv_heads, d.head_dim)
        return rotate(keys, inverse_frequencies(d.head_dim, d.rope_theta, d.rope_scaling)), values


@lru_cache(maxsize=32)
def make_rig(shape: Shape = Shape()) -> Rig:
    """The toy of `shape`; the same shape gives the same rig, whose engines share weights and no KV."""
    target = target_config_from_json(
        {
            "model_type": "llama",
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "vocab_size": VOCAB,
        }
    )
    weights = random_target_weights(target, shape.seed + 1, getattr(torch, shape.dtype))
    return rig_of(target, attentive(weights), shape)


def rig_of(target: TargetConfig, target_weights: dict[str, Tensor], shape: Shape = Shape()) -> Rig:
    """The toy of `shape` with another target, as wide and with as many layers and tokens.

    Args:
        target: instead of the toy's own; `shape.layers` must be its number of layers.
        target_weights: by the names of `target_shapes`, in `shape.dtype`.
    """
    dtype: torch.dtype = getattr(torch, shape.dtype)
    draft = draft_config_from_json(
        {
            "hidden_size": 32,
            "intermediate_size": 40,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": shape.draft_head_dim,
            "draft_vocab_size": 16,
            "norm_before_residual": shape.norm_before_residual,
        },
        target,
        aux_layers=None if shape.layers == 8 else (1, 2, 3),
    )
    draft_weights = attentive(random_draft_weights(draft, shape.seed + 2, dtype))
    return rig_of_pair(target, target_weights, draft, draft_weights, shape)


def rig_of_pair(
    target: TargetConfig,
    target_weights: dict[str, Tensor],
    draft: DraftConfig,
    draft_weights: dict[str, Tensor],
    shape: Shape = Shape(),
) -> Rig:
    """The toy of `shape` with two models of one's own; `draft_weights` by the names of `draft_shapes`, and `d2t`."""
    blocks = shape.kv_blocks or 1 + shape.max_num_seqs * -(-shape.max_model_len // shape.block_size)
    geometry = Geometry(
        target=target,
        draft=draft,
        dtype=shape.dtype,
        num_speculative_tokens=shape.k,
        max_model_len=shape.max_model_len,
        max_num_seqs=shape.max_num_seqs,
        block_size=shape.block_size,
        num_blocks=blocks,
        buckets=Buckets(shape.prefill_tokens, shape.num_seqs, shape.context_tokens),
        sampling="random" if shape.sampled else "greedy" if shape.greedy_only else "logits",
        exact_greedy=shape.exact_greedy,
        draft_fused=shape.draft_fused,
        schedule=shape.schedule,
        target_padding=shape.target_padding,
        draft_padding=shape.draft_padding,
    )
    table = graph_table(geometry)
    backend = EagerBackend(
        {unit.name: unit for unit in table.units}, dict(scopes(geometry, target_weights, draft_weights))
    )
    manifest = _manifest(geometry, table, shape)
    return Rig(shape, geometry, table, manifest, backend, target_weights, draft_weights)


def attentive(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Random weights with strong and sharp attention, so that a wrong KV row changes the text.

    As drawn, a row's own embedding outweighs all that it reads from others, and faults in KV stay unseen. With these
    gains logits still agree with the reference to 1e-5, and the two best lie 1e-3 and more apart.
    """
    gains = {"q_proj": 2.0, "k_proj": 2.0, "v_proj": 2.0, "o_proj": 3.0}
    return {
        name: tensor * next((gain for key, gain in gains.items() if key in name), 1.0)
        for name, tensor in weights.items()
    }


def _manifest(geometry: Geometry, table: GraphTable, shape: Shape) -> Manifest:
    """The builder's manifest of graphs that run eagerly, with what a test may vary."""
    plain = eager_bundle(geometry, table).manifest
    lossless = "exact" if shape.exact_greedy else "near_tie"
    return replace(
        plain,
        name="toy",
        target=replace(plain.target, reference="toy", eos_token_ids=shape.eos),
        draft=replace(plain.draft, reference="toy"),
        exactness=Exactness(lossless, shape.bitwise_across, 0, shape.context_widths),
    )


def with_eos(rig: Rig, *eos: int) -> Rig:
    """The same rig, whose target declares `eos` as its end-of-sequence ids."""
    manifest = replace(rig.manifest, target=replace(rig.manifest.target, eos_token_ids=eos))
    return replace(rig, manifest=manifest)


def oracle(texts: Mapping[str, Sequence[int]], pattern: Sequence[int], k: int = K) -> ScriptedProposer:
    """A draft whose i-th proposal is `pattern[i % len(pattern)]` right tokens and then wrong ones.

    Args:
        texts: for each request its whole text, prompt included, with at least k tokens to spare.
    """
    turns: dict[str, int] = {}

    def propose(sequence: Running, room: int) -> list[int]:
        name = sequence.request.request_id
        turn = turns[name] = turns.get(name, -1) + 1
        right = pattern[turn % len(pattern)]
        known = texts[name][len(sequence.token_ids) :][:room]
        return [token if i < right else (token + 1) % VOCAB for i, token in enumerate(known)]

    return ScriptedProposer(propose, k)


def prompt_of(length: int, seed: int = 0) -> tuple[int, ...]:
    """`length` random ids of the vocabulary."""
    return tuple(torch.randint(0, VOCAB, (length,), generator=torch.Generator().manual_seed(seed)).tolist())


def text_of(rig: Rig, request: Request, spare: int = K) -> list[int]:
    """A request's prompt and everything that plain decoding can write after it, with `spare` tokens more."""
    return [*request.prompt_token_ids, *rig.plain(request.prompt_token_ids, request.max_tokens + spare)]


@dataclass
class Watch:
    """A draft that works as the real one and is then overruled, so that any accept pattern meets a true draft KV.

    Pass `watch.over(texts, pattern)` as a proposer; `proposed` collects (request, committed tokens, the draft's own
    proposal) each time the draft was asked.
    """

    proposed: list[tuple[str, tuple[int, ...], list[int]]] = field(default_factory=list)

    def over(
        self, texts: Mapping[str, Sequence[int]] | None = None, pattern: Sequence[int] = (K,)
    ) -> Callable[[GraphSet], Proposer]:
        """A proposer factory; without `texts` the draft is only watched, not overruled."""

        def watched(graphs: GraphSet) -> Proposer:
            k = graphs.manifest.speculation.num_speculative_tokens
            return _Watched(graphs, self, None if texts is None else oracle(texts, pattern, k))

        return watched


class _Watched(Proposer):
    """The bundle's own draft, noted each time and then overruled by the script, if there is one."""

    def __init__(self, graphs: GraphSet, watch: Watch, script: ScriptedProposer | None) -> None:
        self._draft = draft_proposer(graphs)
        self._watch, self._script = watch, script

    def _note(self, members: Sequence[Running]) -> None:
        for member in members:
            if member.drafts:
                note = (member.request.request_id, tuple(member.token_ids), list(member.drafts))
                self._watch.proposed.append(note)

    def read_prefill(
        self,
        sequence: Running,
        inputs: Mapping[str, Tensor],
        next_token: Tensor,
        features: Tensor,
        following: int | None,
    ) -> list[int]:
        return self._draft.read_prefill(sequence, inputs, next_token, features, following)

    def read_verify(
        self, members: Sequence[Running], inputs: Mapping[str, Tensor], accepted: Tensor, features: Tensor
    ) -> list[list[int]]:
        return self._draft.read_verify(members, inputs, accepted, features)

    def after_prefill(self, sequence: Running, shifted: list[int], start: int, features: Tensor, final: bool) -> None:
        self._draft.after_prefill(sequence, shifted, start, features, final)
        self._note([sequence])
        if self._script:
            self._script.after_prefill(sequence, shifted, start, features, final)

    def limit(self, num_speculative_tokens: int) -> None:
        self._draft.limit(num_speculative_tokens)
        if self._script:
            self._script.limit(num_speculative_tokens)

    def follows(self, sequence: Running) -> bool:
        return self._draft.follows(sequence)

    def after_verify(
        self, members: Sequence[Running], accepted: Sequence[list[int]], features: Tensor, bucket: Bucket
    ) -> None:
        self._draft.after_verify(members, accepted, features, bucket)
        self._note(members)
        if self._script:
            self._script.after_verify(members, accepted, features, bucket)


class Observed:
    """A graph that shows its inputs before it runs: `graphs.wrap(lambda graph: Observed(graph, look))`."""

    def __init__(self, graph: LoadedGraph, look: Callable[[Graph, Mapping[str, Tensor]], None]) -> None:
        self._graph, self._look = graph, look

    def __getattr__(self, name: str) -> object:
        return getattr(self._graph, name)

    def __call__(self, inputs: Mapping[str, Tensor]) -> list[Tensor]:
        self._look(self._graph.spec, inputs)
        return self._graph(inputs)


def observe(engine: Engine, look: Callable[[Graph, Mapping[str, Tensor]], None]) -> None:
    """Call `look(spec, inputs)` before every graph that `engine` runs."""
    engine.graphs.wrap(lambda graph: cast(LoadedGraph, Observed(graph, look)))
