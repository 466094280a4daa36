"""User requests of many kinds for self-distillation: the target model answers them, and the draft learns from that.

    python examples/smollm2/prompts.py --wordnet wordnet-base.deb --count 60000 --seed 1 --output prompts.jsonl

A draft guesses well what resembles its training text, so the kinds of request should be as many and as different as
those that users will make. Every kind is a set of templates (prompt_kinds/grammar.py) over word lists and WordNet.
The stream is endless, the same for the same seed, balanced in every prefix, and no prompt occurs twice in it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random

import click

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # run as a script, not as a module

from examples.smollm2.prompt_kinds import (
    code,
    explain,
    fields,
    life,
    numbers,
    planning,
    play,
    situations,
    talk,
    text,
    turns,
    words,
    workplace,
    writing,
)
from examples.smollm2.prompt_kinds.grammar import Kind, Writer, mend_articles
from examples.smollm2.prompt_kinds.slots import all_slots
from examples.smollm2.prompt_kinds.wordnet import read_wordnet
from runtime.bundle.errors import Eagle3Error, UsageError, render

FAMILIES = (explain, fields, life, writing, play, workplace, text, words, numbers, code, planning, talk, situations)
KINDS: tuple[Kind, ...] = tuple(kind for family in FAMILIES for kind in family.KINDS)
# Shares of the prompts that get a tail, a preface, later turns, a system message, or a typist's manners. With the kinds
# that have turns or a system message of their own, an eighth has several turns and a tenth a system message.
TAIL_RATE, PREFACE_RATE, FOLLOW_RATE, SYSTEM_RATE = 0.3, 0.12, 0.095, 0.085
MANNERS_RATE = 0.15
FOLLOW_UPS = (1, 1, 2, 3)  # how many later turns, where there are any
SPACES = re.compile(r"(?<=\S) +(?=[.,?](?:\s|$)| )")  # left behind by an empty choice
TRIES = 60  # until a kind counts as exhausted


@dataclass(frozen=True)
class Prompt:
    """One conversation without its answers.

    Args:
        kind: the kind of task, one of KINDS.
        turns: the user's messages; the model's own answers come between them.
        system: the system message, or None where there is none.
    """

    kind: str
    turns: tuple[str, ...]
    system: str | None = None

    def to_json(self) -> dict[str, object]:
        """The prompt as one line of the file holds it: {"kind", "turns", "system"?}."""
        line: dict[str, object] = {"kind": self.kind, "turns": self.turns}
        return line if self.system is None else line | {"system": self.system}


def prompts(wordnet: Path, seed: int, max_kinds: int | None = None) -> Iterator[Prompt]:
    """Endless prompts without a repetition. Kinds come in rounds, each kind once a round, in shuffled order.

    Args:
        wordnet: a folder with WordNet's files, or Debian's wordnet-base package.
        seed: the same seed gives the same stream (code to explain comes from Python's own library, so for the
            same Python).
        max_kinds: keep this many of the kinds only, chosen by the seed; None keeps all.

    Raises:
        UsageError: no WordNet there; or the few kinds that were kept have no new prompts left.
    """
    slots = all_slots(read_wordnet(wordnet))
    rng = Random(seed)
    kept = list(KINDS)
    if max_kinds is not None:
        rng.shuffle(kept)
        del kept[max_kinds:]
    many = len(kept)
    seen: set[tuple[str | None, tuple[str, ...]]] = set()
    while kept:
        rng.shuffle(kept)
        for kind in tuple(kept):
            for _ in range(TRIES):
                prompt = _prompt(kind, Writer(slots, rng))
                key = (prompt.system, prompt.turns)
                if key not in seen:
                    seen.add(key)
                    yield prompt
                    break
            else:
                kept.remove(kind)
    raise UsageError(
        f"these {many} kinds hold no more prompts",
        found=f"{len(seen)} different ones",
        repair="lower --count, or raise --max-kinds",
    )


def _prompt(kind: Kind, writer: Writer) -> Prompt:
    rng = writer.rng
    system, _, body = writer.choose(rng.choice(kind.templates)).rpartition(" ::: ")
    texts = [_written(turn, kind, writer) for turn in body.split(" ;; ")]
    texts[0] = _dressed(texts[0], kind, writer)
    if kind.follow in turns.FOLLOW_UPS and len(texts) == 1 and rng.random() < FOLLOW_RATE:
        texts += [
            _written(rng.choice(turns.FOLLOW_UPS[kind.follow]), kind, writer) for _ in range(rng.choice(FOLLOW_UPS))
        ]
    if not system and rng.random() < SYSTEM_RATE:
        system = rng.choice(turns.SYSTEMS)
    system = mend_articles(writer.write(system)).strip()
    return Prompt(kind.name, tuple(dict.fromkeys(texts)), system or None)


def _written(template: str, kind: Kind, writer: Writer) -> str:
    """`template` as a person would type it; what belongs to programs keeps its letters and articles."""
    template = writer.choose(template).strip()
    if "`" not in template and "    " not in template:
        template = SPACES.sub("", template)
    text = writer.write(template)
    if kind.follow == "code" and ("\n" in text or "`" in text):
        return text
    text = mend_articles(text)
    return text[:1].upper() + text[1:] if template.startswith("{") else text


def _dressed(text: str, kind: Kind, writer: Writer) -> str:
    """`text` with a wish about its form, and now and then the way people type."""
    rng = writer.rng
    if kind.tail in turns.TAILS:
        if rng.random() < PREFACE_RATE:
            text = f"{_written(rng.choice(turns.PREFACES), kind, writer)} {text}"
        tails = turns.TAILS[kind.tail]
        for tail in rng.sample(tails, k=2)[: int(rng.random() < TAIL_RATE) + int(rng.random() < TAIL_RATE / 4)]:
            text += "." if text[-1].isalnum() else ""
            text += ("\n\n" if "\n" in text or rng.random() < 0.05 else " ") + writer.write(tail)
    if "\n" in text or len(text) > 200 or rng.random() >= MANNERS_RATE:
        return text
    manner = rng.randrange(5)
    if manner == 0:
        greeting = rng.choice(turns.GREETINGS)
        return f"{greeting} {text[:1].lower() + text[1:] if greeting[-1] == ',' else text}"
    if manner == 1:
        return f"{text} {rng.choice(turns.THANKS)}"
    return text.lower().rstrip(".?") if manner < 4 else text.rstrip(".?!")


@click.command(help=__doc__.split("\n", 1)[0] if __doc__ else None)
@click.option("--wordnet", required=True, type=click.Path(path_type=Path), help="Folder, or wordnet-base .deb file.")
@click.option("--count", required=True, type=click.IntRange(min=1), help="How many prompts.")
@click.option("--seed", default=0, show_default=True, help="Seed of the stream.")
@click.option("--output", required=True, type=click.Path(path_type=Path, dir_okay=False), help="JSONL file to write.")
@click.option("--max-kinds", type=click.IntRange(min=1), help="Keep this many kinds of task only.  [default: all]")
def main(wordnet: Path, count: int, seed: int, output: Path, max_kinds: int | None) -> None:
    try:
        made = list(islice(prompts(wordnet, seed, max_kinds), count))
        lines = [json.dumps(prompt.to_json(), ensure_ascii=False) + "\n" for prompt in made]
        try:
            output.write_text("".join(lines), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{output} cannot be written ({error})", repair="name another --output") from error
    except Eagle3Error as error:
        click.echo("\n".join(render(error)), err=True)
        sys.exit(error.exit_code)
    click.echo(f"Wrote {len(made)} prompts of {len({prompt.kind for prompt in made})} kinds to {output}")


if __name__ == "__main__":
    main()
