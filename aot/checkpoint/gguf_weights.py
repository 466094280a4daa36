"""The tensors of a GGUF file under Hugging Face's names, dequantised to float32.

The `gguf` package reads and dequantises; it is imported only here. Two things stand between its tensors and
ours: the names, and in some families the rows of the query and key projections, which llama.cpp stores for
interleaved rotary pairs (x0, x1) and Hugging Face for halves (x[i], x[i + d / 2]). Going through
transformers gives the same bits (a test says so) but takes three times as long and a second extra package.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from aot.checkpoint.families.registry import family_named
from aot.checkpoint.target import TargetConfig
from runtime.bundle.errors import ConfigError, HostError

if TYPE_CHECKING:
    import torch

_WHOLE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_q.bias": "self_attn.q_proj.bias",
    "attn_k.bias": "self_attn.k_proj.bias",
    "attn_v.bias": "self_attn.v_proj.bias",
    "attn_q_norm.weight": "self_attn.q_norm.weight",
    "attn_k_norm.weight": "self_attn.k_norm.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}


def read_gguf_weights(path: Path, config: TargetConfig) -> dict[str, torch.Tensor]:
    """Every tensor of `path`, float32, by its Hugging Face name, or by its own where it has no counterpart.

    Raises:
        HostError: the `gguf` package is not installed.
        ConfigError: the file is damaged, or its quantisation is unknown to the package.
    """
    import torch

    try:
        import gguf
    except ImportError:
        raise HostError(
            f"reading {path.name} needs the gguf package",
            repair="pip install 'eagle3-aot[demo]', or pip install gguf",
        ) from None
    weights: dict[str, torch.Tensor] = {}
    in_pairs = family_named(config.family, path.name, gguf=True).gguf == "pairs"
    try:
        for tensor in gguf.GGUFReader(path).tensors:
            plain = gguf.dequantize(tensor.data, tensor.tensor_type)
            # float32 tensors come as views of the file, which is mapped read-only.
            values = torch.from_numpy(plain if plain.flags.writeable else plain.copy()).float()
            if in_pairs and ".attn_q." in tensor.name:
                values = _halves(values, config.num_heads)
            elif in_pairs and ".attn_k." in tensor.name:
                values = _halves(values, config.num_kv_heads)
            weights[_hugging_face_name(tensor.name)] = values
    except (ValueError, KeyError, IndexError, NotImplementedError, RuntimeError, OSError) as error:
        raise ConfigError(
            f"the weights in {path.name} cannot be read", found=str(error), repair="fetch the file again"
        ) from error
    return weights


def _hugging_face_name(name: str) -> str:
    if name in _WHOLE:
        return _WHOLE[name]
    block, _, rest = name.partition(".")[2].partition(".")
    return f"model.layers.{block}.{_LAYER[rest]}" if name.startswith("blk.") and rest in _LAYER else name


def _halves(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Reorder the rows of [heads * d, in] within each head from pairs to halves: 0, 2, ... then 1, 3, ..."""
    rows, columns = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.transpose(1, 2).reshape(rows, columns)
