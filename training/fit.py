"""Train a draft on a corpus by training-time test.

    python -m training.fit --model MODEL --corpus corpus/ --output run/ --steps 3000

Each step unrolls the draft J times over a batch of answers and adds the steps' losses, weighted 0.8^j as in the paper.
The learning rate rises over the first steps, stays, and falls to nothing over the last part. A run can be stopped at
any time and started again with the same command: it goes on from its last saved state, over the same batches.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import torch

from aot.checkpoint.source import resolve
from aot.checkpoint.target import load_target_weights, read_target_config
from runtime.bundle.errors import Eagle3Error, UsageError, render
from training.checkpoint import draft_json, make_draft
from training.corpus import TrainingSequence, open_corpus
from training.initial import feature_scale, start_from_target
from training.plan import Plan, first_tokens, of_kinds, split
from training.process import prepare_process
from training.run import Run
from training.vocabulary import count_tokens, coverage, most_frequent


@click.command(help=(__doc__ or "").split("\n", 1)[0])
@click.option("--model", required=True, help="The target: as `model` in a build's YAML.")
@click.option("--corpus", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder of cohorts.")
@click.option("--output", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder of the run.")
@click.option("--steps", required=True, type=click.IntRange(min=1), help="Steps of the whole run.")
@click.option("--unroll", default=3, show_default=True, type=click.IntRange(min=1), help="J, at least K.")
@click.option("--tokens-per-step", default=2048, show_default=True, type=click.IntRange(min=1))
@click.option("--learning-rate", default=2e-3, show_default=True, type=float, help="AdamW's: head and norms.")
@click.option("--matrix-learning-rate", default=5e-3, show_default=True, type=float, help="Muon's; 0 for AdamW only.")
@click.option("--draft-vocab-size", default=8192, show_default=True, type=click.IntRange(min=1))
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Another value for a key of config.json.")
@click.option("--corpus-tokens", type=click.IntRange(min=1), help="Train on only the first so many answer tokens.")
@click.option("--kinds", type=click.IntRange(min=1), help="Train on only so many kinds of prompt, drawn at random.")
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
    training, held_out = split(sequences, options["held_out"])
    if (count := options["kinds"]) is not None:
        training = of_kinds(training, count, options["seed"])
    if (limit := options["corpus_tokens"]) is not None:
        training = first_tokens(training, limit)
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
    aux_layers: tuple[int, ...] = tuple(cohorts[0].settings["aux_layers"])  # type: ignore[arg-type]
    config = draft_json(target, len(draft_ids), aux_layers, "bfloat16", parse_overrides(options["overrides"]))
    torch.manual_seed(options["seed"])
    draft, _ = make_draft(config, target, embedding)
    start_from_target(draft, target, weights, draft_ids, options["seed"])
    draft.set_feature_scale(feature_scale(training))
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
