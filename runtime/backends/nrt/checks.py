"""What must hold before a NEFF goes near a device: otherwise the runtime would answer with "status 2" or not at all.

All that is wrong is reported at once: the runtime's version, the device family, the logical core size, the NEFF format.
"""

from __future__ import annotations

import os

from runtime.backends.nrt.environment import LNC
from runtime.backends.nrt.structs import Version
from runtime.backends.nrt.versions import FAMILIES, NEWEST_NEFF_MAJOR, family_name, minimum_runtime
from runtime.bundle.errors import Eagle3Error, HostError, IntegrityError
from runtime.bundle.manifest import Manifest
from runtime.bundle.neff import Neff

REBUILD = "rebuild the bundle with eagle3-build"
# The runtime's own switch: NEFFs of an older family run on a newer one
LEGACY = "NEURON_RT_ALLOW_LEGACY_NEFF"


def neff_problems(manifest: Manifest, runtime: Version) -> list[Eagle3Error]:
    """Everything in the records of the bundle's NEFFs that this runtime library, or the bundle itself, contradicts."""
    problems: list[Eagle3Error] = []
    missing = [unit.name for unit in manifest.units if unit.neff is None]
    if missing:
        problems.append(
            IntegrityError(
                "The bundle is lowered but not compiled",
                expected="a NEFF for every unit",
                found=f"none for {missing[0]}" + (f" and {len(missing) - 1} others" if len(missing) > 1 else ""),
                repair="finish it with eagle3-build where neuronx-cc is on the PATH, or run it with --device sim",
            )
        )
    neffs = [unit.neff for unit in manifest.units if unit.neff is not None]
    return [*problems, *_format_problems(manifest, neffs, runtime), *_version_problems(manifest, neffs, runtime)]


def _format_problems(manifest: Manifest, neffs: list[Neff], runtime: Version) -> list[Eagle3Error]:
    problems: list[Eagle3Error] = []
    if any(neff.stand_in for neff in neffs) and not runtime.stand_in:
        problems.append(
            IntegrityError(
                "Refusing to load since the bundle's NEFFs come from a stand-in for the compiler",
                expected="NEFFs made by neuronx-cc",
                found=f"{sum(neff.stand_in for neff in neffs)} stand-ins",
                repair=f"{REBUILD} where neuronx-cc is on the PATH, or run it with --device sim",
            )
        )
    for version in sorted({neff.version for neff in neffs}):
        major = version.partition(".")[0]
        if not major.isdecimal() or int(major) > NEWEST_NEFF_MAJOR:
            problems.append(
                HostError(
                    "The bundle's NEFFs have a format that this version does not know",
                    expected=f"version {NEWEST_NEFF_MAJOR} or older",
                    found=version,
                    repair="update eagle3-run and the Neuron runtime",
                )
            )
    wanted = manifest.requires.lnc
    for lnc in sorted({neff.lnc for neff in neffs}):
        if wanted and lnc != wanted:
            problems.append(
                IntegrityError(
                    "NEFFs of the bundle were compiled for another logical NeuronCore size than it requires",
                    expected=f"lnc {wanted} ({LNC})",
                    found=f"lnc {lnc}",
                    repair=REBUILD,
                )
            )
    return problems


def _version_problems(manifest: Manifest, neffs: list[Neff], runtime: Version) -> list[Eagle3Error]:
    """One problem at most: the newest compiler asks for the newest runtime."""
    compilers = {manifest.toolchain.get("neuronx-cc", ""), *(neff.build_version for neff in neffs)}
    needed = {minimum: text for text in sorted(compilers) if (minimum := minimum_runtime(text)) is not None}
    if not needed or max(needed) <= runtime.numbers[:2]:
        return []
    least = max(needed)
    return [
        HostError(
            f"The Neuron runtime is older than the compiler that made the bundle ({needed[least]})",
            expected=f"runtime {least[0]}.{least[1]} or later",
            found=".".join(map(str, runtime.numbers)),
            repair="update aws-neuronx-runtime-lib, or rebuild the bundle with this instance's neuronx-cc",
        )
    ]


def family_problems(device: str, family: int) -> list[Eagle3Error]:
    """The instance's device family against the one that the bundle was compiled for."""
    found = family_name(family)
    if family in FAMILIES.get(device, frozenset()):
        return []
    order = list(FAMILIES)
    allowed = os.environ.get(LEGACY, "").lower() in ("1", "true")
    if allowed and device in order and found in order and order.index(found) > order.index(device):
        return []
    return [
        HostError(
            "The bundle is for another device family",
            expected=device,
            found=found,
            repair=f"run it on a {device} instance, or rebuild it with that target",
        )
    ]
