"""`eagle3-run bench`: its options, and what it does with them. Nothing heavy is imported before they are read."""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from runtime.bundle.errors import UsageError

if TYPE_CHECKING:
    from runtime.bench.result import Result
    from runtime.commands import Session
    from runtime.prompts import Prompt

DEFAULT_MAX_TOKENS = 128
EPILOG = """\b
Examples:
  eagle3-run bench --bundle artifacts/smollm2-135m --prompts examples/smollm2/eval.jsonl
  eagle3-run bench --bundle artifacts/k6 --prompts eval.jsonl -k 1-6 --plot k.png
  eagle3-run bench --bundle artifacts/smollm2-135m --prompts eval.jsonl --limit 16 --json > bench.json

\b
Lines of the file are those of eagle3-run --prompts. A "kind" in a line gives the
prompt's kind a row of its own: {"kind": "math", "prompt": "What is 17 + 25?"}

\b
Exit codes: 0 ok, 1 a text differs from plain decoding (unless the bundle is near_tie), or a prompt
ended before its answer was whole, 2 usage, 4 incompatible host, 5 damaged bundle, 130 interrupted.
"""


@click.command("bench", epilog=EPILOG, short_help="Measure a bundle, with and without speculation.")
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
    help="The prompts to measure on.",
)
@click.option(
    "-k",
    "--num-speculative-tokens",
    "counts",
    metavar="LIST",
    help="Numbers of draft tokens a step, as in 3, 1-6 or 1,3; at most what the bundle was built for.  "
    "[default: the bundle's]",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(min=1),
    default=DEFAULT_MAX_TOKENS,
    show_default=True,
    metavar="N",
    help="Generate at most N tokens for each prompt.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help="Take N prompts only, evenly over the kinds.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Run N requests at once.",
)
@click.option(
    "--warmup",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    metavar="N",
    help="Run N prompts untimed first.",
)
@click.option("--raw", is_flag=True, help="Give prompts to the model as they are, without chat template.")
@click.option("--ignore-eos", is_flag=True, help="Go on past the model's end of sequence.")
@click.option(
    "--plot",
    "picture",
    type=click.Path(path_type=Path),
    metavar="FILE.png",
    help="Draw acceptance per position, and tokens/s against the number of draft tokens.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("-q", "--quiet", is_flag=True, help="Print no progress.")
def bench(
    bundle: Path,
    file: Path,
    counts: str | None,
    max_tokens: int,
    limit: int | None,
    concurrency: int,
    warmup: int,
    raw: bool,
    ignore_eos: bool,
    picture: Path | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Measure a bundle on prompts, with and without speculation in the same run.

    Every prompt is decoded plainly and with speculation back to back, in turns of who goes first. Decoding rates count
    the tokens after the first over the time after it. Texts are compared: decoding is greedy, or, for lines with a
    temperature, has their seed or one for all.
    """
    from runtime.bench.choose import parse_counts, sample
    from runtime.prompts import read_prompts

    # 1. All that can be wrong with the command line, before the minutes that it asks for
    chosen = None if counts is None else parse_counts(counts)
    if picture is not None:
        from runtime.bench.plot import check_plot

        check_plot(picture)
    prompts = sample(read_prompts(file), limit)

    from runtime import commands

    options = commands.Options(raw=raw, max_tokens=max_tokens, ignore_eos=ignore_eos, as_json=as_json, quiet=quiet)
    session = commands.open_session(bundle, options)

    # 2. The run
    result = _measure(session, prompts, chosen, concurrency=concurrency, warmup=warmup)

    # 3. What it gave; the picture last, so that no fault of its file can cost the figures
    from runtime.bench.table import table
    from runtime.output import Out

    out = Out(sys.stdout)
    if as_json:
        out.json(result.to_json())
    else:
        for line in table(result):
            out.line(line)
    if picture is not None:
        from runtime.bench.plot import plot

        plot(result, picture)
        session.progress(f"Plotted {picture}.")
    return 1 if result.differences and result.facts.lossless == "exact" else 0


def _measure(
    session: Session, prompts: tuple[Prompt, ...], counts: tuple[int, ...] | None, *, concurrency: int, warmup: int
) -> Result:
    from runtime.bench.facts import Facts
    from runtime.bench.measure import load_engines, measure
    from runtime.bench.result import Result
    from runtime.generate import generate, raise_failures
    from runtime.proposer import drafts_per_step

    manifest, options = session.bundle.manifest, session.options
    counts = counts or (manifest.speculation.num_speculative_tokens,)
    drafts_per_step(manifest, counts[-1])
    if concurrency > manifest.limits.max_num_seqs:
        raise UsageError(
            f"{manifest.name} cannot run {concurrency} requests at once",
            expected=f"--concurrency of at most {manifest.limits.max_num_seqs} (max_num_seqs of the bundle)",
            found=str(concurrency),
            repair="lower --concurrency, or rebuild the bundle with a larger max_num_seqs",
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
        concurrency=concurrency,
        warmup=min(warmup, len(prompts)),
        ignore_eos=options.ignore_eos,
        raw=options.raw,
    )
    shown = sys.stderr.isatty() and not (options.quiet or options.as_json)
    started = time.perf_counter()
    with click.progressbar(length=len(prompts), label="Measuring", file=sys.stderr) if shown else nullcontext() as bar:
        runs = measure(
            engines,
            requests,
            concurrency=concurrency,
            warmup=warmup,
            on_group=lambda n: None if bar is None else bar.update(n),
        )
    session.progress(f"Measured {len(prompts)} prompts in {time.perf_counter() - started:.1f} s.")
    raise_failures((run.output for run in runs), names)
    return Result.of(facts, prompts, runs)
