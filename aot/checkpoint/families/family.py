"""What a target family says about itself.

Residual-stream positions, which EAGLE3's auxiliary layers are given in, need no word here: a target's graph is
a line of calls, embed, layer 0, layer 1 and so on, and position i is the value between two of them. So every
family that fits the registry can be tapped anywhere, the embedding and the last layer's output included.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from aot.checkpoint.fields import Fields, brief
from runtime.bundle.errors import ConfigError


@dataclass(frozen=True)
class LayerFeatures:
    """What a model's decoder layers have beyond Llama's.

    Attributes:
        qkv_bias, o_bias: biases of the query, key and value projections, and of the output projection.
        qk_norm: an RMSNorm over each query and key head before rotation.
        windows: for each layer how many tokens a row sees, itself among them; 0 means all. Empty: all of them
            see all.
    """

    qkv_bias: bool = False
    o_bias: bool = False
    qk_norm: bool = False
    windows: tuple[int, ...] = ()


@dataclass(frozen=True)
class Family:
    """A family of target models.

    Attributes:
        architecture: the one entry of config.json's `architectures`.
        features: reads a config.json and refuses by name what the graphs lack. Its second argument is the
            number of layers.
        num_kv_heads, head_dim, max_position_embeddings: what a config.json that leaves the key out means, as in
            transformers' configuration class; None: as many as query heads, hidden size over query heads.
        gguf: how llama.cpp orders the rows of this family's query and key projections, for rotary pairs
            (x0, x1) or for halves (x[i], x[i + d / 2]) as Hugging Face does; None: not read from GGUF.
    """

    architecture: str
    features: Callable[[Fields, int], LayerFeatures]
    num_kv_heads: int | None = None
    head_dim: int | None = None
    max_position_embeddings: int = 2048
    gguf: Literal["pairs", "halves"] | None = None


def refuse_unless(config: Fields, key: str, right: object, default: object) -> None:
    """Refuse a config whose `key` (`default` where absent) is not `right`, naming the key."""
    found = config.raw[key] if config.has(key) else default
    if found != right:
        raise ConfigError(
            f"{key} of {config.where} is not supported yet",
            expected=brief(right),
            found=brief(found),
            repair="choose a model without it",
        )


def window_size(config: Fields) -> int:
    """`sliding_window` in tokens; null means that there is none, 0, and an absent key transformers' 4096."""
    if "sliding_window" in config.raw and not config.has("sliding_window"):
        return 0
    return config.integer("sliding_window", 4096)


def windows_by_layer_type(config: Fields, num_layers: int, window: int, windowed_from: int) -> tuple[int, ...]:
    """Each layer's window from `layer_types`, or, where a config has none, from where the windows begin.

    Args:
        window: of the windowed layers, in tokens; 0: there are none.
        windowed_from: the first windowed layer where `layer_types` is absent.

    Raises:
        ConfigError: `layer_types` holds an unknown type, is not one per layer, or asks for a window of no size.
    """
    if not config.has("layer_types"):
        found = tuple(window if layer >= windowed_from else 0 for layer in range(num_layers))
        return found if any(found) else ()
    kinds = config.raw["layer_types"]
    known = {"full_attention": 0, "sliding_attention": window}
    if not isinstance(kinds, list) or len(kinds) != num_layers or any(kind not in list(known) for kind in kinds):
        raise ConfigError(
            f"layer_types of {config.where} is not supported",
            expected=f"{num_layers} of {' or '.join(known)}",
            found=brief(kinds, 1000),
            repair="choose a model whose layers all attend, fully or in a window",
        )
    if "sliding_attention" in kinds and not window:
        raise ConfigError(
            f"layer_types of {config.where} names windows, and no size is given for them",
            expected="use_sliding_window: true and sliding_window in tokens",
            repair="correct the config",
        )
    found = tuple(known[kind] for kind in kinds)
    return found if any(found) else ()
