"""`eagle3-run bench` over the toy pair, and once over a compiled bundle; and every way to ask for too much."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runtime.bench import measure
from runtime.cli import main
from tests.runtime.loop.rig import Rig, Shape, make_rig

Bench = Callable[..., Any]
Toy = Callable[..., Rig]


def test_the_table_goes_to_stdout_and_progress_to_stderr(toy: Toy, bench: Bench, prompts: Path) -> None:
    toy()
    result = bench("--bundle", "toy", "--prompts", prompts, "--max-tokens", 12)
    assert result.code == 0
    lines = result.out.splitlines()
    assert lines[3] == "run      4 prompts, at most 12 new tokens each, one request at a time, greedy"
    assert [line.split()[:2] for line in lines[8:12]] == [["a", "2"], ["b", "1"], ["other", "1"], ["total", "4"]]
    assert lines[-1].startswith("speculation: ")
    assert lines[-1].endswith("text identical on 4 of 4 prompts")
    progress = result.err.splitlines()
    assert progress[0].startswith("Loaded 2 engines of toy in ")
    assert progress[1].startswith("Measured 4 prompts in ")
    assert len(progress) == 2


def test_json_counts_what_the_engine_did(toy: Toy, bench: Bench, prompts: Path) -> None:
    """Every token but each answer's first is committed by a verify step, accepted or the step's own."""
    rig = toy()
    result = bench("--bundle", "toy", "--prompts", prompts, "--max-tokens", 12, "--json", "-k", "1,3")
    assert (result.code, result.err) == (0, "")
    data = json.loads(result.out)
    assert [entry["num_speculative_tokens"] for entry in data["results"]] == [1, 3]
    for entry in data["results"]:
        total = entry["total"]
        assert (total["prompts"], total["identical"]) == (4, 4)
        assert total["plain"]["completion_tokens"] == total["speculative"]["completion_tokens"] == 3 * 12 + 5
        assert entry["kinds"]["a"]["prompts"] == 2
        acceptance = total["acceptance"]
        assert len(acceptance["unconditional_per_pos"]) == entry["num_speculative_tokens"]
        assert acceptance["num_drafts"] > 0
        assert all(total["speculative"][name] > 0 for name in ("decode_tokens_per_s", "verify_ms", "draft_ms"))
    assert data["facts"]["num_speculative_tokens"] == rig.manifest.speculation.num_speculative_tokens
    assert data["differences"] == []


def test_quiet_leaves_the_table_alone(toy: Toy, bench: Bench, prompts: Path) -> None:
    toy()
    result = bench("--bundle", "toy", "--prompts", prompts, "--max-tokens", 3, "-q")
    assert (result.code, result.err) == (0, "")
    assert "speculation: " in result.out


def test_limit_takes_prompts_evenly_over_the_kinds(toy: Toy, bench: Bench, prompts: Path) -> None:
    toy()
    data = json.loads(bench("--bundle", "toy", "--prompts", prompts, "--limit", 2, "--max-tokens", 3, "--json").out)
    assert {kind: figures["prompts"] for kind, figures in data["results"][0]["kinds"].items()} == {"a": 1, "b": 1}


def test_a_plot_is_written_beside_the_table(toy: Toy, bench: Bench, prompts: Path, tmp_path: Path) -> None:
    toy()
    file = tmp_path / "bench.png"
    result = bench("--bundle", "toy", "--prompts", prompts, "--max-tokens", 4, "--plot", file)
    assert result.code == 0
    assert file.read_bytes().startswith(b"\x89PNG")
    assert result.err.splitlines()[-1] == f"Plotted {file}."


def test_several_at_once_give_the_same_texts(toy: Toy, bench: Bench, prompts: Path) -> None:
    toy()
    result = bench("--bundle", "toy", "--prompts", prompts, "--max-tokens", 9, "--concurrency", 4)
    assert result.code == 0
    assert "4 requests at a time" in result.out
    assert "of 4 requests together." in result.out


@pytest.mark.parametrize(("exact", "code"), [(True, 1), (False, 0)])
def test_a_difference_exits_1_where_the_bundle_promises_none(
    toy: Toy, bench: Bench, prompts: Path, monkeypatch: pytest.MonkeyPatch, exact: bool, code: int
) -> None:
    """Played by an engine of other weights in place of the speculating one."""
    rig, other = toy(Shape(exact_greedy=exact)), make_rig(Shape(exact_greedy=exact, seed=99))
    monkeypatch.setattr(measure, "load_engines", lambda *_: {0: rig.plain_engine(), 3: other.engine()})
    result = bench("--bundle", "toy", "--prompts", prompts, "--max-tokens", 9)
    assert result.code == code
    assert "DIFFERENT with K=3: a1, first at token " in result.out
    assert result.out.splitlines()[-1].endswith("text identical on 0 of 4 prompts")


def test_lines_with_a_temperature_are_compared_under_a_seed(toy: Toy, bench: Bench, tmp_path: Path) -> None:
    toy(Shape(greedy_only=False))
    file = tmp_path / "random.jsonl"
    file.write_text('{"prompt_token_ids": [1, 2, 3], "temperature": 2.0, "max_tokens": 12}\n')
    result = bench("--bundle", "toy", "--prompts", file)
    assert (result.code, "text identical on 1 of 1 prompts" in result.out) == (0, True)


# What cannot be done


def refused(result: Any, code: int = 2) -> list[str]:
    """The error and the hint of a command that measured nothing."""
    assert (result.code, result.out) == (code, "")
    lines: list[str] = result.err.splitlines()
    return lines


def test_more_drafts_than_the_bundle_was_built_for_ask_for_a_rebuild(toy: Toy, bench: Bench, prompts: Path) -> None:
    toy()
    assert refused(bench("--bundle", "toy", "--prompts", prompts, "-k", "1-4")) == [
        "error: toy cannot speculate with 4 tokens a step: expected 1 to 3 (num_speculative_tokens of the bundle), "
        "found 4.",
        "hint: ask for at most 3, or rebuild the bundle with a larger num_speculative_tokens",
    ]


def test_more_requests_at_once_than_the_bundle_holds(toy: Toy, bench: Bench, prompts: Path) -> None:
    toy()
    error, hint = refused(bench("--bundle", "toy", "--prompts", prompts, "--concurrency", 5))
    assert error.startswith("error: toy cannot run 5 requests at once: expected --concurrency of at most 4")
    assert hint.endswith("larger max_num_seqs")


def test_a_prompt_that_is_too_long_is_told_before_anything_runs(toy: Toy, bench: Bench, tmp_path: Path) -> None:
    toy()
    file = tmp_path / "long.jsonl"
    file.write_text(f'{{"prompt_token_ids": [1]}}\n{{"prompt_token_ids": {[1] * 64}}}\n')
    error, _ = refused(bench("--bundle", "toy", "--prompts", file, "-q"))
    assert error.startswith("error: long.jsonl line 2 cannot run: expected a prompt of at most 63 tokens")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-k", "3-1"], "--num-speculative-tokens is not a list of whole numbers"),
        (["--plot", "bench.doc"], "names no kind of picture"),
        (["--plot", "nowhere/bench.png"], "cannot be written"),
        (["--limit", "0"], "0 is not in the range x>=1"),
        (["--max-tokens", "0"], "0 is not in the range x>=1"),
    ],
)
def test_a_wrong_option_is_told_before_the_bundle_is_opened(
    bench: Bench, prompts: Path, arguments: list[str], said: str
) -> None:
    error, hint = refused(bench("--bundle", "no such bundle", "--prompts", prompts, *arguments))
    assert said in error
    assert hint.startswith("hint: ")


def test_a_file_of_prompts_that_is_not_there(bench: Bench, tmp_path: Path) -> None:
    error, _ = refused(bench("--bundle", "no such bundle", "--prompts", tmp_path / "none.jsonl"))
    assert "none.jsonl cannot be read" in error


def test_a_bundle_that_is_not_there(bench: Bench, prompts: Path, tmp_path: Path) -> None:
    error, _ = refused(bench("--bundle", tmp_path / "none", "--prompts", prompts), code=5)
    assert error.startswith("error: There is no bundle at ")


def test_a_missing_or_misspelt_option_points_to_the_help_of_bench(bench: Bench) -> None:
    assert refused(bench("--bundle", "x")) == [
        "error: Missing option '--prompts'.",
        "hint: eagle3-run bench --help shows the options",
    ]
    assert refused(bench("--concurency", "2"))[1] == "hint: did you mean --concurrency?"


# A subcommand of eagle3-run


def test_help_of_eagle3_run_names_bench(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "  bench          Measure a bundle, with and without speculation.\n" in capsys.readouterr().out


def test_help_of_bench_names_every_option(bench: Bench) -> None:
    result = bench("--help")
    assert result.code == 0
    for option in (
        "--bundle",
        "--prompts",
        "-k, --num-speculative-tokens",
        "--max-tokens",
        "--limit",
        "--concurrency",
        "--warmup",
        "--raw",
        "--ignore-eos",
        "--plot",
        "--json",
        "-q, --quiet",
    ):
        assert option in result.out


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (
            ["--bundle", "x", "bench"],
            [
                "error: --bundle stands before bench: expected options of bench after it.",
                "hint: eagle3-run bench --bundle ...",
            ],
        ),
        (
            ["--prompt", "x", "bench"],
            [
                "error: --prompt stands before bench: expected options of bench after it.",
                "hint: leave it out: bench has no --prompt",
            ],
        ),
        (["benhc"], ["error: No such command 'benhc'.", "hint: did you mean 'bench'?"]),
    ],
)
def test_a_subcommand_comes_first_and_is_spelt_right(
    arguments: list[str], lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err.splitlines() == lines


def test_progress_on_a_terminal_is_a_bar(
    toy: Toy, prompts: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    toy()
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert main(["bench", "--bundle", "toy", "--prompts", str(prompts), "--max-tokens", "3"]) == 0
    assert "Measuring" in capsys.readouterr().err


@pytest.mark.timeout(900)
def test_a_compiled_bundle_by_the_console_script(
    console: Callable[..., Any], tiny_bundle: Path, prompts: Path, tmp_path: Path
) -> None:
    file = tmp_path / "tiny.png"
    arguments = ("--bundle", tiny_bundle, "--prompts", prompts, "--max-tokens", 16, "-k", "1-3", "--json")
    done = console("runtime.cli", "bench", *arguments, "--plot", file)
    assert done.returncode == 0, done.stdout + done.stderr
    data = json.loads(done.stdout)
    assert [entry["total"]["identical"] for entry in data["results"]] == [4, 4, 4]
    assert data["facts"]["bundle"] == "tiny"
    assert file.read_bytes().startswith(b"\x89PNG")
