"""Both commands with standard streams closed, full, or without a reader: no traceback, and the exit codes of others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
COMMANDS = ("aot.cli", "runtime.cli")
commands = pytest.mark.parametrize("module", COMMANDS)
needs_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")

# A command that prints a line to both streams, and one that prints more than a pipe holds
PRINTS = """
import sys, click
import {module} as command
def said():
    click.echo("answer")
    click.echo("progress", err=True)
    for _ in range({times}):
        click.echo("more " * 100)
def run(*a):
    said()
    return 0
{patch}
sys.argv[1:] = {arguments}
sys.exit(command.main())
"""
PATCH = {
    "aot.cli": ("command.build = lambda *a, **k: said()", ["--config", "none.yaml"]),
    "runtime.cli": (
        "from runtime import commands\ncommands.open_session = lambda *a: None\ncommands.answer_prompts = run",
        ["--bundle", "none", "--prompt", "Hello"],
    ),
}


def shell(module: str, redirections: str, times: int = 0) -> subprocess.CompletedProcess[str]:
    """The command as bash starts it with `redirections`; output captured where they leave it."""
    patch, arguments = PATCH[module]
    script = PRINTS.format(module=module, patch=patch, arguments=arguments, times=times)
    return subprocess.run(
        ["bash", "-c", f'set -o pipefail; "$PYTHON" -c "$SCRIPT" {redirections}'],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHON": sys.executable, "SCRIPT": script},
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@commands
@pytest.mark.parametrize(
    ("redirections", "out", "err"),
    [
        ("", "answer\n", "progress\n"),
        (">&-", "", "progress\n"),
        ("2>&-", "answer\n", ""),
        ("<&-", "answer\n", "progress\n"),
        ("<&- >&- 2>&-", "", ""),
        pytest.param("2>/dev/full", "answer\n", "", marks=needs_full),
    ],
)
def test_b11_a_closed_stream_and_lost_messages_change_nothing_else(
    module: str, redirections: str, out: str, err: str
) -> None:
    done = shell(module, redirections)
    assert (done.returncode, done.stdout, done.stderr) == (0, out, err)


@needs_full
@commands
def test_b11_an_answer_that_cannot_be_written_is_one_sentence(module: str) -> None:
    done = shell(module, ">/dev/full")
    assert done.returncode == 4
    assert [line.partition(": ")[0] for line in done.stderr.splitlines()] == ["error", "hint"]
    assert "Standard output" in done.stderr


@commands
@pytest.mark.parametrize("redirections", ["| head -1", "2>&1 | head -1"])
def test_b11_a_reader_that_goes_away_ends_the_command_as_it_ends_others(module: str, redirections: str) -> None:
    done = shell(module, redirections, times=10000)
    assert done.returncode == 141
    assert done.stdout == "answer\n"
    assert done.stderr in ("", "progress\n")


@commands
@pytest.mark.parametrize("redirections", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_b11_a_file_that_is_opened_never_takes_a_closed_stream_s_number(module: str, redirections: str) -> None:
    """Else what a library prints would go into it."""
    patch, arguments = PATCH[module]
    opened = "opened = open(__import__('os').devnull).fileno()\n    __import__('os')._exit(0 if opened > 2 else 9)"
    script = PRINTS.format(module=module, patch=patch, arguments=arguments, times=0)
    script = script.replace('    click.echo("answer")', f"    {opened}")
    done = subprocess.run(
        ["bash", "-c", f'"$PYTHON" -c "$SCRIPT" {redirections}'],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHON": sys.executable, "SCRIPT": script},
        check=False,
        timeout=120,
    )
    assert done.returncode == 0


@needs_full
@commands
def test_b11_help_that_cannot_be_written_is_one_sentence(module: str) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m {module} --help >/dev/full"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 4
    assert [line.partition(": ")[0] for line in done.stderr.splitlines()] == ["error", "hint"]


@commands
def test_b11_usage_errors_with_every_stream_closed_have_their_exit_code(module: str) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m {module} --no-such-option <&- >&- 2>&-"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
        timeout=120,
    )
    assert done.returncode == 2


def test_b11_no_prompt_on_a_closed_standard_input_is_a_sentence(tmp_path: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m runtime.cli --bundle none <&-"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 2
    assert "--prompt" in done.stderr
    assert "Traceback" not in done.stderr
