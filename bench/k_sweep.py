"""How many draft tokens pay: a bundle for every K, each measured by `eagle3-run bench`, and one table and picture.

    python bench/k_sweep.py --prompts examples/smollm2/eval.jsonl --plot k.png

A bundle's passes have 1+K rows, so each K gets a bundle of its own: what `eagle3-run bench -k 1-6` tells of one bundle
is acceptance, and this tells speed. The bundles lie in a temporary folder; their compiled units stay in the cache.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a script, not as a module

from bench.commands import BenchError, build
from bench.machine import describe, load_average
from runtime.bench.choose import parse_counts
from runtime.bench.plot import check_plot
from runtime.bundle.errors import Eagle3Error, render


@dataclass(frozen=True)
class Row:
    """One K: mean acceptance length, unconditional acceptance per position, tokens/s plain and speculative (decode),
    their ratio, the median of the prompts' ratios, and how many texts equal plain decoding's."""

    k: int
    length: float
    rates: list[float]
    plain: float
    speculative: float
    speedup: float
    median: float
    identical: int
    prompts: int


def row(k: int, result: dict[str, Any]) -> Row:
    """From what `eagle3-run bench --json` printed."""
    (entry,) = result["results"]
    total = entry["total"]
    return Row(
        k,
        total["acceptance"]["mean_acceptance_length"],
        total["acceptance"]["unconditional_per_pos"],
        total["plain"]["decode_tokens_per_s"],
        total["speculative"]["decode_tokens_per_s"],
        total["speedup"]["decode"],
        total["speedup"]["decode_median"],
        total["identical"],
        total["prompts"],
    )


def table(rows: list[Row]) -> str:
    """Markdown, one line for each K."""
    lines = [
        "| K | acceptance length | accepted at 1..K | plain tok/s | spec. tok/s | ratio | median of them | same text |"
    ]
    lines.append("|---" * 8 + "|")
    for one in rows:
        rates = " ".join(f"{rate:.2f}" for rate in one.rates)
        lines.append(
            f"| {one.k} | {one.length:.2f} | {rates} | {one.plain:.1f} | {one.speculative:.1f} | {one.speedup:.2f}x "
            f"| {one.median:.2f}x | {one.identical} of {one.prompts} |"
        )
    return "\n".join(lines)


def draw(rows: list[Row], file: Path) -> None:
    """Ratio over plain decoding, and acceptance length, against K."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    speed, length = figure.subplots(1, 2)
    counts = [one.k for one in rows]
    speed.plot(counts, [one.speedup for one in rows], marker="o", color="black")
    speed.axhline(1.0, linestyle=":", color="grey")
    speed.set(title="Decoding over plain decoding", xlabel="K", ylabel="ratio of tokens/s", xticks=counts)
    length.plot(counts, [one.length for one in rows], marker="o", color="black")
    length.set(title="Acceptance length", xlabel="K", ylabel="tokens a verify step", xticks=counts)
    for axes in (speed, length):
        axes.grid(alpha=0.3)
    figure.savefig(file, dpi=150)


def bench(bundle: Path, prompts: Path, max_tokens: int, limit: int | None) -> dict[str, Any]:
    """What `eagle3-run bench --json` says of a bundle; a text that differs is a result too.

    Raises:
        BenchError: it printed no result.
    """
    program = Path(sys.executable).with_name("eagle3-run")
    command = [str(program), "bench", "--bundle", str(bundle), "--prompts", str(prompts), "--json"]
    command += ["--max-tokens", str(max_tokens), *(["--limit", str(limit)] if limit else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        result: dict[str, Any] = json.loads(done.stdout)
        if "results" in result:
            return result
    except ValueError:
        pass
    raise BenchError(f"{' '.join(command)} left with {done.returncode}: {done.stderr}{done.stdout}")


@click.command(help=(__doc__ or "").split("\n", 1)[0])
@click.option("--prompts", required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("-k", "counts", default="1-6", show_default=True, help="Which K, as 1-6 or 1,3.")
@click.option("--max-tokens", default=128, show_default=True, type=click.IntRange(min=2))
@click.option("--limit", type=click.IntRange(min=1), help="Only so many prompts, evenly over kinds.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key of the demo's YAML.")
@click.option("--plot", type=click.Path(path_type=Path), help="Write a picture.")
@click.option("--json", "as_json", type=click.Path(path_type=Path), help="Write the rows as JSON.")
def main(
    prompts: Path,
    counts: str,
    max_tokens: int,
    limit: int | None,
    overrides: tuple[str, ...],
    plot: Path | None,
    as_json: Path | None,
) -> None:
    rows: list[Row] = []
    code = 0
    try:
        wanted = parse_counts(counts)
        if plot:
            check_plot(plot)
        click.echo(f"{describe()}\nload average before: {load_average()}", err=True)
        for k in wanted:
            with TemporaryDirectory() as folder:
                bundle = Path(folder) / f"k{k}"
                changes = [f"speculative_config.num_speculative_tokens={k}", "max_num_seqs=1", "buckets.num_seqs=[1]"]
                build(bundle, [*changes, *overrides])
                rows.append(row(k, bench(bundle, prompts, max_tokens, limit)))
            click.echo(f"K={k}: {rows[-1].length:.2f} tokens a step, {rows[-1].speedup:.2f}x", err=True)
    except BenchError as error:
        click.echo(f"error: {error}", err=True)
        code = 1
    except Eagle3Error as error:
        click.echo("\n".join(render(error)), err=True)
        code = error.exit_code
    # What was measured before an error is told all the same
    if rows:
        click.echo(table(rows))
        if as_json:
            as_json.write_text(json.dumps([vars(one) for one in rows], indent=1) + "\n", encoding="utf-8")
        if plot:
            draw(rows, plot)
    sys.exit(code)


if __name__ == "__main__":
    main()
