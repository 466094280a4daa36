"""The commands as a user types them: corpus to checkpoint to figures, and wrong inputs in one sentence."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result
from safetensors.torch import save_file

from tests.training.toy import AUX, Toy
from training import fit, generate, measure, plot
from training.checkpoint import write_draft
from training.corpus import cohort_path, write_cohort
from training.process import LIMITS


@dataclass
class Place:
    """A toy target as a folder, and a corpus of its answers."""

    model: Path
    corpus: Path

    def fit(self, output: Path, *more: str) -> Result:
        arguments = ["--model", self.model, "--corpus", self.corpus, "--output", output, "--dtype", "float32"]
        arguments += ["--draft-vocab-size", "16", "--held-out", "2", "--tokens-per-step", "24", *more]
        return CliRunner().invoke(fit.main, [str(argument) for argument in arguments])


@pytest.fixture
def place(toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    # As if the process had been started anew already
    for name, value in LIMITS.items():
        monkeypatch.setenv(name, value)
    model, corpus = tmp_path / "model", tmp_path / "corpus"
    model.mkdir()
    corpus.mkdir()
    c = toy.config
    config = {
        "model_type": "llama",
        "hidden_size": c.hidden_size,
        "intermediate_size": c.intermediate_size,
        "num_hidden_layers": c.num_layers,
        "num_attention_heads": c.num_heads,
        "num_key_value_heads": c.num_kv_heads,
        "vocab_size": c.vocab_size,
        "max_position_embeddings": c.max_position_embeddings,
    }
    (model / "config.json").write_text(json.dumps(config))
    save_file(toy.weights, model / "model.safetensors")
    settings = {"aux_layers": list(AUX)}
    for number in range(2):
        answers = toy.answers(tokens=9 + number)
        write_cohort(cohort_path(corpus, number), answers, list("abcde"), [0.0] * 5, settings)
    return Place(model, corpus)


def test_a_corpus_becomes_a_checkpoint_and_figures(place: Place, tmp_path: Path) -> None:
    done = place.fit(tmp_path / "run", "--steps", "4", "--report-every", "2", "--check-every", "2")
    assert done.exit_code == 0, done.output
    assert "8 sequences, 76 answer tokens; a draft vocabulary of 16 covers" in done.output
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "log.jsonl",
        "state.pt",
        "step-00002",
        "step-00004",
    ]
    drafts = [str(tmp_path / "run" / name) for name in ("step-00002", "step-00004")]
    common = ["--model", str(place.model), "--corpus", str(place.corpus)]
    figures = CliRunner().invoke(measure.main, [*common, *drafts, "-k", "2", "--kinds", "--json"])
    lines = [json.loads(line) for line in figures.output.splitlines()]
    assert [line["draft"] for line in lines] == drafts
    assert list(lines[0]["kinds"]) == ["a", "b", "c", "d", "e"]
    total = lines[0]["total"]
    assert total["acceptance_length"] == pytest.approx(1 + sum(total["acceptance"]))
    table = CliRunner().invoke(measure.main, [*common, drafts[0]])
    assert "acceptance length" in table.output
    drawn = CliRunner().invoke(plot.main, ["--output", str(tmp_path / "c.png"), f"all={tmp_path}/run/log.jsonl"])
    assert drawn.exit_code == 0, drawn.output
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")


def test_a_finished_run_has_nothing_left_to_do(place: Place, tmp_path: Path) -> None:
    for _ in range(2):
        assert place.fit(tmp_path / "run", "--steps", "2", "--kinds", "3").exit_code == 0
    log = (tmp_path / "run" / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in log] == [2, 2]  # one of progress, one of the checkpoint


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (("--corpus", "nowhere"), "there is no corpus in nowhere: expected cohort-*.safetensors"),
        (("--model", "nowhere"), "--model names a file or folder that does not exist"),
        (("--held-out", "10"), "the corpus is too small: expected more than 10 greedy answers, found 10"),
        (("--kinds", "6"), "the corpus has too few kinds of prompt: expected at most 4, found 6"),
        (("--set", "hidden"), "--set wants a key of config.json and its value"),
        (("--set", "aux_layers=[0,1,2]"), "--set cannot change aux_layers, which target and corpus decide"),
    ],
)
def test_wrong_inputs_are_one_sentence(place: Place, tmp_path: Path, more: tuple[str, ...], sentence: str) -> None:
    failed = place.fit(tmp_path / "run", "--steps", "2", *more)
    assert failed.exit_code in (2, 3)  # usage, configuration
    assert f"error: {sentence}" in failed.output
    assert not (tmp_path / "run").exists()


SHORT = ("--max-prompt", "16", "--max-tokens", "8")


def test_a_model_without_tokenizer_is_one_sentence(place: Place, tmp_path: Path) -> None:
    arguments = ["--model", str(place.model), "--prompts", "nowhere.jsonl", "--output", str(tmp_path / "c")]
    failed = CliRunner().invoke(generate.main, [*arguments, "--dtype", "float32", "--aux-layers", "1,2", *SHORT])
    assert failed.exit_code == 2
    assert "has no tokenizer" in failed.output


def test_a_draft_of_other_auxiliary_layers_is_not_measured(place: Place, toy: Toy, tmp_path: Path) -> None:
    config = {**toy.draft_json, "aux_layers": [0, 1, 2]}
    write_draft(tmp_path / "draft", config, toy.draft, toy.draft_ids, torch.bfloat16)
    common = ["--model", str(place.model), "--corpus", str(place.corpus)]
    failed = CliRunner().invoke(measure.main, [*common, str(tmp_path / "draft")])
    assert failed.exit_code == 2
    assert "reads other auxiliary layers than the corpus holds: expected [1, 2, 3], found [0, 1, 2]" in failed.output


def test_a_corpus_of_sampled_answers_is_not_measured(place: Place, toy: Toy, tmp_path: Path) -> None:
    write_draft(tmp_path / "draft", toy.draft_json, toy.draft, toy.draft_ids, torch.bfloat16)
    (tmp_path / "warm").mkdir()
    write_cohort(cohort_path(tmp_path / "warm", 0), toy.answers(), list("abcde"), [1.0] * 5, {"aux_layers": list(AUX)})
    common = ["--model", str(place.model), "--corpus", str(tmp_path / "warm")]
    failed = CliRunner().invoke(measure.main, [*common, str(tmp_path / "draft")])
    assert "warm holds no greedy answers" in failed.output


def test_a_folder_that_cannot_be_written_is_one_sentence(place: Place, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    failed = place.fit(tmp_path / "file" / "run", "--steps", "1")
    assert failed.exit_code == 2
    assert "cannot be read or written: found Not a directory" in failed.output


def test_a_picture_of_no_known_kind_is_refused(tmp_path: Path) -> None:
    failed = CliRunner().invoke(plot.main, ["--output", str(tmp_path / "c.abc"), "log.jsonl"])
    assert "names no kind of picture" in failed.output


def test_no_log_is_no_curve(tmp_path: Path) -> None:
    for content, sentence in (("{", "is no log of a run"), ('{"step": 1}', "holds no checkpoint yet")):
        (tmp_path / "log.jsonl").write_text(content)
        failed = CliRunner().invoke(plot.main, ["--output", str(tmp_path / "c.png"), str(tmp_path / "log.jsonl")])
        assert failed.exit_code == 2
        assert sentence in failed.output
