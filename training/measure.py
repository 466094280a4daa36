"""Measure checkpoints on a corpus of greedy answers: acceptance without a bundle, all chains of an answer at once.

    python -m training.measure --model MODEL --corpus eval-corpus run/step-*

It gives about what `eagle3-run bench` counts on the same answers, in a fraction of the time: near ties of bf16 and the
ends of answers, where serving drafts fewer tokens, are what they differ in.
"""

from __future__ import annotations

import json
from pathlib import Path

import click

from runtime.bundle.errors import UsageError
from training.acceptance import Walk, measure
from training.checkpoint import read_draft
from training.corpus import TrainingSequence, all_sequences, check_corpus, open_corpus
from training.draft import CHAIN_ROOM
from training.model import Target
from training.process import prepare_process, tells_errors


def by_kind(sequences: list[TrainingSequence]) -> dict[str, list[TrainingSequence]]:
    """The sequences of each kind, kinds in order of their first."""
    found: dict[str, list[TrainingSequence]] = {}
    for sequence in sequences:
        found.setdefault(sequence.kind, []).append(sequence)
    return found


def as_json(found: Walk) -> dict[str, object]:
    """Lengths and rates of one measurement."""
    return {
        "steps": found.steps,
        "acceptance_length": found.mean_acceptance_length,
        "acceptance": found.rates,
        "accuracy": [right / max(1, judged) for right, judged in zip(found.correct, found.judged, strict=True)],
    }


@click.command(help=(__doc__ or "").split("\n", 1)[0])
@click.argument("drafts", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--model", required=True, help="The target: as `model` in a build's YAML.")
@click.option("--corpus", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder of cohorts.")
@click.option("-k", "--num-speculative-tokens", "k", default=3, show_default=True, type=click.IntRange(1, CHAIN_ROOM))
@click.option("--kinds", is_flag=True, help="Each kind of prompt by itself too.")
@click.option("--json", "as_lines", is_flag=True, help="One JSON object a line for each draft.")
@tells_errors
def main(drafts: tuple[Path, ...], model: str, corpus: Path, k: int, kinds: bool, as_lines: bool) -> None:
    prepare_process("training.measure")
    target, cohorts = Target.find(model), open_corpus(corpus)
    aux_layers = check_corpus(cohorts, target.config, target.fingerprint())
    sequences = [one for one in all_sequences(cohorts) if one.temperature == 0]
    if not sequences:
        raise UsageError(f"{corpus} holds no greedy answers", repair="generate it with --sampled 0")
    embedding = target.load("bfloat16")["model.embed_tokens.weight"]
    groups = by_kind(sequences) if kinds else {}
    for folder in drafts:
        draft, ids = read_draft(folder, target.config, embedding)
        if draft.config.aux_layers != aux_layers:
            raise UsageError(
                f"{folder} reads other auxiliary layers than the corpus holds",
                expected=str(list(aux_layers)),
                found=str(list(draft.config.aux_layers)),
                repair="generate a corpus with --aux-layers of the draft",
            )
        total = measure(draft, ids, sequences, k)
        found = {name: measure(draft, ids, group, k) for name, group in groups.items()}
        if as_lines:
            by_name = {name: as_json(one) for name, one in found.items()}
            click.echo(json.dumps({"draft": str(folder), "total": as_json(total), "kinds": by_name}))
            continue
        for label, one in ((str(folder), total), *((f"  {name}", one) for name, one in found.items())):
            rates = " ".join(f"{rate:.3f}" for rate in one.rates)
            click.echo(f"{label:<32} acceptance length {one.mean_acceptance_length:.3f}  at 1..{k}: {rates}")


if __name__ == "__main__":
    main()
