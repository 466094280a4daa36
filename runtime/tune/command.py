"""`eagle3-run tune`: its options, and what it does with them. Nothing heavy is imported before they are read."""

from __future__ import annotations

import json
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from runtime.bundle.errors import UsageError
from runtime.writable import check_writable, unwritable

if TYPE_CHECKING:
    from runtime.bundle.manifest import Manifest
    from runtime.commands import Session
    from runtime.prompts import Prompt
    from runtime.tune.result import Result

DEFAULT_MAX_TOKENS = 64
EPILOG = """\b
Examples:
  eagle3-run tune --bundle artifacts/smollm2-135m --prompts examples/smollm2/eval.jsonl --limit 16
  eagle3-run tune --bundle artifacts/b8 --prompts eval.jsonl --batch-sizes 1,2,4,8 --plot k.png --out k.json

\b
The schedule is for speculative_config.num_speculative_tokens_per_batch_size of
eagle3-build, which then compiles passes of fewer rows for it, and for
eagle3-run serve --num-speculative-tokens-per-batch-size k.json.

\b
Exit codes: 0 ok, 1 a text differs from plain decoding (unless the bundle is near_tie),
2 usage, 4 incompatible host, 5 damaged bundle, 130 interrupted.
"""


@click.command("tune", epilog=EPILOG, short_help="Measure how many draft tokens pay at which batch size.")
@click.option(
    "--bundle",
    required=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The folder that eagle3-build made.",
)
@click.option(
    "--prompts",
    "file",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE.jsonl",
    help="Prompts like those that will be served.",
)
@click.option(
    "--batch-sizes",
    metavar="LIST",
    help="How many requests at once, as in 1,2,4 or 1-4.  [default: powers of two up to the bundle's max_num_seqs, and "
    "the sizes that it is compiled for]",
)
@click.option(
    "-k",
    "--num-speculative-tokens",
    "counts",
    metavar="LIST",
    help="Numbers of draft tokens a step, as in 0-3.  [default: 0 to the bundle's]",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(min=1),
    default=DEFAULT_MAX_TOKENS,
    show_default=True,
    metavar="N",
    help="Generate at most N tokens for each prompt.",
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Take N prompts only, evenly over the kinds.")
@click.option(
    "--repeat",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    metavar="N",
    help="Measure everything N times, in turns.",
)
@click.option("--raw", is_flag=True, help="Give prompts to the model as they are, without chat template.")
@click.option("--ignore-eos", is_flag=True, help="Go on past the model's end of sequence.")
@click.option(
    "--plot",
    "picture",
    type=click.Path(path_type=Path),
    metavar="FILE.png",
    help="Draw goodput against the number of draft tokens.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.json",
    help="Write the schedule, [[first, last, K], ...].",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("-q", "--quiet", is_flag=True, help="Print no progress.")
def tune(
    bundle: Path,
    file: Path,
    batch_sizes: str | None,
    counts: str | None,
    max_tokens: int,
    limit: int | None,
    repeat: int,
    raw: bool,
    ignore_eos: bool,
    picture: Path | None,
    out: Path | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Measure goodput at each number of draft tokens (K) and batch size, and find the schedule that is fastest.

    Goodput is output tokens a second of a batch that is kept full. All engines take turns, figures are medians. Of two
    K that the noise does not tell apart the smaller one is taken. K = 0 drafts nothing but keeps the draft's KV in
    step, as a schedule does; "plain" has no draft at all. Texts are compared: decoding is greedy, or, for lines with a
    temperature, has their seed or one for all.
    """
    from runtime.bench.choose import parse_counts, sample
    from runtime.prompts import read_prompts

    # 1. All that can be wrong with the command line, before the minutes that it asks for
    chosen = None if counts is None else parse_counts(counts, least=0)
    sizes = None if batch_sizes is None else parse_counts(batch_sizes, "--batch-sizes")
    if picture is not None:
        from runtime.bench.plot import check_plot

        check_plot(picture)
    if out is not None:
        check_writable("--out", out)
    prompts = sample(read_prompts(file), limit)

    from runtime import commands

    options = commands.Options(raw=raw, max_tokens=max_tokens, ignore_eos=ignore_eos, as_json=as_json, quiet=quiet)
    session = commands.open_session(bundle, options)

    # 2. The run
    result = _measure(session, prompts, sizes, chosen, repeat)

    # 3. What it gave; the files last, so that no fault of theirs can cost the figures
    from runtime.output import Out
    from runtime.tune.table import table

    stdout = Out(sys.stdout)
    if as_json:
        stdout.json(result.to_json())
    else:
        for line in table(result):
            stdout.line(line)
    different = bool(result.differences) and result.facts.lossless == "exact"
    if out is not None:
        _write(out, json.dumps(result.schedule.to_json()) + "\n")
        session.progress(f"Wrote the schedule to {out}.")
    if picture is not None:
        from runtime.tune.plot import plot

        plot(result, picture)
        session.progress(f"Plotted {picture}.")
    return 1 if different else 0


def default_sizes(manifest: Manifest) -> tuple[int, ...]:
    """Powers of two up to max_num_seqs, and every bucket of requests, the last of which is max_num_seqs."""
    most = manifest.limits.max_num_seqs
    powers = {1 << exponent for exponent in range(most.bit_length()) if 1 << exponent <= most}
    return tuple(sorted(powers | set(manifest.buckets.num_seqs)))


def _measure(
    session: Session,
    prompts: tuple[Prompt, ...],
    sizes: tuple[int, ...] | None,
    counts: tuple[int, ...] | None,
    repeat: int,
) -> Result:
    from runtime.bench.facts import Facts
    from runtime.generate import generate, raise_failures
    from runtime.proposer import drafts_per_step
    from runtime.tune.measure import load_engines, measure
    from runtime.tune.result import Result

    manifest, options = session.bundle.manifest, session.options
    sizes = sizes or default_sizes(manifest)
    counts = counts or tuple(range(manifest.speculation.num_speculative_tokens + 1))
    drafts_per_step(manifest, max(1, counts[-1]))
    if sizes[-1] > manifest.limits.max_num_seqs:
        raise UsageError(
            f"{manifest.name} cannot run {sizes[-1]} requests at once",
            expected=f"--batch-sizes of at most {manifest.limits.max_num_seqs} (max_num_seqs of the bundle)",
            found=str(sizes[-1]),
            repair="lower --batch-sizes, or rebuild the bundle with a larger max_num_seqs",
        )
    requests = session.requests(prompts, raw=options.raw, max_tokens=DEFAULT_MAX_TOKENS, fixed_seed=True)
    started = time.perf_counter()
    engines = load_engines(session.bundle, counts, session.tokenizer)
    session.progress(f"Loaded {len(engines)} engines of {manifest.name} in {time.perf_counter() - started:.1f} s.")
    # Queued and dropped again: a prompt that is too long is told now, and not after an hour
    names = [prompt.where for prompt in prompts]
    list(generate(next(iter(engines.values())), requests, names=names, stop=lambda: True))
    facts = Facts.gather(
        manifest,
        prompts=len(prompts),
        max_tokens=options.max_tokens or DEFAULT_MAX_TOKENS,
        concurrency=sizes[-1],
        warmup=1,
        ignore_eos=options.ignore_eos,
        raw=options.raw,
    )
    trials = repeat * len(sizes) * len(engines)
    shown = sys.stderr.isatty() and not (options.quiet or options.as_json)
    started = time.perf_counter()
    with click.progressbar(length=trials, label="Measuring", file=sys.stderr) if shown else nullcontext() as bar:
        found = measure(
            engines, requests, sizes, repeat=repeat, on_trial=lambda: None if bar is None else bar.update(1)
        )
    session.progress(f"Ran {trials} trials in {time.perf_counter() - started:.1f} s.")
    raise_failures((output for trial in found for output in trial.outputs), names)
    shown_names = [prompt.where if prompt.id is None else str(prompt.id) for prompt in prompts]
    return Result.of(facts, shown_names, repeat, found)


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise unwritable("--out", file, error) from None
