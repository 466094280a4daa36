"""Train a draft on a corpus by training-time test.

    python -m training.fit --model MODEL --corpus corpus/ --output run/ --steps 3000

Each step unrolls the draft J times over a batch of answers and adds the steps' losses, weighted 0.8^j as in the paper.
The learning rate rises over the first steps, stays, and falls to nothing over the last part. A run can be stopped at
any time and started again with the same command: it goes on from its last saved state, over the same batches.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click
import torch
from torch import Tensor

from aot.checkpoint.source import resolve
from aot.checkpoint.target import load_target_weights, read_target_config
from runtime.bundle.errors import Eagle3Error, UsageError, render
from training.acceptance import Acceptance, measure
from training.batch import Batch, collate
from training.checkpoint import draft_json, load_state, make_draft, save_state, write_draft
from training.corpus import TrainingSequence, open_corpus
from training.draft import TrainableDraft
from training.initial import start_from_target
from training.loss import SoftCrossEntropy, target_shares
from training.optimizer import Optimizer, learning_rate
from training.process import prepare_process
from training.vocabulary import count_tokens, coverage, most_frequent


@dataclass(frozen=True)
class Plan:
    """What decides a run's outcome, beside corpus and target."""

    steps: int
    unroll: int = 4
    decay: float = 0.8
    tokens_per_step: int = 2048
    learning_rate: float = 1e-3
    matrix_learning_rate: float = 1e-3
    warmup: float = 0.02
    cooldown: float = 0.4
    seed: int = 0
    held_out: int = 256


@dataclass
class Tally:
    """Sums since the last progress line: loss, and per unrolled step the right guesses among the judged."""

    unroll: int
    loss: float = 0.0
    batches: int = 0
    rows: int = 0
    right: list[int] = field(default_factory=list)
    judged: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.right, self.judged = [0] * self.unroll, [0] * self.unroll


def batch_loss(
    draft: TrainableDraft,
    batch: Batch,
    draft_ids: Tensor,
    id_of: Tensor,
    target_head: Tensor,
    plan: Plan,
    dtype: torch.dtype,
    tally: Tally,
) -> Tensor:
    """The loss of one batch, a mean over its judged places.

    Args:
        draft_ids: [Vd] int64, the target's id of each draft id.
        id_of: [V] int64, the draft's id of each target id, -1 where the draft vocabulary lacks it: places where the
            target's choice is such an id are not trained on.
        target_head: [Vd, H], the target's head rows of the draft vocabulary.
    """
    places = batch.choices.numel()
    shares = target_shares(batch.finals.view(places, -1), target_head).view(*batch.choices.shape, -1)
    known = (batch.choices >= 0) & (id_of[batch.choices.clamp(min=0)] >= 0)
    total = torch.zeros(())
    scale = 1.0 / max(1, int(known[:, : batch.chains].sum()))
    for step, states in enumerate(draft.unroll(batch, plan.unroll)):
        window = slice(step, step + batch.chains)
        rows = known[:, window].reshape(-1).nonzero().flatten()
        weights = torch.full((len(rows),), scale * plan.decay**step)
        wanted = shares[:, window].reshape(-1, shares.shape[-1])[rows]
        loss, guesses = SoftCrossEntropy.apply(states.flatten(0, 1)[rows], draft.lm_head.weight, wanted, weights, dtype)
        total = total + loss
        tally.right[step] += int((draft_ids[guesses] == batch.choices[:, window].reshape(-1)[rows]).sum())
        tally.judged[step] += int((batch.choices[:, window] >= 0).sum())
    tally.loss += float(total.detach())
    tally.batches += 1
    tally.rows += int((batch.choices[:, : batch.chains] >= 0).sum())
    return total


def batches(sequences: Sequence[TrainingSequence], plan: Plan, epoch: int) -> list[list[int]]:
    """Indexes of each batch of an epoch: about `tokens_per_step` answer tokens each, sequences of like length together,
    batches in random order."""
    shuffled = random.Random(plan.seed * 1_000_003 + epoch)
    order = list(range(len(sequences)))
    shuffled.shuffle(order)
    made: list[list[int]] = []
    pool = 512
    for start in range(0, len(order), pool):
        alike = sorted(
            order[start : start + pool], key=lambda i: (sequences[i].answer_length, len(sequences[i].tokens))
        )
        batch: list[int] = []
        for index in alike:
            if batch and (len(batch) + 1) * sequences[index].answer_length > plan.tokens_per_step:
                made.append(batch)
                batch = []
            batch.append(index)
        made.append(batch)
    shuffled.shuffle(made)
    return made


