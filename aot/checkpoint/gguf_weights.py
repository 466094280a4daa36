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
from aot.checkpoint.gguf_names import hugging_face_name
from aot.checkpoint.target import TargetConfig
from runtime.bundle.errors import ConfigError, HostError

if TYPE_CHECKING:
    import torch


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
            weights[hugging_face_name(tensor.name)] = values
    except (ValueError, KeyError, IndexError, NotImplementedError, RuntimeError, OSError) as error:
        raise ConfigError(
            f"the weights in {path.name} cannot be read", found=str(error), repair="fetch the file again"
        ) from error
    return weights


def _halves(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Reorder the rows of [heads * d, in] within each head from pairs to halves: 0, 2, ... then 1, 3, ..."""
    rows, columns = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.transpose(1, 2).reshape(rows, columns)
