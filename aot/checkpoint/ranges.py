"""The range of every number that a model's files state: config.json, GGUF metadata and tensors' shapes.

Files come from strangers, and a number that no model has ends as an endless loop, as an allocation beyond any memory
or as an overflow deep in a library. So each key that is read has a line here, far above what is published, and
`Fields` refuses a value outside it by name. A key without a line is a mistake of ours and fails at once.
"""

from __future__ import annotations

# Sizes and ids stay within an int32, which graphs index by
_MOST = 2**31 - 1
_HIDDEN, _HEADS, _LENGTH, _LAYERS, _VOCABULARY = (1, 2**20), (1, 2**12), (1, _MOST), (1, 2**10), (1, 2**24)

INTEGERS: dict[str, tuple[int, int]] = {
    "bos_token_id": (0, _MOST),
    "draft_vocab_size": _VOCABULARY,
    # -1 stands for none
    "eos_token_id": (-1, _MOST),
    "head_dim": _HEADS,
    "hidden_size": _HIDDEN,
    "intermediate_size": (1, 2**22),
    "intermediate_size_mlp": (1, 2**22),
    "max_position_embeddings": _LENGTH,
    "max_window_layers": (0, _MOST),
    "num_attention_heads": _HEADS,
    "num_aux_hidden_states": _LAYERS,
    "num_hidden_layers": _LAYERS,
    "num_key_value_heads": _HEADS,
    "original_max_position_embeddings": _LENGTH,
    "sliding_window": _LENGTH,
    "target_hidden_size": _HIDDEN,
    "vocab_size": _VOCABULARY,
    # Ids of layers; whether the target has them is checked where it is known
    "aux_layers": (0, _MOST),
    "eagle_aux_hidden_state_layer_ids": (0, _MOST),
    "layer_ids": (0, _MOST),
    "target_layer_ids": (0, _MOST),
    # GGUF's keys, without the architecture before them
    "attention.head_count": _HEADS,
    "attention.head_count_kv": _HEADS,
    "attention.key_length": _HEADS,
    "attention.value_length": _HEADS,
    "block_count": _LAYERS,
    "context_length": _LENGTH,
    "embedding_length": _HIDDEN,
    "expert_count": (0, _MOST),
    "feed_forward_length": (1, 2**22),
    "rope.dimension_count": _HEADS,
}

# All of them are above 0, and at most this
NUMBERS: dict[str, float] = {
    "attention.layer_norm_rms_epsilon": 1.0,
    "attention_factor": 1e3,
    "beta_fast": 1e6,
    "beta_slow": 1e6,
    "factor": 1e6,
    "high_freq_factor": 1e6,
    "logit_scale": 1e6,
    "low_freq_factor": 1e6,
    "mscale": 1e3,
    "mscale_all_dim": 1e3,
    "partial_rotary_factor": 1.0,
    "rms_norm_eps": 1.0,
    "rope.freq_base": 1e15,
    "rope_theta": 1e15,
}


def integer_range(key: str) -> tuple[int, int]:
    """The least and the largest value of the integer `key`, which in GGUF begins with the architecture."""
    return INTEGERS[key] if key in INTEGERS else INTEGERS[key.partition(".")[2]]


def largest_number(key: str) -> float:
    """The largest value of the number `key`."""
    return NUMBERS[key] if key in NUMBERS else NUMBERS[key.partition(".")[2]]
