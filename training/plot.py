"""The learning curve as a picture: acceptance length of a run's checkpoints against the answer tokens it has seen.

    python -m training.plot --output curve.png "230 kinds=run/log.jsonl" "20 kinds=kinds-20/log.jsonl"

Needs matplotlib (the extra `plot`).
"""

from __future__ import annotations

from pathlib import Path

import click

from runtime.bench.plot import check_plot
from runtime.bundle.errors import UsageError
from training.log import read_log
from training.process import tells_errors


def read_curve(file: Path) -> tuple[list[int], list[float]]:
    """Tokens seen and acceptance lengths of a run's log, in order.

    Raises:
        UsageError: the file is no log of a run, or holds no checkpoint.
    """
    try:
        if not (entries := read_log(file)):
            raise ValueError("no line")
        measured = [entry for entry in entries if "acceptance_length" in entry]
        tokens, lengths = [entry["tokens"] for entry in measured], [entry["acceptance_length"] for entry in measured]
    except (ValueError, KeyError) as error:
        raise UsageError(f"{file} is no log of a run", found=str(error), repair="give a run's log.jsonl") from None
    if not measured:
        raise UsageError(f"{file} holds no checkpoint yet", repair="wait for the run's first --check-every steps")
    return tokens, lengths


@click.command(help=(__doc__ or "").split("\n", 1)[0])
@click.argument("runs", nargs=-1, required=True, metavar="LABEL=LOG...")
@click.option("--output", required=True, type=click.Path(path_type=Path, dir_okay=False), help="Picture to write.")
@tells_errors
def main(runs: tuple[str, ...], output: Path) -> None:
    check_plot(output)
    curves = []
    for run in runs:
        label, _, file = run.rpartition("=")
        curves.append((label or Path(file).resolve().parent.name, read_curve(Path(file))))
    draw(curves, output)


def draw(curves: list[tuple[str, tuple[list[int], list[float]]]], output: Path) -> None:
    """One line for each run; tokens in millions on a logarithmic axis."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for label, (tokens, lengths) in curves:
        axes.plot([count / 1e6 for count in tokens], lengths, marker="o", label=label.replace("$", r"\$"))
    axes.set(xscale="log", xlabel="answer tokens seen, millions", ylabel="acceptance length at K=3, held-out answers")
    axes.grid(alpha=0.3, which="both")
    axes.legend()
    figure.savefig(output, dpi=150)


if __name__ == "__main__":
    main()
