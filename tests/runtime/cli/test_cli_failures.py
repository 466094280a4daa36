"""Every way to fail: one sentence, its repair, its exit code, and never a traceback unasked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runtime import commands
from runtime.bundle.errors import HostError

Run = Callable[..., Any]


def raising(error: BaseException) -> Callable[..., Any]:
    def call(*_: object, **__: object) -> None:
        raise error

    return call


def console(*arguments: str, **settings: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "runtime.cli", *arguments],
        capture_output=True,
        text=True,
        check=False,
        **settings,
    )


def test_help_names_every_option_and_shows_examples(run: Run) -> None:
    result = run("--help")
    assert result.code == 0
    for option in (
        "--bundle",
        "--prompt",
        "--prompts",
        "--raw",
        "--max-tokens",
        "--no-speculation",
        "--ignore-eos",
        "--stats",
        "--check",
        "--json",
        "-q",
    ):
        assert f"{option}" in result.out
    assert 'eagle3-run --bundle artifacts/smollm2-135m --prompt "Why is the sky blue?" --stats' in result.out


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        ([], ["error: Missing option '--bundle'.", "hint: eagle3-run --help shows the options"]),
        (["--bundel", "x"], ["error: There is no option --bundel.", "hint: did you mean --bundle?"]),
        (
            ["--bundle", "x", "--max-tokens", "0"],
            [
                "error: Invalid value for '--max-tokens': 0 is not in the range x>=1.",
                "hint: eagle3-run --help shows the options",
            ],
        ),
    ],
)
def test_a_wrong_command_line_exits_2(run: Run, arguments: list[str], lines: list[str]) -> None:
    result = run(*arguments)
    assert (result.code, result.err.splitlines()) == (2, lines)


def test_an_error_of_the_bundle_gives_its_sentence_hint_and_code(
    run: Run, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = HostError("This CPU lacks what the bundle needs", expected="avx512f", repair="build it here")
    monkeypatch.setattr(commands, "open_bundle", raising(error))
    result = run("--bundle", bundle, "--prompt", "a")
    assert (result.code, result.out) == (4, "")
    assert result.err == ("error: This CPU lacks what the bundle needs: expected avx512f.\nhint: build it here\n")


def test_with_json_an_error_is_one_json_line_on_stdout(run: Run, bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "open_bundle", raising(HostError("No", repair="mend")))
    result = run("--bundle", bundle, "--prompt", "a", "--json")
    assert result.err == ""
    assert json.loads(result.out) == {
        "error": "HostError",
        "exit_code": 4,
        "message": "No.",
        "expected": "",
        "found": "",
        "repair": "mend",
    }


def test_an_unexpected_error_says_it_is_a_defect_without_a_traceback(
    run: Run, bundle: Path, script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EAGLE3_DEBUG", raising=False)
    script.on_step = raising(RuntimeError("shape\nmismatch"))
    result = run("--bundle", bundle, "--prompt", "a", "-q")
    assert result.code == 1
    assert result.err.splitlines() == [
        "error: RuntimeError: shape mismatch (this is a defect of eagle3-run).",
        "hint: report it, with what EAGLE3_DEBUG=1 in the environment prints",
    ]


def test_eagle3_debug_shows_the_traceback(run: Run, bundle: Path, script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EAGLE3_DEBUG", "1")
    script.on_step = raising(RuntimeError("shape"))
    result = run("--bundle", bundle, "--prompt", "a")
    assert "Traceback (most recent call last):" in result.err
    assert "in step" in result.err


def test_ctrl_c_exits_130_without_a_traceback(run: Run, bundle: Path, script: Any) -> None:
    script.on_step = raising(KeyboardInterrupt())
    result = run("--bundle", bundle, "--prompt", "a", "-q")
    assert (result.code, result.err) == (130, "\n")


def test_a_closed_pipe_is_quiet() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.run(
        [sys.executable, "-m", "runtime.cli", "--help"],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert (process.returncode, process.stderr) == (141, "")


def test_a_path_that_is_no_bundle_is_told_by_the_real_console_script(tmp_path: Path) -> None:
    process = console("--bundle", str(tmp_path / "nothing"), "--prompt", "a")
    assert process.returncode == 5
    assert process.stderr.startswith("error: There is no bundle at ")
    assert "hint: build one with eagle3-build" in process.stderr


def test_nothing_heavy_is_imported_before_the_bundle_is_known_to_be_there() -> None:
    heavy = ["torch", "transformers", "aot", "pydantic", "rich", "yaml"]
    program = f"import sys, runtime.commands; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_torch_is_imported_while_the_bundle_is_verified(
    run: Run, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported: list[str] = []
    monkeypatch.setattr(commands.importlib, "import_module", imported.append)
    run("--bundle", bundle, "--prompt", "a")
    assert imported == []  # no manifest, so no bundle
    (bundle / "manifest.json").write_text("{}")
    run("--bundle", bundle, "--prompt", "a")
    assert imported == ["torch"]
