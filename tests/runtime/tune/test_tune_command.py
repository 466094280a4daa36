"""`eagle3-run tune` over the toy pair: what it prints and writes, and every way to ask for too much."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runtime import commands
from runtime.cli import main
from runtime.schedule import KSchedule, read_schedule
from runtime.tune import measure
from runtime.tune.command import default_sizes
from tests.runtime.loop.rig import Rig, Shape, make_rig
from tests.runtime.serve.conftest import toy_tokenizer

Tune = Callable[..., Any]
Toy = Callable[..., Rig]
QUICK = ("--max-tokens", 4, "--repeat", 1)


def test_the_table_goes_to_stdout_and_progress_to_stderr(toy: Toy, tune: Tune, prompts: Path) -> None:
    toy()
    result = tune("--bundle", "toy", "--prompts", prompts, "--limit", 1, "--max-tokens", 3, "--repeat", 1)
    assert result.code == 0
    lines = result.out.splitlines()
    assert lines[3] == ("run      1 prompt, at most 3 new tokens each, batches of 1, 2, 4 kept full, 1 repeat, greedy")
    assert [line.split()[0] for line in lines[7:12]] == ["plain", "K=0", "K=1", "K=2", "K=3"]
    assert lines[-2] == "Text identical at every K and batch size, on 1 prompt."
    assert lines[-1].startswith("num_speculative_tokens_per_batch_size: [[1, ")
    progress = result.err.splitlines()
    assert progress[0].startswith("Loaded 5 engines of toy in ")
    assert progress[1].startswith("Ran 15 trials in ")
    assert len(progress) == 2


def test_the_schedule_is_that_of_the_scripted_clock(
    toy: Toy, tune: Tune, prompts: Path, tmp_path: Path, scripted_clock: Callable[..., None]
) -> None:
    """Every pass costs a second, but 40 where a verify pass has more than four rows: of four requests, unless K = 0."""
    toy(Shape(schedule=KSchedule.of([[1, 1, 3], [2, 4, 0]]), bitwise_across=("requests", "context", "drafts")))
    scripted_clock(lambda graph: 40.0 if graph.kind == "target_verify" and graph.rows > 4 else 1.0)
    out = tmp_path / "k.json"
    arguments = ("--bundle", "toy", "--prompts", prompts, *QUICK, "--batch-sizes", "4", "-k", "0,3", "--out", out)
    result = tune(*arguments, "--json")
    assert result.code == 0
    data = json.loads(result.out)
    cells = {cell["num_speculative_tokens"]: cell for cell in data["results"][0]["cells"]}
    assert (cells[0]["rows"], cells[3]["rows"]) == (1, 4)
    assert cells[0]["decode_tokens_per_s"] > 5 * cells[3]["decode_tokens_per_s"]
    assert data["schedule"] == [[1, 4, 0]]
    assert read_schedule(str(out)) == KSchedule.of([[1, 4, 0]])


def test_json_alone_is_printed(toy: Toy, tune: Tune, prompts: Path) -> None:
    toy()
    result = tune("--bundle", "toy", "--prompts", prompts, *QUICK, "--batch-sizes", "1,3", "-k", "3", "--json")
    assert (result.code, result.err) == (0, "")
    data = json.loads(result.out)
    assert [entry["batch_size"] for entry in data["results"]] == [1, 3]
    assert data["schedule"] == [[1, 3, 3]]
    assert data["differences"] == []


def test_plot_and_schedule_are_written(toy: Toy, tune: Tune, prompts: Path, tmp_path: Path) -> None:
    toy()
    picture, out = tmp_path / "k.png", tmp_path / "k.json"
    arguments = ("--bundle", "toy", "--prompts", prompts, *QUICK, "--batch-sizes", "2", "-k", "1")
    result = tune(*arguments, "--plot", picture, "--out", out)
    assert result.code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert out.read_text() == "[[1, 2, 1]]\n"
    assert result.err.splitlines()[-2:] == [f"Wrote the schedule to {out}.", f"Plotted {picture}."]


@pytest.mark.parametrize(("exact", "code"), [(True, 1), (False, 0)])
def test_a_difference_exits_1_where_the_bundle_promises_none(
    toy: Toy, tune: Tune, prompts: Path, monkeypatch: pytest.MonkeyPatch, exact: bool, code: int
) -> None:
    """Played by an engine of other weights in place of the speculating one."""
    rig, other = toy(Shape(exact_greedy=exact)), make_rig(Shape(exact_greedy=exact, seed=99))
    monkeypatch.setattr(measure, "load_engines", lambda *_: {None: rig.plain_engine(), 3: other.engine()})
    result = tune("--bundle", "toy", "--prompts", prompts, *QUICK, "--batch-sizes", "1", "-k", "3")
    assert result.code == code
    assert "DIFFERENT with K=3 at batch 1: first, first at token " in result.out


def test_lines_with_a_temperature_are_compared_under_a_seed(toy: Toy, tune: Tune, tmp_path: Path) -> None:
    toy(Shape(greedy_only=False))
    file = tmp_path / "random.jsonl"
    file.write_text('{"prompt_token_ids": [1, 2, 3], "temperature": 2.0, "max_tokens": 12}\n')
    result = tune("--bundle", "toy", "--prompts", file, "--repeat", 1, "--batch-sizes", "1", "-k", "3")
    assert (result.code, "Text identical at every K and batch size" in result.out) == (0, True)


def test_lines_may_have_stop_strings(toy: Toy, tune: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy()
    monkeypatch.setattr(commands.Bundle, "tokenizer_files", lambda bundle: {"tokenizer.json": b""})
    monkeypatch.setattr(commands.Tokenizer, "of", lambda files: toy_tokenizer())
    file = tmp_path / "stop.jsonl"
    file.write_text('{"prompt_token_ids": [1, 2, 3], "stop": ["the"]}\n')
    result = tune("--bundle", "toy", "--prompts", file, *QUICK, "--batch-sizes", "1", "-k", "3")
    assert (result.code, "error" in result.err) == (0, False)


@pytest.mark.parametrize(
    ("most", "buckets", "sizes"),
    [(4, (1, 4), (1, 2, 4)), (6, (1, 3, 6), (1, 2, 3, 4, 6)), (1, (1,), (1,))],
)
def test_default_batch_sizes_are_powers_of_two_and_the_buckets(
    most: int, buckets: tuple[int, ...], sizes: tuple[int, ...]
) -> None:
    shape = Shape(max_num_seqs=most, num_seqs=buckets, prefill_tokens=(32,))
    assert default_sizes(make_rig(shape).manifest) == sizes


# What cannot be done


def refused(result: Any, code: int = 2) -> list[str]:
    """The error and the hint of a command that measured nothing."""
    assert (result.code, result.out) == (code, "")
    lines: list[str] = result.err.splitlines()
    return lines


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("-k", "0-4"), "error: toy cannot speculate with 4 tokens a step: expected 1 to 3 "),
        (("--batch-sizes", "1,5"), "error: toy cannot run 5 requests at once: expected --batch-sizes of at most 4 "),
        (
            ("--batch-sizes", "0"),
            "error: --batch-sizes is not a list of whole numbers: expected numbers or ranges from 1",
        ),
        (
            ("-k", "x"),
            "error: --num-speculative-tokens is not a list of whole numbers: expected numbers or ranges from 0",
        ),
        (("--plot", "k.txt"), "error: --plot k.txt names no kind of picture"),
        (("--out", "nowhere/k.json"), "error: --out nowhere/k.json cannot be written: expected a file in a folder"),
        (("--repeat", "0"), "error: Invalid value for '--repeat'"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_runs(
    toy: Toy, tune: Tune, prompts: Path, arguments: tuple[str, ...], error: str
) -> None:
    toy()
    lines = refused(tune("--bundle", "toy", "--prompts", prompts, *arguments))
    assert lines[0].startswith(error)
    assert lines[1].startswith("hint: ")


def test_a_prompt_that_is_too_long_is_told_by_its_place(toy: Toy, tune: Tune, tmp_path: Path) -> None:
    toy()
    file = tmp_path / "long.jsonl"
    file.write_text(json.dumps({"prompt_token_ids": [1] * 64}) + "\n")
    lines = refused(tune("--bundle", "toy", "--prompts", file, *QUICK))
    assert "line 1" in lines[-2] or "line 1" in lines[0]


def test_a_list_of_k_may_begin_at_0_here_and_not_in_bench(
    toy: Toy, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toy()
    assert main(["bench", "--bundle", "toy", "--prompts", str(prompts), "-k", "0-1"]) == 2
    assert "numbers or ranges from 1 to 99" in capsys.readouterr().err


def test_help_needs_no_torch() -> None:
    import subprocess
    import sys

    code = "import sys; from runtime.tune.command import tune; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "False"
