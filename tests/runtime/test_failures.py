"""What a request is told that ended because something done for it alone failed."""

from __future__ import annotations

from runtime.bundle.errors import IntegrityError
from runtime.failures import DEFECT_CODE, failed


def test_n2_an_error_of_ours_keeps_its_parts() -> None:
    """Not a whole sentence behind `found`."""
    error = IntegrityError("The tokenizer is damaged", expected="a whole one", found="a half", repair="rebuild it")
    made = failed("7", error)
    assert (made.expected, made.found, made.repair, made.code) == ("a whole one", "a half", "rebuild it", DEFECT_CODE)
    assert made.what.startswith("Request 7 ")
    assert "the tokenizer is damaged" in made.what
    assert made.__cause__ is error


def test_n2_another_exception_is_what_was_found() -> None:
    made = failed("7", ZeroDivisionError("by nothing."))
    assert made.found.startswith("ZeroDivisionError: by nothing")
    assert made.what == failed("7", ValueError()).what
