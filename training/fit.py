"""Train a draft on a corpus by training-time test.

    python -m training.fit --model MODEL --corpus corpus/ --output run/ --steps 3000

Each step unrolls the draft J times over a batch of answers and adds the steps' losses, weighted 0.8^j as in the paper.
The learning rate rises over the first steps, stays, and falls to nothing over the last part. A run can be stopped at
any time and started again with the same command: it goes on from its last saved state, over the same batches.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import torch

from aot.build.scopes import target_head
from runtime.bundle.errors import UsageError
from training.checkpoint import draft_json, make_draft
from training.corpus import TrainingSequence, all_sequences, check_corpus, digest, open_corpus
from training.initial import feature_scale, start_from_target
from training.model import Target
from training.plan import Plan, first_tokens, of_kinds, split
from training.process import prepare_process, tells_errors
from training.run import Run
from training.vocabulary import count_tokens, coverage, most_frequent

RATE = click.FloatRange(0, 1)

# Keys of config.json that are not the user's to choose
DECIDED = frozenset(
    [
        "architectures",
        "model_type",
        "hidden_size",
        "target_hidden_size",
        "vocab_size",
        "draft_vocab_size",
        "torch_dtype",
        "num_hidden_layers",
        "eagle_aux_hidden_state_layer_ids",
        "aux_layers",
        "eagle_config",
    ]
)


@click.command(help=(__doc__ or "").split("\n", 1)[0])
@click.option("--model", required=True, help="The target: as `model` in a build's YAML.")
@click.option("--corpus", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder of cohorts.")
@click.option("--output", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder of the run.")
@click.option("--steps", required=True, type=click.IntRange(min=1), help="Steps of the whole run.")
@click.option("--unroll", default=3, show_default=True, type=click.IntRange(min=1), help="J, at least K.")
@click.option("--tokens-per-step", default=2048, show_default=True, type=click.IntRange(min=1))
@click.option("--learning-rate", default=2e-3, show_default=True, type=RATE, help="AdamW's: head and norms.")
@click.option(
    "--matrix-learning-rate",
    default=5e-3,
    show_default=True,
    type=RATE,
    help="Muon's; 0 for AdamW only.",
)
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
@tells_errors
def main(model: str, corpus: Path, output: Path, **options: Any) -> None:
    prepare_process("training.fit")
    run, training, held_out = prepare(model, corpus, output, options)
    names = ("report_every", "check_every", "save_every")
    run.train(training, held_out, **{name: options[name] for name in names})


def prepare(
    model: str, corpus: Path, output: Path, options: dict[str, Any]
) -> tuple[Run, list[TrainingSequence], list[TrainingSequence]]:
    """A run made ready, new or resumed, with its training and held-out sequences."""
    overrides = parse_overrides(options["overrides"])
    target, cohorts = Target.find(model), open_corpus(corpus)
    vocab_size, fingerprint = target.config.vocab_size, target.fingerprint()
    aux_layers = check_corpus(cohorts, target.config, fingerprint)
    training, held_out = split(all_sequences(cohorts), options["held_out"])
    if (count := options["kinds"]) is not None:
        training = of_kinds(training, count, options["seed"])
    if (limit := options["corpus_tokens"]) is not None:
        training = first_tokens(training, limit)
    weights = target.load(options["dtype"])
    draft_ids = most_frequent(
        count_tokens(training, vocab_size), options["draft_vocab_size"], target.config.eos_token_ids
    )
    share = coverage(count_tokens(held_out, vocab_size), draft_ids)
    click.echo(
        f"{len(training):,} sequences, {sum(s.answer_length for s in training):,} answer tokens; a draft vocabulary of "
        f"{len(draft_ids):,} covers {share:.2%} of {len(held_out)} answers held out",
        err=True,
    )
    config = draft_json(target.config, len(draft_ids), aux_layers, "bfloat16", overrides)
    torch.manual_seed(options["seed"])
    draft, _ = make_draft(config, target.config, weights["model.embed_tokens.weight"])
    start_from_target(draft, target.config, weights, draft_ids, options["seed"])
    draft.set_feature_scale(feature_scale(training))
    plan = Plan(**{field.name: options[field.name] for field in fields(Plan) if field.name in options})
    facts = {"model": fingerprint, "training answers": digest(training), "held-out answers": digest(held_out)}
    dtype = getattr(torch, options["dtype"])
    return (
        Run(output, plan, config, draft, draft_ids, target_head(weights)[draft_ids], dtype, facts),
        training,
        held_out,
    )


def parse_overrides(texts: Sequence[str]) -> dict[str, Any]:
    """KEY=VALUE pairs, values as JSON.

    Raises:
        UsageError: a pair is not one, or its key follows from target and corpus.
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
        if key in DECIDED:
            raise UsageError(f"--set cannot change {key}, which target and corpus decide", repair="leave it out")
    return found


if __name__ == "__main__":
    main()
