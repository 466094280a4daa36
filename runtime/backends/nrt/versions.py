"""Which Neuron runtime a NEFF needs: the only public rule is which compiler and runtime were released together.

Two more numbers that no public document ties to a version stand here too: the device families, and the newest NEFF
format that was described anywhere when this was written.
"""

from __future__ import annotations

import re

# Compiler (major, minor) -> runtime library (major, minor) of the same Neuron SDK release, 2.26 to 2.32
RELEASED_TOGETHER = {
    (2, 21): (2, 28),
    (2, 22): (2, 29),
    (2, 23): (2, 30),
    (2, 24): (2, 31),
    (2, 25): (2, 32),
    (2, 26): (2, 33),
    (2, 27): (2, 34),
}

# requires.device -> values of nrt_instance_info_t.family (nrt.h): a family has variants, such as trn2u
FAMILIES = {
    "trn1": frozenset({2, 3}),
    "inf2": frozenset({4, 7}),
    "trn2": frozenset({5, 6, 8, 9, 10, 11, 12, 13}),
    "trn3": frozenset({14, 15}),
}

NEWEST_NEFF_MAJOR = 2


def minimum_runtime(compiler: str) -> tuple[int, int] | None:
    """The runtime library (major, minor) that goes with a compiler's version text ("2.27.5334.0+ab12").

    None where the text or the version is unknown: that is no ground to refuse anything.
    """
    found = re.search(r"(\d+)\.(\d+)", compiler)
    return RELEASED_TOGETHER.get((int(found[1]), int(found[2]))) if found else None


def family_name(family: int) -> str:
    """How a bundle would name the device family `family`, or its number."""
    return next((name for name, members in FAMILIES.items() if family in members), f"family {family}")