class Run:
    """A training run in a folder: state.pt to resume from, log.jsonl, and checkpoints step-NNNNN/."""

    def __init__(
        self,
        folder: Path,
        plan: Plan,
        config: dict[str, Any],
        draft: TrainableDraft,
        draft_ids: Tensor,
        target_head: Tensor,
        dtype: torch.dtype,
    ) -> None:
        self.folder, self.plan, self.config, self.draft, self.draft_ids = folder, plan, config, draft, draft_ids
        self.target_head, self.dtype = target_head, dtype
        self.id_of = torch.full((draft.config.vocab_size,), -1, dtype=torch.int64)
        self.id_of[draft_ids] = torch.arange(len(draft_ids))
        self.optimizer = Optimizer(draft, plan.learning_rate, plan.matrix_learning_rate)
        self.step, self.seen, self.seconds = 0, 0, 0.0
        self.facts = json.loads(json.dumps({**asdict(plan), "config": config}))
        folder.mkdir(parents=True, exist_ok=True)
        if (state := load_state(folder / "state.pt", self.facts)) is not None:
            draft.load_state_dict(state["draft"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.step, self.seen, self.seconds = state["step"], state["seen"], state["seconds"]

    def save(self) -> None:
        save_state(
            self.folder / "state.pt",
            {
                "facts": self.facts,
                "draft": self.draft.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "step": self.step,
                "seen": self.seen,
                "seconds": self.seconds,
            },
        )

    def train(
        self,
        sequences: Sequence[TrainingSequence],
        held_out: Sequence[TrainingSequence],
        *,
        report_every: int,
        check_every: int,
        save_every: int,
    ) -> None:
        """Run to the plan's last step."""
        tally, since = Tally(self.plan.unroll), time.perf_counter()
        position, epoch = 0, 0
        todo = batches(sequences, self.plan, 0)
        while position + len(todo) <= self.step:
            position, epoch = position + len(todo), epoch + 1
            todo = batches(sequences, self.plan, epoch)
        while self.step < self.plan.steps:
            if self.step - position >= len(todo):
                position, epoch = position + len(todo), epoch + 1
                todo = batches(sequences, self.plan, epoch)
            batch = collate([sequences[index] for index in todo[self.step - position]], self.plan.unroll)
            self.optimizer.set_rate(learning_rate(self.step, self.plan))
            with torch.autocast("cpu", self.dtype, enabled=self.dtype != torch.float32):
                loss = batch_loss(
                    self.draft, batch, self.draft_ids, self.id_of, self.target_head, self.plan, self.dtype, tally
                )
            loss.backward()
            norm = self.optimizer.step()
            self.step += 1
            last = self.step == self.plan.steps
            if self.step % report_every == 0 or last:
                self.seconds += time.perf_counter() - since
                since = time.perf_counter()
                self.seen += tally.rows
                self._progress(tally, norm)
                tally = Tally(self.plan.unroll)
            if self.step % save_every == 0 or last:
                self.save()
            if self.step % check_every == 0 or last:
                self._check(held_out)
                since = time.perf_counter()

    def _progress(self, tally: Tally, norm: float) -> None:
        rates = [right / max(1, judged) for right, judged in zip(tally.right, tally.judged, strict=True)]
        loss = tally.loss / max(1, tally.batches)
        rate = self.seen / max(1e-9, self.seconds)
        left = (self.plan.steps - self.step) * self.seconds / self.step
        self._log({"step": self.step, "tokens": self.seen, "loss": loss, "accuracy": rates, "seconds": self.seconds})
        click.echo(
            f"step {self.step}/{self.plan.steps}: loss {loss:.3f}, accuracy "
            + " ".join(f"{rate:.3f}" for rate in rates)
            + f", gradient {norm:.2f}, {rate:,.0f} tok/s, {left / 60:.0f} min left",
            err=True,
        )

    def _check(self, held_out: Sequence[TrainingSequence]) -> None:
        """Measure acceptance at K=3 on answers held out, and keep a checkpoint."""
        found: Acceptance = measure(self.draft, self.draft_ids, held_out, 3, self.dtype)
        length, rates = found.mean_acceptance_length, found.rates
        self._log({"step": self.step, "tokens": self.seen, "acceptance_length": length, "acceptance": rates})
        folder = self.folder / f"step-{self.step:05d}"
        write_draft(folder, self.config, self.draft, self.draft_ids, torch.bfloat16)
        shares = " ".join(f"{rate:.3f}" for rate in rates)
        click.echo(f"{folder.name}: acceptance length {length:.3f} at K=3 ({shares})", err=True)

    def _log(self, entry: dict[str, Any]) -> None:
        with (self.folder / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")


def split(sequences: list[TrainingSequence], held_out: int) -> tuple[list[TrainingSequence], list[TrainingSequence]]:
    """Training sequences and held-out greedy ones, spread evenly over the corpus; fixed by the corpus alone."""
    usable = [s for s in sequences if s.answer_length > 1]
    greedy = [index for index, s in enumerate(usable) if s.temperature == 0]
    if held_out >= len(greedy):
        raise UsageError(
            "the corpus is too small",
            expected=f"more than {held_out} greedy answers",
            found=str(len(greedy)),
            repair="generate more, or lower --held-out",
        )
    kept = {greedy[index * len(greedy) // held_out] for index in range(held_out)}
    return [s for i, s in enumerate(usable) if i not in kept], [usable[i] for i in sorted(kept)]


@click.command(help=(__doc__ or "").split("\n", 1)[0])
@click.option("--model", required=True, help="The target: as `model` in a build's YAML.")
@click.option("--corpus", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder of cohorts.")
@click.option("--output", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder of the run.")
@click.option("--steps", required=True, type=click.IntRange(min=1), help="Steps of the whole run.")
@click.option(
    "--unroll", default=4, show_default=True, type=click.IntRange(min=1), help="Steps unrolled over the draft."
)
@click.option("--tokens-per-step", default=2048, show_default=True, type=click.IntRange(min=1))
@click.option("--learning-rate", default=1e-3, show_default=True, type=float, help="AdamW's: head and norms.")
@click.option("--matrix-learning-rate", default=1e-3, show_default=True, type=float, help="Muon's; 0 for AdamW only.")
@click.option("--draft-vocab-size", default=8192, show_default=True, type=click.IntRange(min=1))
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Another value for a key of config.json.")
@click.option("--corpus-tokens", type=click.IntRange(min=1), help="Use only the first so many answer tokens.")
@click.option(
    "--held-out", default=256, show_default=True, type=click.IntRange(min=1), help="Greedy answers to measure on."
)
@click.option("--seed", default=0, show_default=True)
@click.option("--report-every", default=20, show_default=True, type=click.IntRange(min=1))
@click.option("--check-every", default=500, show_default=True, type=click.IntRange(min=1), help="Keep a checkpoint.")
@click.option("--save-every", default=100, show_default=True, type=click.IntRange(min=1), help="Save the state.")
@click.option("--dtype", default="bfloat16", show_default=True, type=click.Choice(["bfloat16", "float32"]))
def main(model: str, corpus: Path, output: Path, **options: Any) -> None:
    prepare_process("training.fit")
    try:
        run, training, held_out = prepare(model, corpus, output, options)
        names = ("report_every", "check_every", "save_every")
        run.train(training, held_out, **{name: options[name] for name in names})
    except Eagle3Error as error:
        click.echo("\n".join(render(error)), err=True)
        sys.exit(error.exit_code)


def prepare(
    model: str, corpus: Path, output: Path, options: dict[str, Any]
) -> tuple[Run, list[TrainingSequence], list[TrainingSequence]]:
    """A run made ready, new or resumed, with its training and held-out sequences."""
    source = resolve(model, key="--model", base=Path.cwd())
    target = read_target_config(source)
    cohorts = open_corpus(corpus)
    sequences = [cohort[index] for cohort in cohorts for index in range(len(cohort))]
    if (limit := options["corpus_tokens"]) is not None:
        sequences = first_tokens(sequences, limit)
    training, held_out = split(sequences, options["held_out"])
    dtype = getattr(torch, options["dtype"])
    weights = load_target_weights(source, target, dtype)
    embedding = weights["model.embed_tokens.weight"]
    counts = count_tokens(training, target.vocab_size)
    draft_ids = most_frequent(counts, options["draft_vocab_size"], target.eos_token_ids)
    share = coverage(count_tokens(held_out, target.vocab_size), draft_ids)
    tokens = sum(s.answer_length for s in training)
    click.echo(
        f"{len(training):,} sequences, {tokens:,} answer tokens; a draft vocabulary of {len(draft_ids):,} covers "
        f"{share:.2%} of {len(held_out)} answers held out",
        err=True,
    )
    aux_layers = tuple(cohorts[0].settings["aux_layers"])  # type: ignore[arg-type]
    config = draft_json(target, len(draft_ids), aux_layers, "bfloat16", parse_overrides(options["overrides"]))
    torch.manual_seed(options["seed"])
    draft, _ = make_draft(config, target, embedding)
    start_from_target(draft, target, weights, draft_ids, options["seed"])
    plan = Plan(
        options["steps"],
        options["unroll"],
        tokens_per_step=options["tokens_per_step"],
        learning_rate=options["learning_rate"],
        matrix_learning_rate=options["matrix_learning_rate"],
        seed=options["seed"],
        held_out=options["held_out"],
    )
    head = weights.get("lm_head.weight", embedding)[draft_ids]
    return Run(output, plan, config, draft, draft_ids, head, dtype), training, held_out


def first_tokens(sequences: Sequence[TrainingSequence], limit: int) -> list[TrainingSequence]:
    """The first sequences, up to `limit` answer tokens."""
    kept, total = [], 0
    for sequence in sequences:
        if total >= limit:
            break
        kept.append(sequence)
        total += sequence.answer_length
    return kept


def parse_overrides(texts: Sequence[str]) -> dict[str, Any]:
    """KEY=VALUE pairs, values as JSON.

    Raises:
        UsageError: a pair is not one.
    """
    found: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        try:
            found[key] = json.loads(value)
        except ValueError:
            equals = ""
        if not equals:
            raise UsageError(
                "--set wants a key of config.json and its value",
                expected="such as num_key_value_heads=9",
                found=text,
                repair="correct --set",
            )
    return found


if __name__ == "__main__":
    main()
