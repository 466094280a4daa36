"""B7: the manifest's constants of a unit are those that its compiled code asks for."""

from __future__ import annotations

import pytest

from runtime.backends.aoti import _check_constants
from runtime.bundle.errors import IntegrityError
from runtime.bundle.manifest import Constant, Unit

OWN = {"down_proj": "down_proj.weight", "frozen0": "frozen0", "norm": "norm.weight"}


def unit(**weights: str) -> Unit:
    constants = tuple(Constant(name, weight, "plain", "float32", (4, 4)) for name, weight in weights.items())
    return Unit("target_layer.r1x4", "", "", constants, (), ())


def test_the_codes_own_constants_pass() -> None:
    _check_constants(unit(down_proj="down_proj.weight", frozen0="head.weight", norm="norm.weight"), OWN)


@pytest.mark.parametrize(
    ("weights", "named"),
    [
        ({"down_proj": "down_proj.weight", "frozen0": "head.weight"}, "norm"),
        ({"down_proj": "down_proj.weight", "frozen0": "head.weight", "norm": "norm.weight", "more": "x"}, "more"),
        ({"down_proj": "norm.weight", "frozen0": "head.weight", "norm": "down_proj.weight"}, "down_proj"),
    ],
)
def test_b7_other_constants_are_refused(weights: dict[str, str], named: str) -> None:
    with pytest.raises(IntegrityError) as caught:
        _check_constants(unit(**weights), OWN)
    assert caught.value.exit_code == 5
    assert named in caught.value.expected + caught.value.found
