"""Self-distillation: the target answers a file of conversations, and its states are kept.

    python -m training.generate --model MODEL --prompts prompts.jsonl --output corpus/ --answer-tokens 2000000

Conversations are taken in the file's order, a window at a time; a window is sorted by prompt length and answered in
cohorts. What a cohort holds follows from the file, the settings and the seed alone, so an interrupted run goes on where
it stopped: finished cohorts are read instead of made.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import click
import torch

from aot.checkpoint.target import TargetConfig
from runtime.bundle.errors import UsageError
from runtime.text import Tokenizer
from training.conversations import Conversation, read_conversations
from training.corpus import PATTERN, Cohort, cohort_path, write_cohort
from training.model import Target
from training.process import prepare_process, tells_errors
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
    model: Mapping[str, str],
) -> int:
    """Write cohorts until `answer_tokens` are reached or the conversations end; returns how many tokens there are.

    Args:
        model: what tells this target from others; stored beside the settings.

    Raises:
        UsageError: the folder holds a corpus of other settings, another model or other prompts.
    """
    output.mkdir(parents=True, exist_ok=True)
    number = total = 0
    made, started = 0, time.perf_counter()
    facts = {**vars(settings), **model}
    for cohorts, opened in windows(conversations, tokenizer, settings):
        for members in cohorts:
            path = cohort_path(output, number)
            if path.is_file():
                cohort = Cohort(path)
                _same_make(cohort, facts, [ids for _, ids in members], path)
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


def _same_make(cohort: Cohort, facts: Mapping[str, object], prompts: list[list[int]], path: Path) -> None:
    wanted = {name: list(value) if isinstance(value, tuple) else value for name, value in facts.items()}
    for name, value in wanted.items():
        if cohort.settings.get(name, value) != value:
            raise UsageError(
                f"{path.parent} holds a corpus that was made with another {name}",
                expected=str(value),
                found=str(cohort.settings.get(name)),
                repair="choose another --output, or give the same settings to go on with this one",
            )
    held = [cohort[index].tokens[: cohort.prompt_lengths[index]].tolist() for index in range(len(cohort))]
    if held != prompts:
        raise UsageError(
            f"{path.name} of {path.parent} answers other prompts than the file now gives",
            repair="choose another --output, or give the prompts that the corpus was begun with",
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
@click.option(
    "--temperature",
    "temperatures",
    default=(0.7, 1.0),
    show_default=True,
    multiple=True,
    type=click.FloatRange(0, 10, min_open=True),
    help="Of what is sampled, in turn; may be given several times.",
)
@click.option("--aux-layers", default=None, help="Residual-stream positions, such as 2,15,27.  [default: 2, N/2, N-3]")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0, 1_000_000))
@click.option("--dtype", default="bfloat16", show_default=True, type=click.Choice(["bfloat16", "float32"]))
@tells_errors
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
    target = Target.find(model)
    config = target.config
    layers = parse_aux_layers(aux_layers, config.num_layers)
    if max_prompt + max_tokens > config.max_position_embeddings:
        raise UsageError(
            "the longest prompt and the longest answer do not fit the model together",
            expected=f"at most {config.max_position_embeddings} tokens",
            found=f"{max_prompt} + {max_tokens}",
            repair="lower --max-prompt or --max-tokens",
        )
    settings = Settings(seed, cohort, max_tokens, max_prompt, sampled, temperatures, layers)
    tokenizer = target.tokenizer()
    # All of it now: a bad line would otherwise end the run hours later
    conversations = list(read_conversations(prompts))
    batch = BatchTarget(config, target.load(dtype), layers, max_prompt + max_tokens)
    facts = {"model": target.fingerprint(), "dtype": dtype}
    total = generate(batch, config, tokenizer, iter(conversations), output, settings, answer_tokens, facts)
    if not total:
        raise UsageError(
            f"{prompts} gave no answer",
            expected=f"conversations of at most {max_prompt} prompt tokens",
            found=f"{len(conversations)}, none of them as short" if conversations else "an empty file",
            repair="give more conversations, or raise --max-prompt",
        )
    size = sum(path.stat().st_size for path in output.glob(PATTERN)) / 1e9
    short = "" if total >= answer_tokens else "; the conversations ended there"
    click.echo(f"Corpus in {output}: {total:,} answer tokens, {size:.1f} GB{short}")


def parse_aux_layers(text: str | None, num_layers: int) -> tuple[int, ...]:
    """Residual-stream positions from the command line; the published default without.

    Raises:
        UsageError: they are not different ascending positions.
    """
    if text is None:
        found = [2, num_layers // 2, num_layers - 3]
        what, repair = "the default auxiliary layers do", "give --aux-layers"
    else:
        what, repair = "--aux-layers does", "correct --aux-layers"
        try:
            found = [int(part) for part in text.split(",")]
        except ValueError:
            found = []
    if not found or found != sorted(set(found)) or not 0 <= found[0] <= found[-1] <= num_layers:
        raise UsageError(
            f"{what} not fit the target",
            expected=f"different ascending positions from 0 to {num_layers}",
            found=str(found) if text is None else text,
            repair=repair,
        )
    return tuple(found)


if __name__ == "__main__":
    main()
