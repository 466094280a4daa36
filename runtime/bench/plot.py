"""A benchmark's result as a picture: acceptance per position, and tokens/s against the number of draft tokens.

matplotlib is wanted for this alone, so it is an extra and imported here only.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from runtime.bench.figures import Figures
from runtime.bench.result import Result
from runtime.bundle.errors import HostError, UsageError
from runtime.writable import check_writable, unwritable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from runtime.bench.facts import Facts

FAINT = 0.45
BOLD = {"color": "black", "linewidth": 2.5}
NEEDS_MORE = {"pgf"}  # formats that matplotlib writes by way of another program


def check_plot(file: Path) -> None:
    """Find out before a long run whether its picture can be written to `file`; leaves no file behind.

    Raises:
        HostError: matplotlib is not installed.
        UsageError: it knows no such format, or the file cannot be written.
    """
    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError as error:
        raise HostError(
            "--plot needs matplotlib",
            expected="matplotlib 3.8 or newer",
            found=str(error),
            repair="pip install 'eagle3-aot[plot]'",
        ) from None
    formats = sorted(set(FigureCanvasBase.get_supported_filetypes()) - NEEDS_MORE)
    if file.suffix.removeprefix(".").lower() not in formats:
        raise UsageError(
            f"--plot {file} names no kind of picture",
            expected=f"a name that ends in one of {', '.join(formats)}",
            found=repr(file.suffix),
            repair="give a name such as bench.png",
        )
    check_writable("--plot", file)


def plot(result: Result, file: Path) -> None:
    """Write the picture; its format is that of the file's suffix.

    Raises:
        UsageError: the file cannot be written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 5.5), layout="constrained")
    acceptance, rates = figure.subplots(1, 2)
    _draw_acceptance(acceptance, result)
    _draw_rates(rates, result)
    named = [axes.get_legend_handles_labels() for axes in (acceptance, rates)]
    lines = {label: line for handles, labels in named for line, label in zip(handles, labels, strict=True)}
    # One legend for both panels, beside them: in eight kinds it would cover what it explains
    figure.legend(lines.values(), lines.keys(), loc="outside right center", fontsize="small")
    save_titled(figure, result.facts, file)


def save_titled(figure: Figure, facts: Facts, file: Path) -> None:
    """Write `figure` to `file` under a title that says what was measured on what.

    Raises:
        UsageError: `file` cannot be written.
    """
    figure.suptitle(
        plain_text(
            f"{facts.bundle}: {facts.prompts} prompts, {facts.max_tokens} new tokens, {facts.dtype}, "
            f"{facts.cpu}, {facts.threads} threads"
        ),
        fontsize=10,
    )
    try:
        figure.savefig(file, dpi=150)
    except OSError as error:
        raise unwritable("--plot", file, error) from None


def _draw_acceptance(axes: Axes, result: Result) -> None:
    """Of the longest chains that were measured: unconditional as lines, conditional dashed."""
    count = max(result.totals)
    for number, (kind, figures) in enumerate(result.kinds[count].items()):
        _draw_shares(axes, figures, plain_text(kind), {"color": f"C{number % 10}", "alpha": FAINT})
    _draw_shares(axes, result.totals[count], "total", BOLD)
    axes.plot([], [], linestyle="--", color="grey", label="given the one before")
    axes.set(title=f"Acceptance, K={count}", xlabel="draft position", ylabel="share accepted", ylim=(-0.02, 1.02))
    axes.set_xticks(range(1, count + 1))
    axes.grid(alpha=0.3)


def _draw_shares(axes: Axes, figures: Figures, label: str, style: dict[str, object]) -> None:
    acceptance = figures.acceptance
    for shares, line in ((acceptance.unconditional, "-"), (acceptance.conditional, "--")):
        known = [(position, share) for position, share in enumerate(shares, start=1) if share is not None]
        axes.plot(
            [position for position, _ in known],
            [share for _, share in known],
            linestyle=line,
            marker="o",
            markersize=4,
            label=label if line == "-" else None,
            **style,  # type: ignore[arg-type]
        )


def _draw_rates(axes: Axes, result: Result) -> None:
    counts = list(result.totals)
    for number, kind in enumerate(result.kinds[counts[0]]):
        rates = [_rate(result.kinds[count][kind]) for count in counts]
        axes.plot(counts, rates, marker="o", markersize=4, color=f"C{number % 10}", alpha=FAINT, label=plain_text(kind))
    axes.plot(counts, [_rate(result.totals[count]) for count in counts], marker="o", label="total", **BOLD)  # type: ignore[arg-type]
    plain = result.totals[counts[0]].plain.decode_tokens_per_s
    if plain is not None:
        axes.axhline(plain, linestyle=":", label="total, plain decoding", **BOLD)  # type: ignore[arg-type]
    axes.set(
        title="Decoding", xlabel="draft tokens a step (K)", ylabel="tokens/s", xlim=(counts[0] - 1, counts[-1] + 1)
    )
    axes.set_ylim(bottom=0)
    axes.set_xticks(counts)
    axes.grid(alpha=0.3)


def _rate(figures: Figures) -> float:
    rate = figures.speculative.decode_tokens_per_s
    return float("nan") if rate is None else rate


def plain_text(text: str) -> str:
    """`text` as it is: matplotlib would read a formula between dollar signs."""
    return text.replace("$", r"\$")
