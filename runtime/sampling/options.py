"""The sampling parameters as options of a command line, and back to their JSON keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

OPTIONS = (
    click.option(
        "--temperature",
        type=float,
        metavar="T",
        help="Divide logits by T and draw tokens at random; 0 takes the likeliest.  [default: 0]",
    ),
    click.option("--top-k", type=int, metavar="K", help="Draw from the K likeliest tokens only."),
    click.option("--top-p", type=float, metavar="P", help="Draw from the likeliest tokens that reach probability P."),
    click.option(
        "--min-p", type=float, metavar="P", help="Draw from tokens at least P times as likely as the likeliest."
    ),
    click.option(
        "--presence-penalty", type=float, metavar="X", help="Lower the logits of generated tokens by X; -2 to 2."
    ),
    click.option(
        "--frequency-penalty", type=float, metavar="X", help="The same for each time that a token was generated."
    ),
    click.option(
        "--repetition-penalty",
        type=float,
        metavar="X",
        help="Divide the logits of tokens in prompt or answer by X; above 1 discourages them.",
    ),
    click.option("--seed", type=int, metavar="N", help="Draw the same text each time.  [default: a new one]"),
    click.option("--stop", multiple=True, metavar="TEXT", help="End before TEXT; may be given several times."),
    click.option(
        "--stop-token-id", "stop_token_ids", type=int, multiple=True, metavar="ID", help="End at ID; several times too."
    ),
    click.option("--min-tokens", type=int, metavar="N", help="Let nothing end an answer before N tokens."),
    click.option(
        "--logprobs",
        type=int,
        metavar="N",
        help="With --json: each token's log probability, and those of the N likeliest.",
    ),
)


def sampling_options(command: Command) -> Command:
    """Give `command` these options, in this order."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def given(values: Mapping[str, object]) -> dict[str, object]:
    """The options that were given, by the JSON keys that `runtime.sampling.parse` reads."""
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in values.items()
        if value not in (None, ())
    }
