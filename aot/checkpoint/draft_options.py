"""What a user may say about a draft in the YAML, above what the checkpoint says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Semantic = Literal["input_of", "output_of", "auto"]


@dataclass(frozen=True)
class DraftOptions:
    """Overrides of a draft's config.json; None, "auto" and the empty default leave it to the checkpoint.

    Attributes:
        aux_layers: ids of the auxiliary layers, read as `aux_semantic` says.
        require_aux_layers: no default is taken where nobody names them.
        aux_semantic: what ids mean, the streams that enter those layers or those that leave them.
        norm_before_residual, norm_output, rope_theta: as the config.json keys.
        attention_window: tokens that a row of the draft sees, in every layer; 0 for all.
        embed_tokens: whose embedding table the draft reads; "auto" is its own where the checkpoint has one.
    """

    aux_layers: tuple[int, ...] | None = None
    require_aux_layers: bool = False
    aux_semantic: Semantic = "auto"
    norm_before_residual: bool | None = None
    norm_output: bool | None = None
    rope_theta: float | None = None
    attention_window: int | None = None
    embed_tokens: Literal["auto", "draft", "target"] = "auto"


@dataclass(frozen=True)
class TargetFacts:
    """What a draft's config is checked against: its target's sizes. `num_layers` None: the target is not known."""

    vocab_size: int
    hidden_size: int
    num_layers: int | None


# No override: a draft as its checkpoint says.
AS_PUBLISHED = DraftOptions()
