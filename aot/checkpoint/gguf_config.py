"""A GGUF file's metadata as a config.json, so that one reader serves both."""

from __future__ import annotations

from typing import Any

from aot.checkpoint.endings import eos_of_gguf, special_of_gguf
from aot.checkpoint.families.registry import family_named
from aot.checkpoint.fields import Fields
from aot.checkpoint.gguf_header import GgufHeader
from runtime.bundle.errors import ConfigError

# What llama.cpp stores biases of in the families that have them
_BIASED = (".attn_q.bias", ".attn_k.bias", ".attn_v.bias")


def config_from_gguf(header: GgufHeader, where: str) -> dict[str, Any]:
    """The config.json keys that `header` determines; `model_type` is the GGUF architecture.

    Args:
        where: the file's name, for errors.

    Raises:
        ConfigError: the family is not read from GGUF, a key is missing or wrong, or the file holds what its
            config.json keys could not say.
    """
    facts = Fields(header.metadata, where)
    family = facts.text("general.architecture")
    family_named(family, where, gguf=True)
    # Of the families with biases only Qwen2 is there; a Llama model with them would need its bias rows reordered
    allowed = _BIASED if family == "qwen2" else ()
    biases = [name for name in header.shapes if name.endswith(".bias") and not name.endswith(allowed)]
    for found, what in (
        (facts.integer(f"{family}.expert_count", 0), "a mixture of experts"),
        (biases, "a model with biases"),
        ("rope_freqs.weight" in header.shapes, "a model with rope frequency factors (rope_freqs.weight)"),
        (facts.text(f"{family}.rope.scaling.type", "none") != "none", "a model with rope scaling"),
    ):
        if found:
            raise ConfigError(
                f"{where} is {what}, which is not supported yet from GGUF",
                repair="give the original checkpoint's folder or hub id instead",
            )
    if len(header.shapes.get("token_embd.weight", ())) != 2:
        raise ConfigError(f"{where} has no token_embd.weight of two dimensions", repair="fetch the file again")
    num_heads = facts.integer(f"{family}.attention.head_count")
    hidden_size = facts.integer(f"{family}.embedding_length")
    # Families whose heads are of a size of their own store it as the key's length and may leave the rest out
    head_dim = facts.integer(f"{family}.attention.key_length", max(1, hidden_size // num_heads))
    rotated = facts.integer(f"{family}.rope.dimension_count", head_dim)
    widths = {rotated, head_dim, facts.integer(f"{family}.attention.value_length", head_dim)}
    if len(widths) > 1:
        raise ConfigError(
            f"{where} has heads of several widths or partly rotated ones, which is not supported yet",
            found=str(sorted(widths)),
            repair="choose another model",
        )
    eps = facts.number(f"{family}.attention.layer_norm_rms_epsilon")
    return {
        "model_type": family,
        "hidden_size": hidden_size,
        "intermediate_size": facts.integer(f"{family}.feed_forward_length"),
        "num_hidden_layers": facts.integer(f"{family}.block_count"),
        "num_attention_heads": num_heads,
        "num_key_value_heads": facts.integer(f"{family}.attention.head_count_kv", num_heads),
        "head_dim": head_dim,
        "vocab_size": header.shapes["token_embd.weight"][0],
        # Stored in float32; seven digits bring back the number that the model's author wrote, 1e-05.
        "rms_norm_eps": float(f"{eps:.7g}"),
        "rope_theta": facts.number(f"{family}.rope.freq_base", 10000.0),
        "max_position_embeddings": facts.integer(f"{family}.context_length"),
        "tie_word_embeddings": "output.weight" not in header.shapes,
        "eos_token_id": eos_of_gguf(header),
        "bos_token_id": special_of_gguf(header, "bos"),
    }
