"""A run lowers the loss of a toy pair, is the same when interrupted, and writes a draft that a build takes."""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from aot.checkpoint.draft import load_draft_weights, read_draft_config
from aot.checkpoint.source import ModelSource
from runtime.bundle.errors import ConfigError, UsageError
from tests.training.toy import AUX, Toy
from training.acceptance import measure
from training.batch import collate
from training.checkpoint import read_draft, write_draft
from training.plan import Plan
from training.run import Run
from training.step import Tally, batch_loss

PLAN = Plan(steps=6, unroll=3, tokens_per_step=24, learning_rate=2e-3, matrix_learning_rate=2e-3)


def make_run(toy: Toy, folder: Path, plan: Plan = PLAN, **facts: str) -> Run:
    draft = copy.deepcopy(toy.draft)
    return Run(folder, plan, toy.draft_json, draft, toy.draft_ids, toy.draft_head, torch.float32, facts)


def train(run: Run, toy: Toy, *, save_every: int = 100) -> None:
    sequences = toy.sequences()
    run.train(sequences, sequences, report_every=2, check_every=100, save_every=save_every)


def test_the_loss_falls_and_guesses_come_true(toy: Toy, tmp_path: Path) -> None:
    toy.draft_ids[:] = torch.cat([s.choices for s in toy.sequences()]).unique()[:16].long()
    run = make_run(toy, tmp_path, Plan(steps=60, unroll=3, tokens_per_step=40, learning_rate=1e-2))
    before = measure(run.draft, run.draft_ids, toy.sequences(), 3, torch.float32)
    train(run, toy)
    log = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    losses = [entry["loss"] for entry in log if "loss" in entry]
    after = measure(run.draft, run.draft_ids, toy.sequences(), 3, torch.float32)
    # The targets are soft, so their own entropy stays
    assert losses[-1] < losses[0] - 0.5
    assert after.mean_acceptance_length > before.mean_acceptance_length + 0.5


def test_a_batchs_loss_is_the_weighted_cross_entropy_of_every_unrolled_step(toy: Toy) -> None:
    sequences, head = toy.sequences(temperature=1.0), toy.draft_head
    batch = collate(sequences, PLAN.unroll)
    id_of = torch.full((48,), -1, dtype=torch.int64)
    id_of[toy.draft_ids] = torch.arange(16)
    tally = Tally(PLAN.unroll)
    loss = batch_loss(toy.draft, batch, toy.draft_ids, id_of, head, PLAN, torch.float32, tally)
    expected, known = torch.zeros(()), 0
    for step, states in enumerate(toy.draft.unroll(batch, PLAN.unroll)):
        for index, sequence in enumerate(sequences):
            for chain in range(sequence.answer_length - 1 - step):
                # Chain r's guess j is of the answer's token r + 1 + j, and finals begin after its first token
                if int(sequence.choices[chain + step + 1]) % 3 or int(sequence.choices[chain + step + 1]) > 45:
                    continue
                known += step == 0
                shares = (sequence.finals[chain + step] @ head.T).softmax(-1)
                logs = toy.draft.lm_head(states[index, chain]).log_softmax(-1)
                expected = expected - 0.8**step * (shares * logs).sum()
    torch.testing.assert_close(loss, expected / known, rtol=1e-4, atol=1e-5)
    assert tally.judged[0] == sum(sequence.answer_length - 1 for sequence in sequences)


class Stopped(Exception):
    """The process died."""


def stopped_at(run: Run, toy: Toy, method: str, *, after: bool) -> None:
    """Train until `method` is called for the first time, and die before or after it ran."""
    whole = getattr(run, method)

    def die(*args: object) -> None:
        if after:
            whole(*args)
        raise Stopped

    setattr(run, method, die)
    with pytest.raises(Stopped):
        train(run, toy, save_every=4)


@pytest.mark.parametrize(
    ("method", "after", "resumed_at"), [("save", True, 4), ("save", False, 0), ("_check", False, 4)]
)
def test_an_interrupted_run_ends_where_a_whole_one_does(
    toy: Toy, tmp_path: Path, method: str, after: bool, resumed_at: int
) -> None:
    whole = make_run(toy, tmp_path / "whole")
    train(whole, toy, save_every=4)
    stopped_at(make_run(toy, tmp_path / "parts"), toy, method, after=after)
    second = make_run(toy, tmp_path / "parts")
    assert second.step == resumed_at
    train(second, toy, save_every=4)
    for (name, left), right in zip(whole.draft.named_parameters(), second.draft.parameters(), strict=True):
        assert torch.equal(left, right), name
    logs = [(tmp_path / name / "log.jsonl").read_text().splitlines() for name in ("whole", "parts")]
    entries = [[{**json.loads(line), "seconds": 0} for line in log] for log in logs]
    assert entries[0] == entries[1]
    for name in ("whole", "parts"):
        assert (tmp_path / name / "step-00006" / "model.safetensors").is_file()


