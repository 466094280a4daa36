"""What a Neuron graph's file takes and gives: its parameters and results, in order and by name.

A HLO module and the NEFF compiled from it have one flat list of parameters: weights, KV pools, the rank, then what the
loop hands in. Their tensors are known by name on the device, so both tables are part of the manifest, and a runtime
binds by them and checks them against the loaded model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from runtime.bundle.dtypes import Dtype
from runtime.bundle.ranges import Between, Entries

Shape = Annotated[tuple[Annotated[int, Between(0, 2**40)], ...], Entries(0, 8)]
Role = Literal["weight", "kv", "rank", "input"]


@dataclass(frozen=True)
class Parameter:
    """One parameter of the module. Shapes are those of one rank.

    name: for a weight its full name ("target.layers.3.mlp.down_proj.weight"), for KV "kv.N.k", else the graph's input.
    neff_name: the tensor's name in the NEFF; an aliased parameter has a suffix there.
    sharded: each rank has a part of its own of this weight or pool.
    """

    name: str
    neff_name: str
    role: Role
    dtype: Dtype
    shape: Shape
    sharded: bool = False


@dataclass(frozen=True)
class Result:
    """One result of the module. `alias_of` names the KV parameter whose memory it is written to, "" for the others."""

    name: str
    neff_name: str
    dtype: Dtype
    shape: Shape
    alias_of: str = ""
