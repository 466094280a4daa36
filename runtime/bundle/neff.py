"""What is recorded of a NEFF: the compiled graph of one Neuron device family."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Neff:
    """A NEFF in the bundle and what its 1024-byte header says.

    path: of the file in the bundle.
    version: "MAJOR.MINOR" of the format; package_version, build_version, num_tpb, lnc, feature_bits, hash and uuid as
        the header has them, hash and uuid in hex.
    stand_in: it comes from a stand-in for the compiler, for tests, and no device can run it.
    """

    path: str
    package_version: int
    version: str
    build_version: str
    num_tpb: int
    lnc: int
    feature_bits: int
    hash: str
    uuid: str
    stand_in: bool
