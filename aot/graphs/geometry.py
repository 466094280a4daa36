"""The numbers that shape every graph, gathered from the configuration and both checkpoints."""

from __future__ import annotations

from dataclasses import dataclass, replace

from aot.checkpoint.draft import DraftConfig
from aot.checkpoint.target import TargetConfig
from aot.config import BuildConfig
from runtime.bundle.manifest import Buckets, KVGroup, Sampling
from runtime.bundle.schedule import KSchedule


@dataclass(frozen=True)
class Padding:
    """Sizes that a backend wants in place of the model's, at least as large; 0: the model's own."""

    hidden: int = 0
    vocab: int = 0


@dataclass(frozen=True)
class Geometry:
    """Sizes and buckets of one build.

    K is num_speculative_tokens, and `schedule` the number of drafts for each batch size where it is not always K.
    `sampling` is what the target's graphs do about it, see `Manifest.sampling`.
    `draft_fused` asks for one graph of the draft's whole turn in place of one for each of its passes.
    `target_padding` and `draft_padding` are for a backend whose hardware wants other sizes than the models have
    (aot/build/padding.py); the draft's vocabulary is that of its head. `ranks` share both models.
    """

    target: TargetConfig
    draft: DraftConfig
    dtype: str
    num_speculative_tokens: int
    max_model_len: int
    max_num_seqs: int
    block_size: int
    num_blocks: int
    buckets: Buckets
    sampling: Sampling
    exact_greedy: bool
    draft_fused: bool = False
    target_padding: Padding = Padding()
    draft_padding: Padding = Padding()
    ranks: int = 1
    schedule: KSchedule | None = None

    def per_rank(self, size: int) -> int:
        """One rank's part of `size` rows or heads; the last rank's may reach behind their end.

        For KV heads this is also right where ranks outnumber them and several hold the same one.
        """
        return -(-size // self.ranks)

    @property
    def target_hidden(self) -> int:
        """Channels of the target's hidden states in its graphs, padding included."""
        return self.target_padding.hidden or self.target.hidden_size

    @property
    def target_vocab(self) -> int:
        """Rows of the target's embedding table and head in its graphs, padding included."""
        return self.target_padding.vocab or self.target.vocab_size

    @property
    def draft_hidden(self) -> int:
        """Channels of the draft's hidden states in its graphs, padding included."""
        return self.draft_padding.hidden or self.draft.hidden_size

    @property
    def draft_vocab(self) -> int:
        """Rows of the draft's head in its graphs, padding included."""
        return self.draft_padding.vocab or self.draft.draft_vocab_size

    @property
    def verify_rows(self) -> int:
        """Rows of one request in a verify pass: its last token and K drafts."""
        return 1 + self.num_speculative_tokens

    def drafts_in(self, requests: int) -> tuple[int, ...]:
        """How many drafts a verify pass of this bucket of requests is compiled for, ascending, K last.

        Beside K, which every bucket has, those that the schedule has for batches that run in it.
        """
        k = self.num_speculative_tokens
        if self.schedule is None:
            return (k,)
        fewer = {used for _, _, used in self.schedule.ranges} - {k}
        return (*sorted(d for d in fewer if requests in self.schedule.buckets(self.buckets.num_seqs, d)), k)

    def kv_groups(self) -> tuple[KVGroup, KVGroup]:
        """The KV layers: the target's, and behind them the draft's. KV heads are those of one rank."""
        t, d = self.target, self.draft
        return (
            KVGroup("target", 0, t.num_layers, self.per_rank(t.num_kv_heads), t.head_dim, self.dtype),
            KVGroup("draft", t.num_layers, d.num_layers, self.per_rank(d.num_kv_heads), d.head_dim, self.dtype),
        )


def geometry(config: BuildConfig, target: TargetConfig, draft: DraftConfig) -> Geometry:
    """The geometry of `config` over the two models."""
    buckets = Buckets(
        prefill_tokens=tuple(config.buckets.prefill_tokens),
        num_seqs=tuple(config.buckets.num_seqs),
        context_tokens=tuple(config.buckets.context_tokens),
    )
    whole = Geometry(
        target=target,
        draft=draft,
        dtype=config.dtype,
        num_speculative_tokens=config.num_speculative_tokens,
        max_model_len=config.max_model_len,
        max_num_seqs=config.max_num_seqs,
        block_size=config.block_size,
        num_blocks=config.num_kv_blocks,
        buckets=buckets,
        sampling=config.sampling,
        exact_greedy=config.exact_greedy,
        draft_fused=config.draft_fused,
        schedule=config.schedule,
    )
    return over_ranks(whole, config.tensor_parallel_size)


def over_ranks(geometry: Geometry, ranks: int) -> Geometry:
    """`geometry` shared by `ranks` ranks, the heads' vocabularies padded to a multiple of them where they are none."""

    def padded(padding: Padding, vocab: int, own: int) -> Padding:
        rounded = -(-vocab // ranks) * ranks
        return replace(padding, vocab=rounded) if rounded != own else padding

    return replace(
        geometry,
        ranks=ranks,
        target_padding=padded(geometry.target_padding, geometry.target_vocab, geometry.target.vocab_size),
        draft_padding=padded(geometry.draft_padding, geometry.draft_vocab, geometry.draft.draft_vocab_size),
    )