@pytest.mark.parametrize("torn", ['{"step": 5, "tok', "{", '{"step": 5, "tokens": 1}'])
def test_m9_a_torn_last_line_of_the_log_does_not_stop_the_next_run(toy: Toy, tmp_path: Path, torn: str) -> None:
    """M9: what a process leaves that is killed while it writes."""
    whole = make_run(toy, tmp_path / "whole")
    train(whole, toy, save_every=4)
    stopped_at(make_run(toy, tmp_path / "parts"), toy, "save", after=True)
    with (tmp_path / "parts" / "log.jsonl").open("a") as log:
        log.write(torn)
    train(make_run(toy, tmp_path / "parts"), toy, save_every=4)
    logs = [(tmp_path / name / "log.jsonl").read_text().splitlines() for name in ("whole", "parts")]
    entries = [[{**json.loads(line), "seconds": 0} for line in log] for log in logs]
    assert entries[0] == entries[1]


def test_m9_a_log_that_is_none_is_one_sentence(toy: Toy, tmp_path: Path) -> None:
    stopped_at(make_run(toy, tmp_path), toy, "save", after=True)
    for content in ('{"step": \n{"step": 1}\n', "[]\n", '{"tokens": 1}\n'):
        (tmp_path / "log.jsonl").write_text(content)
        with pytest.raises(UsageError, match=r"is no log of a run"):
            make_run(toy, tmp_path)


def test_the_last_checkpoint_is_made_even_if_the_state_was_saved_before(toy: Toy, tmp_path: Path) -> None:
    run = make_run(toy, tmp_path)
    train(run, toy)
    shutil.rmtree(tmp_path / "step-00006")
    train(make_run(toy, tmp_path), toy)
    assert (tmp_path / "step-00006" / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"plan": Plan(steps=6, unroll=2, tokens_per_step=24)}, r"another unroll: expected 2, found 3"),
        ({"model": "b"}, r"another model: expected b, found a"),
    ],
)
def test_a_run_of_other_settings_is_not_gone_on_with(
    toy: Toy, tmp_path: Path, change: dict[str, Any], sentence: str
) -> None:
    plan = Plan(steps=6, unroll=3, tokens_per_step=24)
    make_run(toy, tmp_path, plan, model="a").save()
    make_run(toy, tmp_path, plan, model="a")
    with pytest.raises(UsageError, match=sentence):
        make_run(toy, tmp_path, **{"plan": plan, "model": "a", **change})


def test_another_draft_vocabulary_is_another_run(toy: Toy, tmp_path: Path) -> None:
    make_run(toy, tmp_path).save()
    toy.draft_ids[3] += 1
    with pytest.raises(UsageError, match="another draft ids"):
        make_run(toy, tmp_path)


def test_a_damaged_state_and_checkpoints_without_one_are_told(toy: Toy, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "state.pt").write_bytes(b"PK")
    with pytest.raises(ConfigError, match=r"state.pt is damaged"):
        make_run(toy, tmp_path / "a")
    (tmp_path / "b" / "step-00002").mkdir(parents=True)
    with pytest.raises(UsageError, match=r"checkpoints of a run and not its state"):
        make_run(toy, tmp_path / "b")


def test_rates_that_blow_up_are_told(toy: Toy, tmp_path: Path) -> None:
    run = make_run(toy, tmp_path)
    with torch.no_grad():
        run.draft.fc.weight[0, 0] = float("inf")
    with pytest.raises(UsageError, match=r"the gradient of step 1 is not finite"):
        train(run, toy)


def test_a_written_draft_loads_through_the_builders_ordinary_path(toy: Toy, tmp_path: Path) -> None:
    write_draft(tmp_path, toy.draft_json, toy.draft, toy.draft_ids, torch.bfloat16)
    source = ModelSource("draft", "folder", tmp_path)
    config = read_draft_config(source, toy.config)
    assert (config.aux_layers, config.draft_vocab_size, config.norm_before_residual) == (AUX, 16, False)
    weights = load_draft_weights(source, config, toy.config, torch.bfloat16)
    for name, weight in toy.draft.export().items():
        assert torch.equal(weights[name], weight.to(torch.bfloat16)), name
    assert (weights["d2t"] + torch.arange(16)).tolist() == toy.draft_ids.tolist()
    draft, ids = read_draft(tmp_path, toy.config, toy.weights["model.embed_tokens.weight"])
    assert ids.tolist() == toy.draft_ids.tolist()
    features = toy.sequences()[0].features
    with torch.no_grad():
        expected = toy.draft.fc(features * toy.draft.feature_scale)
        torch.testing.assert_close(draft.fc(features), expected, rtol=0.02, atol=0.02)
