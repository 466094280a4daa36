"""An error says what was expected, what was found and what repairs it, on a terminal and in JSON."""

from __future__ import annotations

import pytest

from runtime.bundle.errors import (
    CacheMissError,
    CompileError,
    ConfigError,
    Eagle3Error,
    ErrorGroup,
    HostError,
    IntegrityError,
    UsageError,
    render,
)


@pytest.mark.parametrize(
    ("expected", "found", "sentence"),
    [
        ("8", "9", "The size is wrong: expected 8, found 9."),
        ("8", "", "The size is wrong: expected 8."),
        ("", "9", "The size is wrong: found 9."),
        ("", "", "The size is wrong."),
    ],
)
def test_a_sentence_holds_what_is_known(expected: str, found: str, sentence: str) -> None:
    error = Eagle3Error("The size is wrong", expected=expected, found=found, repair="mend it")
    assert error.sentence() == sentence
    assert str(error) == sentence


def test_every_kind_has_its_own_exit_code() -> None:
    kinds = [Eagle3Error, UsageError, ConfigError, HostError, IntegrityError, CompileError, CacheMissError]
    assert [kind("x").exit_code for kind in kinds] == [1, 2, 3, 4, 5, 6, 7]


def test_an_error_is_rendered_with_its_hint() -> None:
    error = ConfigError("K is too small", expected="at least 1", found="0", repair="raise it")
    assert render(error) == ["error: K is too small: expected at least 1, found 0.", "hint: raise it"]


def test_an_error_without_a_repair_has_no_hint() -> None:
    assert render(ConfigError("K is too small")) == ["error: K is too small."]


def test_a_group_renders_every_problem_with_its_own_hint() -> None:
    group = ErrorGroup(
        "The bundle x is damaged",
        [IntegrityError("a is missing", repair="copy a"), IntegrityError("b is changed", found="3 bytes")],
    )
    assert render(group) == [
        "error: The bundle x is damaged.",
        "  - a is missing.",
        "    hint: copy a",
        "  - b is changed: found 3 bytes.",
    ]


def test_a_group_of_one_does_not_say_its_hint_twice() -> None:
    group = ErrorGroup("The bundle x is damaged", [IntegrityError("a is missing", repair="copy a")])
    assert render(group) == ["error: The bundle x is damaged.", "  - a is missing.", "    hint: copy a"]
    assert group.repair == "copy a"


def test_a_group_leaves_with_the_exit_code_of_its_first_problem() -> None:
    assert ErrorGroup("x", [HostError("a"), IntegrityError("b")]).exit_code == 4
    assert ErrorGroup("x", [IntegrityError("b"), HostError("a")]).exit_code == 5


def test_a_group_of_nothing_is_a_defect_of_the_caller() -> None:
    with pytest.raises(ValueError, match="at least one problem"):
        ErrorGroup("x", [])


def test_json_holds_every_part() -> None:
    assert HostError("No AMX", expected="amx_tile", found="none", repair="rebuild").to_json() == {
        "error": "HostError",
        "exit_code": 4,
        "message": "No AMX: expected amx_tile, found none.",
        "expected": "amx_tile",
        "found": "none",
        "repair": "rebuild",
    }


def test_json_of_a_group_holds_its_problems() -> None:
    first, second = IntegrityError("a", repair="mend a"), IntegrityError("b")
    assert ErrorGroup("Damaged", [first, second]).to_json() == {
        "error": "ErrorGroup",
        "exit_code": 5,
        "message": "Damaged.",
        "expected": "",
        "found": "",
        "repair": "",
        "problems": [first.to_json(), second.to_json()],
    }


@pytest.mark.parametrize(
    ("found", "shown"),
    [
        ("größe λ 字", "größe λ 字"),
        ("\x1b[2Jnothing", "\\x1b[2Jnothing"),
        ("\ud800", "\\ud800"),
        ("txt\u202egnp", "txt\\u202egnp"),
        ("line 1\n\tline 2", "line 1\n\tline 2"),
    ],
)
def test_what_was_found_cannot_steer_the_terminal(found: str, shown: str) -> None:
    assert render(IntegrityError("The name is odd", found=found)) == [f"error: The name is odd: found {shown}."]
    assert render(IntegrityError("The name is odd", repair=found))[1] == f"hint: {shown}"
