"""The KV pools of a backend that works in the host's memory."""

from __future__ import annotations

import torch
from torch import Tensor

from runtime.bundle.errors import HostError
from runtime.bundle.manifest import KVCache
from runtime.weights import dtype_of


def allocate_pools(cache: KVCache, num_blocks: int) -> dict[str, Tensor]:
    """The KV pools `kv.N.k` and `kv.N.v`, zeroed; memory is taken by the system as pages are first written.

    Raises:
        HostError: there is not enough memory.
    """
    pools = {}
    try:
        for group in cache.groups:
            shape = (num_blocks, cache.block_size, group.kv_heads, group.head_dim)
            for layer in range(group.first_layer, group.first_layer + group.layers):
                for half in "kv":
                    pools[f"kv.{layer}.{half}"] = torch.zeros(shape, dtype=dtype_of(group.dtype))
    except RuntimeError as error:
        raise HostError(
            "There is not enough memory for the KV pool",
            expected=f"{num_blocks} blocks of {cache.block_size} tokens",
            found=str(error).partition("\n")[0],
            repair="free memory, or build the bundle with a smaller kv_blocks",
        ) from None
    return pools
