"""Options that would have no effect are refused by name (M9)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from aot import cli


def refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> dict[str, str]:
    """What eagle3-build says, as JSON, of arguments that it does not take."""
    monkeypatch.setattr(sys, "argv", ["eagle3-build", *arguments])
    with pytest.raises(SystemExit) as done:
        cli.main()
    assert done.value.code == 2
    said: dict[str, str] = json.loads(capsys.readouterr().out)
    return said


@pytest.mark.parametrize(
    "given",
    [("--frozen",), ("--output", "x"), ("--jobs", "2"), ("--graphs-only",), ("--set", "dtype=float16"), ("-q",)],
)
@pytest.mark.parametrize("command", ["plan", "inspect", "finish"])
def test_m9_an_option_before_a_subcommand_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...], command: str
) -> None:
    rest = ("--config", "configs/tiny.yaml") if command == "plan" else ("--bundle", "artifacts/tiny")
    error = refused(capsys, monkeypatch, *given, command, *rest, "--json")
    assert given[0] in error["message"]
    assert "before the subcommand" in error["message"]
    assert command in error["repair"]


def test_m9_all_options_before_a_subcommand_are_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    error = refused(capsys, monkeypatch, "--json", "--frozen", "--config", "x.yaml", "plan")
    assert all(option in error["message"] for option in ("--json", "--frozen", "--config"))


def test_a_configuration_before_plan_is_given_behind_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    error = refused(capsys, monkeypatch, "--config", "x.yaml", "plan", "--json")
    assert error["repair"] == "eagle3-build plan --config x.yaml"


@pytest.mark.parametrize("given", [("--frozen",), ("--jobs", "2"), ("--output", "x")])
def test_options_of_a_build_are_refused_where_none_is_made(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...], tmp_path: Path
) -> None:
    error = refused(capsys, monkeypatch, "--config", str(tmp_path / "x.yaml"), "--probe-aux", "--json", *given)
    assert given[0] in error["message"]
