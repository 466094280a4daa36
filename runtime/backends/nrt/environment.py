"""The variables that the Neuron runtime reads once, in nrt_init: how many cores, and how many physical ones make one.

What the bundle needs is set where nothing is set, and left alone where what is set will do. A contradiction is reported
and not overruled, since whoever set the variable may have given the other cores to another process.
"""

from __future__ import annotations

import os

from runtime.bundle.errors import Eagle3Error, HostError
from runtime.bundle.manifest import Requires

VISIBLE, NUMBER, LNC = "NEURON_RT_VISIBLE_CORES", "NEURON_RT_NUM_CORES", "NEURON_LOGICAL_NC_CONFIG"
MOST_CORES = 4096  # many times what one instance has


def wanted(requires: Requires) -> dict[str, str]:
    """The variables that this process lacks, with the values that the bundle wants."""
    missing = {}
    if requires.lnc and LNC not in os.environ:
        missing[LNC] = str(requires.lnc)
    if VISIBLE not in os.environ and NUMBER not in os.environ:
        missing[NUMBER] = str(requires.ranks)
    return missing


def contradictions(requires: Requires) -> list[Eagle3Error]:
    """What is set and does not go with the bundle."""
    problems: list[Eagle3Error] = []
    lnc = os.environ.get(LNC)
    if requires.lnc and lnc is not None and lnc.strip() != str(requires.lnc):
        problems.append(
            HostError(
                f"{LNC} is not what the bundle was compiled for",
                expected=str(requires.lnc),
                found=lnc,
                repair=f"unset {LNC}, or rebuild the bundle with that logical NeuronCore size",
            )
        )
    # The runtime goes by the list where both are set
    name = VISIBLE if VISIBLE in os.environ else NUMBER
    if name not in os.environ:
        return problems
    cores = visible_cores(os.environ[name]) if name == VISIBLE else core_number(os.environ[name])
    if cores is None or cores < requires.ranks:
        problems.append(
            HostError(
                f"{name} does not leave the bundle a NeuronCore for each rank",
                expected=f"{requires.ranks} or more",
                found=os.environ[name],
                repair=f"unset {name}, or name at least {requires.ranks} cores",
            )
        )
    return problems


def visible_cores(text: str) -> int | None:
    """How many cores a list such as "0-3,6" names; None where it is no such list."""
    cores: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not (first.isdecimal() and (last.isdecimal() if dash else True)):
            return None
        if int(last or first) - int(first) > MOST_CORES:
            return None
        cores.update(range(int(first), int(last or first) + 1))
    return len(cores)


def core_number(text: str) -> float | None:
    """How many cores NEURON_RT_NUM_CORES asks for; 0 is the runtime's word for all."""
    if not text.strip().isdecimal():
        return None
    return int(text) or float("inf")
