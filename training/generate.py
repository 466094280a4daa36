"""Self-distillation: the target answers a file of conversations, and its states are kept.

    python -m training.generate --model MODEL --prompts prompts.jsonl --output corpus/ --answer-tokens 2000000

Conversations are taken in the file's order, a window at a time; a window is sorted by prompt length and answered in
cohorts. What a cohort holds follows from the file, the settings and the seed alone, so an interrupted run goes on where
it stopped: finished cohorts are read instead of made.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import torch

from aot.checkpoint.source import resolve
from aot.checkpoint.target import TargetConfig, load_target_weights, read_target_config
from aot.checkpoint.tokenizer import write_tokenizer
from runtime.bundle.errors import Eagle3Error, UsageError, render
from runtime.text import Tokenizer
from training.conversations import Conversation, read_conversations
from training.corpus import Cohort, cohort_path, write_cohort
from training.process import prepare_process
from training.target import Answer, BatchTarget

# Cohorts in a window: follow-up turns wait for the next window, and sorting within it keeps a cohort's prompts alike
WINDOW = 4


@dataclass(frozen=True)
class Settings:
    """What decides the content of a corpus, beside the model and the prompts."""

    seed: int
    cohort: int
    max_tokens: int
    max_prompt: int
    sampled: float
    temperatures: tuple[float, ...]
    aux_layers: tuple[int, ...]

    def temperature(self, number: int, index: int) -> float:
        """0, greedy, or one of the temperatures in turn; fixed by cohort and row."""
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + number * 4_099 + index)
        if float(torch.rand((), generator=generator)) >= self.sampled:
            return 0.0
        return self.temperatures[(number + index) % len(self.temperatures)]


def load_tokenizer(model: str) -> Tokenizer:
    """The tokenizer of a target as a bundle would hold it.

    Raises:
        ConfigError: the model is missing, or has no tokenizer.
    """
    source = resolve(model, key="--model", base=Path.cwd())
    with TemporaryDirectory() as folder:
        if not write_tokenizer(source, Path(folder)):
            raise UsageError(f"{model} has no tokenizer", repair="give a model with tokenizer.json")
        return Tokenizer.load(Path(folder))


def windows(
    conversations: Iterator[Conversation], tokenizer: Tokenizer, settings: Settings
) -> Iterator[tuple[list[list[tuple[Conversation, list[int]]]], list[Conversation]]]:
    """Windows of cohorts, each a list of (conversation, prompt ids), and the list into which the caller puts what a
    window's answers leave open. Prompts above `max_prompt` tokens are left out."""
    ended = False
    opened: list[Conversation] = []
    while not ended or opened:
        batch = [(one, ids) for one in opened if len(ids := one.prompt(tokenizer)) <= settings.max_prompt]
        opened = []
        while len(batch) < WINDOW * settings.cohort:
            one = next(conversations, None)
            if one is None:
                ended = True
                break
            if len(ids := one.prompt(tokenizer)) <= settings.max_prompt:
                batch.append((one, ids))
        batch.sort(key=lambda entry: len(entry[1]))
        if batch:
            yield [batch[i : i + settings.cohort] for i in range(0, len(batch), settings.cohort)], opened


def alike(lengths: list[int]) -> list[slice]:
    """Cut a cohort, sorted by prompt length, where its prompts grow by half: every row of a batch costs as much as the
    longest, and a few long prompts would make all the others pay."""
    starts = [0]
    for index, length in enumerate(lengths):
        if length > 1.5 * lengths[starts[-1]] + 16:
            starts.append(index)
    return [slice(start, end) for start, end in zip(starts, [*starts[1:], len(lengths)], strict=True)]


def generate(
    target: BatchTarget,
    config: TargetConfig,
    tokenizer: Tokenizer,
    conversations: Iterator[Conversation],
    output: Path,
    settings: Settings,
    answer_tokens: int,
) -> int:
    """Write cohorts until `answer_tokens` are reached or the conversations end; returns how many tokens there are."""
    output.mkdir(parents=True, exist_ok=True)
    number = total = 0
    made, started = 0, time.perf_counter()
    facts = {**vars(settings), "max_length": target.max_length}
    for cohorts, opened in windows(conversations, tokenizer, settings):
        for members in cohorts:
            path = cohort_path(output, number)
            if path.is_file():
                cohort = Cohort(path)
                _same_settings(cohort, facts, path)
            else:
                heat = [settings.temperature(number, index) for index in range(len(members))]
                generator = torch.Generator().manual_seed(settings.seed * 1_000_003 + number)
                answers: list[Answer] = []
                for part in alike([len(ids) for _, ids in members]):
                    prompts = [ids for _, ids in members[part]]
                    answers += target.answer(prompts, heat[part], settings.max_tokens, config.eos_token_ids, generator)
                write_cohort(path, answers, [one.kind for one, _ in members], heat, facts)
                cohort = Cohort(path)
                made += sum(cohort.lengths) - sum(cohort.prompt_lengths)
            total += sum(cohort.lengths) - sum(cohort.prompt_lengths)
            for index, (conversation, _) in enumerate(members):
                if len(conversation.turns) > 1:
                    sequence = cohort[index]
                    answer = tokenizer.decode(sequence.tokens[sequence.prompt_length :].tolist())
                    if (follow := conversation.answered(answer)) is not None:
                        opened.append(follow)
            number += 1
            rate = made / (time.perf_counter() - started)
            progress = f"{total:,} of {answer_tokens:,} answer tokens, {rate:,.0f} tok/s"
            click.echo(f"cohort {number}: {len(cohort)} answers, {progress}", err=True)
            if total >= answer_tokens:
                return total
    return total


