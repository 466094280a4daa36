"""The CPU that Inductor compiles for: the level's, whatever this machine has beyond it.

Inductor asks PyTorch what the CPU can do and takes the most of it: on a host with AMX it would write tile instructions
into a unit for hosts without. Here PyTorch answers for a CPU that has the level's flags and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

# What Inductor asks, and the flag, under the kernel's name, that is the answer
_ASKED = {
    "_is_avx2_supported": "avx2",
    "_is_avx512_supported": "avx512vl",
    "_is_avx512_bf16_supported": "avx512_bf16",
    "_is_vnni_supported": "avx512_vnni",
    "_is_amx_tile_supported": "amx_tile",
    "_is_amx_fp16_supported": "amx_fp16",
    "_init_amx": "amx_tile",
}


def answer_for(features: Collection[str]) -> None:
    """Let PyTorch answer for a CPU with `features`, flags under the kernel's names."""
    import torch
    from torch._inductor import cpu_vec_isa

    def answer(has: bool) -> Callable[[], bool]:
        return lambda: has

    for question, flag in _ASKED.items():
        setattr(torch.cpu, question, answer(flag in features))
    cpu_vec_isa.valid_vec_isa_list.cache_clear()
