"""The one schema of a draft: everything that decides its graphs, and who said so."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from aot.checkpoint.draft_format import Form
from aot.checkpoint.draft_options import Semantic


@dataclass(frozen=True)
class DraftConfig:
    """Everything that decides a draft's graphs and how its weights are read.

    Attributes:
        vocab_size: the target's vocabulary; `draft_vocab_size` is the draft head's, at most as large.
        rope_theta, rope_scaling: as in rope.py.
        target_hidden_size: width of one state of the target; `fc` maps num_aux of them to hidden_size.
        aux_layers: residual-stream positions of the auxiliary states, ascending, each in [0, target layers];
            empty for a draft on the final state.
        aux_semantic: how the ids behind aux_layers were read.
        norm_before_residual: the residual of the first layer is the normed hidden state, not the hidden state.
        sources: who decided each field: config, weights, default or override.
        form: whose form the config is in.
        stored_dtype: of the weights as they are published; they are cast to the build's.
        num_layers: decoder layers; the first reads the embedding beside the hidden state, further ones the stream.
        features: what the draft reads of the target: auxiliary states through fc, or the final normed state as
            it is (use_aux_hidden_state false).
        feature_norm: before fc, the joined states are normed (norm_before_fc), or each by itself (fc_norm).
        norm_output: the state that is handed on is the one after the final norm.
        windows: for each layer the tokens that a row sees, 0 for all; empty where no layer has a window.
        logit_scale: factor of the draft's logits.
        own_embedding, own_head: False where the draft shares the target's.
        notes: what was taken rather than stated, one sentence each, without a full stop.
    """

    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    draft_vocab_size: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: dict[str, Any] | None
    max_position_embeddings: int
    target_hidden_size: int
    num_aux: int
    aux_layers: tuple[int, ...]
    norm_before_residual: bool
    sources: dict[str, str]
    form: Form = "safeailab"
    stored_dtype: str = ""
    aux_semantic: Semantic = "input_of"
    num_layers: int = 1
    features: Literal["auxiliary", "final"] = "auxiliary"
    feature_norm: Literal["none", "joined", "each"] = "none"
    fc_bias: bool = False
    norm_output: bool = False
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    windows: tuple[int, ...] = ()
    logit_scale: float = 1.0
    own_embedding: bool = False
    own_head: bool = True
    notes: tuple[str, ...] = ()

    @property
    def full_vocabulary(self) -> bool:
        """Whether draft ids are the target's; an increasing map of as many ids can be no other."""
        return self.draft_vocab_size == self.vocab_size

    def to_json(self) -> dict[str, Any]:
        """`from_json(to_json())` equals self."""
        raw = dataclasses.asdict(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in raw.items()}

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> DraftConfig:
        """The config that `to_json` wrote."""
        tuples = {name: tuple(raw[name]) for name in ("aux_layers", "windows", "notes")}
        return cls(**{**raw, **tuples})
