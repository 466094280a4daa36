"""Measure checkpoints on a corpus of greedy answers: acceptance without a bundle, all chains of an answer at once.

    python -m training.measure --model MODEL --corpus eval-corpus run/step-*

It gives what `eagle3-run bench` counts on the same answers, up to bf16's near ties, in a fraction of the time.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
import torch

from aot.checkpoint.source import resolve
from aot.checkpoint.target import load_target_weights, read_target_config
from runtime.bundle.errors import Eagle3Error, render
from training.acceptance import Acceptance, measure
from training.checkpoint import read_draft
from training.corpus import TrainingSequence, open_corpus
from training.process import prepare_process


def by_kind(sequences: list[TrainingSequence]) -> dict[str, list[TrainingSequence]]:
    """The sequences of each kind, kinds in order of their first."""
    found: dict[str, list[TrainingSequence]] = {}
    for sequence in sequences:
        found.setdefault(sequence.kind, []).append(sequence)
    return found


def as_json(found: Acceptance) -> dict[str, object]:
    """Lengths and rates of one measurement."""
    return {
        "steps": found.steps,
        "acceptance_length": found.mean_acceptance_length,
        "acceptance": found.rates,
        "accuracy": [right / max(1, judged) for right, judged in zip(found.correct, found.judged, strict=True)],
    }


@click.command(help=(__doc__ or "").split("\n", 1)[0])
@click.argument("drafts", nargs=-1, required=True, type=click.Path(path_type=Path, file_okay=False))
@click.option("--model", required=True, help="The target: as `model` in a build's YAML.")
@click.option("--corpus", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder of cohorts.")
@click.option("-k", "--num-speculative-tokens", "k", default=3, show_default=True, type=click.IntRange(min=1))
@click.option("--kinds", is_flag=True, help="Each kind of prompt by itself too.")
@click.option("--json", "as_lines", is_flag=True, help="One JSON object a line for each draft.")
def main(drafts: tuple[Path, ...], model: str, corpus: Path, k: int, kinds: bool, as_lines: bool) -> None:
    prepare_process("training.measure")
    try:
        source = resolve(model, key="--model", base=Path.cwd())
        target = read_target_config(source)
        weights = load_target_weights(source, target, torch.bfloat16)
        sequences = [cohort[index] for cohort in open_corpus(corpus) for index in range(len(cohort))]
        groups = {"all": sequences, **(by_kind(sequences) if kinds else {})}
        for folder in drafts:
            draft, ids, _ = read_draft(folder, target, weights["model.embed_tokens.weight"])
            found = {name: measure(draft, ids, group, k) for name, group in groups.items()}
            if as_lines:
                click.echo(json.dumps({"draft": str(folder), **{name: as_json(one) for name, one in found.items()}}))
                continue
            for name, one in found.items():
                rates = " ".join(f"{rate:.3f}" for rate in one.rates)
                label = str(folder) if name == "all" else f"  {name}"
                click.echo(f"{label:<32} acceptance length {one.mean_acceptance_length:.3f}  at 1..{k}: {rates}")
    except Eagle3Error as error:
        click.echo("\n".join(render(error)), err=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
