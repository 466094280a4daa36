"""A training run: steps, progress, checkpoints, and how it is resumed."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import torch
from torch import Tensor

from runtime.bundle.errors import UsageError
from training.acceptance import measure
from training.batch import collate
from training.checkpoint import load_state, save_state, write_draft
from training.corpus import TrainingSequence
from training.draft import TrainableDraft
from training.log import append_log, read_log, write_log
from training.optimizer import Optimizer, learning_rate
from training.plan import Plan, batches
from training.step import Tally, batch_loss


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
        facts: dict[str, str],
    ) -> None:
        """Args:
            facts: what else decides the outcome, such as digests of model and corpus: a run is gone on with only where
                all of it is the same.

        Raises:
            ConfigError, UsageError: the folder holds another run, or a damaged one.
        """
        self.folder, self.plan, self.config, self.draft, self.draft_ids = folder, plan, config, draft, draft_ids
        self.target_head, self.dtype = target_head, dtype
        self.id_of = torch.full((draft.config.vocab_size,), -1, dtype=torch.int64)
        self.id_of[draft_ids] = torch.arange(len(draft_ids))
        self.optimizer = Optimizer(draft, plan.learning_rate, plan.matrix_learning_rate)
        self.step, self.seen, self.seconds = 0, 0, 0.0
        ids = hashlib.sha256(draft_ids.numpy().tobytes()).hexdigest()
        settings = {f"config.json {key}": value for key, value in config.items()}
        whole = {**asdict(plan), **settings, **facts, "dtype": str(dtype), "draft ids": ids}
        self.facts = json.loads(json.dumps(whole))
        folder.mkdir(parents=True, exist_ok=True)
        if (state := load_state(folder / "state.pt", self.facts)) is not None:
            draft.load_state_dict(state["draft"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.step, self.seen, self.seconds = state["step"], state["seen"], state["seconds"]
        elif any(folder.glob("step-*")):
            raise UsageError(
                f"{folder} holds checkpoints of a run and not its state.pt",
                repair="choose another --output, or remove the folder",
            )
        self._forget_later_entries()

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
        if self.step == self.plan.steps and not (self._checkpoint() / "model.safetensors").is_file():
            self._check(held_out)  # interrupted just there
        tally = Tally(self.plan.unroll)
        position, epoch = 0, 0
        todo = batches(sequences, self.plan, 0)
        while self.step < self.plan.steps:
            started = time.perf_counter()
            while self.step - position >= len(todo):
                position, epoch = position + len(todo), epoch + 1
                todo = batches(sequences, self.plan, epoch)
            batch = collate([sequences[index] for index in todo[self.step - position]], self.plan.unroll)
            self.optimizer.set_rate(learning_rate(self.step, self.plan))
            with torch.autocast("cpu", self.dtype, enabled=self.dtype != torch.float32):
                loss = batch_loss(
                    self.draft, batch, self.draft_ids, self.id_of, self.target_head, self.plan, self.dtype, tally
                )
            loss.backward()  # type: ignore[no-untyped-call]
            norm = self.optimizer.step()
            if not math.isfinite(norm):
                raise UsageError(
                    f"the gradient of step {self.step + 1} is not finite",
                    repair="lower --learning-rate and --matrix-learning-rate",
                )
            self.step, self.seen = self.step + 1, self.seen + batch.judged
            self.seconds += time.perf_counter() - started
            last = self.step == self.plan.steps
            if self.step % report_every == 0 or last:
                self._progress(tally, norm)
                tally = Tally(self.plan.unroll)
            # The checkpoint first: a state that was saved before it would never come back to make it
            if self.step % check_every == 0 or last:
                self._check(held_out)
            if self.step % save_every == 0 or last:
                self.save()

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
        found = measure(self.draft, self.draft_ids, held_out, 3, self.dtype)
        length, rates = found.mean_acceptance_length, found.rates
        self._log({"step": self.step, "tokens": self.seen, "acceptance_length": length, "acceptance": rates})
        folder = self._checkpoint()
        write_draft(folder, self.config, self.draft, self.draft_ids, torch.bfloat16)
        shares = " ".join(f"{rate:.3f}" for rate in rates)
        click.echo(f"{folder.name}: acceptance length {length:.3f} at K=3 ({shares})", err=True)

    def _checkpoint(self) -> Path:
        return self.folder / f"step-{self.step:05d}"

    def _forget_later_entries(self) -> None:
        """Cut the log at the step that the run goes on from: what came after it comes again."""
        file = self.folder / "log.jsonl"
        if file.is_file():
            write_log(file, [entry for entry in read_log(file) if entry["step"] <= self.step])

    def _log(self, entry: dict[str, Any]) -> None:
        append_log(self.folder / "log.jsonl", entry)
