"""The manifest's tables of a unit against what its loaded NEFF says it takes and gives.

Who appends ".must_alias_input" to the name of a parameter that an output overwrites, the front end or the compiler, is
not documented, so a name is found with and without it. The runtime binds by the NEFF's own spelling.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from runtime.backends.nrt.structs import USAGE_INPUT, USAGE_OUTPUT, TensorInfo
from runtime.bundle.errors import Eagle3Error, ErrorGroup, IntegrityError
from runtime.bundle.interface import Parameter, Result
from runtime.bundle.manifest import Unit
from runtime.weights import dtype_of

SUFFIX = ".must_alias_input"
REPAIR = "rebuild the bundle with eagle3-build: the compiler changed what the graph takes or gives"


def spellings(unit: Unit, infos: Iterable[TensorInfo]) -> dict[str, str]:
    """For each parameter's and each result's neff_name the NEFF's own spelling of it.

    Raises:
        IntegrityError or an ErrorGroup of them: every tensor that is missing, left over or different.
    """
    found = {(info.usage, _bare(info.name)): info for info in infos}
    own: dict[str, str] = {}
    problems: list[Eagle3Error] = []
    wanted: list[tuple[int, Parameter | Result]] = [(USAGE_INPUT, entry) for entry in unit.parameters]
    wanted += [(USAGE_OUTPUT, entry) for entry in unit.results]
    for usage, entry in wanted:
        info = found.pop((usage, _bare(entry.neff_name)), None)
        what = f"{'Input' if usage == USAGE_INPUT else 'Output'} {entry.neff_name} of unit {unit.name}"
        if info is None:
            problems.append(IntegrityError(f"{what} is not in its NEFF", repair=REPAIR))
            continue
        own[entry.neff_name] = info.name
        expected, actual = _described(entry), (info.dtype, _shape(info.shape), info.size)
        if actual != expected:
            problems.append(
                IntegrityError(f"{what} differs", expected=_text(*expected), found=_text(*actual), repair=REPAIR)
            )
    for info in found.values():
        problems.append(
            IntegrityError(f"The NEFF of unit {unit.name} has a tensor of its own", found=info.name, repair=REPAIR)
        )
    if problems:
        what = f"The NEFF of unit {unit.name} is not what the manifest says"
        raise problems[0] if len(problems) == 1 else ErrorGroup(what, problems)
    return own


def _bare(name: str) -> str:
    return name.removesuffix(SUFFIX)


def _described(entry: Parameter | Result) -> tuple[str, tuple[int, ...], int]:
    return entry.dtype, _shape(entry.shape), math.prod(entry.shape) * dtype_of(entry.dtype).itemsize


def _shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A scalar has no dimension for one side and one element for the other."""
    return shape or (1,)


def _text(dtype: str, shape: tuple[int, ...], size: int) -> str:
    return f"{dtype} [{', '.join(map(str, shape))}] of {size} bytes"