def _same_settings(cohort: Cohort, facts: dict[str, object], path: Path) -> None:
    wanted = {name: list(value) if isinstance(value, tuple) else value for name, value in facts.items()}
    for name, value in wanted.items():
        if cohort.settings.get(name) != value:
            raise UsageError(
                f"{path.parent} holds a corpus that was made with another {name}",
                expected=str(value),
                found=str(cohort.settings.get(name)),
                repair="choose another --output, or give the same settings to go on with this one",
            )


@click.command(help=(__doc__ or "").split("\n", 1)[0])
@click.option("--model", required=True, help="The target: as `model` in a build's YAML.")
@click.option("--prompts", required=True, type=click.Path(path_type=Path), help="JSON lines of conversations.")
@click.option("--output", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder of the corpus.")
@click.option("--answer-tokens", default=2_000_000, show_default=True, type=click.IntRange(min=1), help="Stop there.")
@click.option("--max-tokens", default=192, show_default=True, type=click.IntRange(min=2), help="Longest answer.")
@click.option("--max-prompt", default=320, show_default=True, type=click.IntRange(min=1), help="Longest prompt.")
@click.option("--cohort", default=384, show_default=True, type=click.IntRange(min=1), help="Requests at once.")
@click.option("--sampled", default=0.5, show_default=True, type=click.FloatRange(0, 1), help="Share not greedy.")
@click.option("--temperature", "temperatures", default=(0.7, 1.0), show_default=True, multiple=True, type=float)
@click.option("--aux-layers", default=None, help="Residual-stream positions, such as 2,15,27.  [default: 2, N/2, N-3]")
@click.option("--seed", default=0, show_default=True)
@click.option("--dtype", default="bfloat16", show_default=True, type=click.Choice(["bfloat16", "float32"]))
def main(
    model: str,
    prompts: Path,
    output: Path,
    answer_tokens: int,
    max_tokens: int,
    max_prompt: int,
    cohort: int,
    sampled: float,
    temperatures: tuple[float, ...],
    aux_layers: str | None,
    seed: int,
    dtype: str,
) -> None:
    prepare_process("training.generate")
    try:
        source = resolve(model, key="--model", base=Path.cwd())
        config = read_target_config(source)
        layers = parse_aux_layers(aux_layers, config.num_layers)
        settings = Settings(seed, cohort, max_tokens, max_prompt, sampled, temperatures, layers)
        tokenizer = load_tokenizer(model)
        weights = load_target_weights(source, config, getattr(torch, dtype))
        target = BatchTarget(config, weights, layers, max_prompt + max_tokens)
        total = generate(target, config, tokenizer, read_conversations(prompts), output, settings, answer_tokens)
    except Eagle3Error as error:
        click.echo("\n".join(render(error)), err=True)
        sys.exit(error.exit_code)
    size = sum(os.path.getsize(path) for path in output.glob("cohort-*.safetensors")) / 1e9
    click.echo(f"Corpus in {output}: {total:,} answer tokens, {size:.1f} GB")


def parse_aux_layers(text: str | None, num_layers: int) -> tuple[int, ...]:
    """Residual-stream positions from the command line; the published default without.

    Raises:
        UsageError: they are not different ascending positions.
    """
    if text is None:
        found = [2, num_layers // 2, num_layers - 3]
    else:
        try:
            found = [int(part) for part in text.split(",")]
        except ValueError:
            found = []
    if not found or found != sorted(set(found)) or not 0 <= found[0] <= found[-1] <= num_layers:
        raise UsageError(
            "--aux-layers does not fit the target",
            expected=f"different ascending positions from 0 to {num_layers}, such as 2,15,27",
            found=text or str(found),
            repair="correct --aux-layers",
        )
    return tuple(found)


if __name__ == "__main__":
    main()
