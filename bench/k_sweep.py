"""How many draft tokens pay: a bundle for every K, each measured by `eagle3-run bench`, and one table and picture.

    python bench/k_sweep.py --prompts examples/smollm2/eval.jsonl --plot k.png

A bundle's passes have 1+K rows, so each K gets a bundle of its own: what `eagle3-run bench -k 1-6` tells of one bundle
is acceptance, and this tells speed. The bundles lie in a temporary folder; their compiled units stay in the cache.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a script, not as a module

from bench.commands import BenchError, build, measure
from bench.machine import describe, load_average
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


@click.command(help=(__doc__ or "").split("\n", 1)[0])
@click.option("--prompts", required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--counts", default="1,2,3,4,5,6", show_default=True, help="Which K.")
@click.option("--max-tokens", default=128, show_default=True)
@click.option("--limit", type=int, help="Only so many prompts, evenly over kinds.")
@click.option("--plot", type=click.Path(path_type=Path), help="Write a picture.")
@click.option("--json", "as_json", type=click.Path(path_type=Path), help="Write the rows as JSON.")
def main(
    prompts: Path, counts: str, max_tokens: int, limit: int | None, plot: Path | None, as_json: Path | None
) -> None:
    click.echo(f"{describe()}\nload average before: {load_average()}", err=True)
    rows = []
    try:
        with TemporaryDirectory() as folder:
            for k in [int(part) for part in counts.split(",")]:
                bundle = Path(folder) / f"k{k}"
                changes = [f"speculative_config.num_speculative_tokens={k}", "max_num_seqs=1", "buckets.num_seqs=[1]"]
                build(bundle, changes)
                command = [
                    "eagle3-run",
                    "bench",
                    "--bundle",
                    str(bundle),
                    "--prompts",
                    str(prompts.resolve()),
                    "--json",
                ]
                command += ["--max-tokens", str(max_tokens), *(["--limit", str(limit)] if limit else [])]
                rows.append(row(k, json.loads(measure(command).stdout)))
                click.echo(f"K={k}: {rows[-1].length:.2f} tokens a step, {rows[-1].speedup:.2f}x", err=True)
    except BenchError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
    except Eagle3Error as error:
        click.echo("\n".join(render(error)), err=True)
        sys.exit(error.exit_code)
    click.echo(table(rows))
    if as_json:
        as_json.write_text(json.dumps([vars(one) for one in rows], indent=1) + "\n", encoding="utf-8")
    if plot:
        draw(rows, plot)


if __name__ == "__main__":
    main()
