"""A failed compile ends in one sentence on what to do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aot.backends.neuron.advice import CODES, EXITS, advise, codes


@pytest.mark.parametrize(
    ("log", "exit_code", "said"),
    [
        (
            "[ERROR] [NCC_EVRF009] too large",
            70,
            "NCC_EVRF009: the graph and its buffers do not fit the device's memory",
        ),
        ("NCC_ITIN902 then NCC_EARG001", 1, "NCC_EARG001: this target does not know that lnc"),
        ("NCC_ITIN902: internal", 70, "look NCC_ITIN902 up"),
        ("", 70, "failed inside, which often does not come again"),
        ("", -9, "want of host memory: pass --jobs 1"),
        ("", 137, "want of host memory: pass --jobs 1"),
        ("", -6, "(abort)"),
        ("", -11, "(segmentation fault)"),
        ("", 2, "did not understand its arguments"),
        ("", -7, "ended by signal 7"),
        ("Traceback", 1, "the log says why"),
    ],
)
def test_advice(log: str, exit_code: int, said: str) -> None:
    assert said in advise(log, exit_code)


def test_codes_are_listed_once_in_order() -> None:
    assert codes("NCC_EVRF009 NCC_EOOM001 [NCC_EVRF009] XNCC_ ncc_EOOM002") == ["EVRF009", "EOOM001"]


@given(log=st.text(), exit_code=st.integers(-64, 255))
def test_advice_is_always_one_line(log: str, exit_code: int) -> None:
    said = advise(log, exit_code)
    assert said
    assert "\n" not in said


def test_advice_reads_on_in_a_sentence() -> None:
    for sentence in (*CODES.values(), *EXITS.values()):
        assert "\n" not in sentence
        assert not sentence.endswith(".")
