"""A tuning result as a picture: goodput against K, a line for each batch size, and the gain over plain decoding.

matplotlib is wanted for this alone, so it is an extra and imported here only.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runtime.bench.plot import save_titled
from runtime.tune.result import Cell, Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GREY = "0.35"


def plot(result: Result, file: Path) -> None:
    """Write the picture; its format is that of the file's suffix, see `runtime.bench.plot.check_plot`.

    Raises:
        UsageError: the file cannot be written.
    """
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.8), layout="constrained")
    goodput, gain = figure.subplots(1, 2)
    shades = colormaps["viridis"]
    for number, (size, row) in enumerate(result.cells.items()):
        # The last quarter of the scale is too light for a line on white
        colour = shades(0.75 * number / max(1, len(result.cells) - 1))
        _draw_goodput(goodput, row, size, result.best[size], colour)
        _draw_gain(gain, row, size, result.best[size], colour)
    gain.axhline(1.0, linestyle=":", color=GREY, linewidth=1.2)
    goodput.set(title="Goodput, end to end", ylabel="output tokens/s")
    goodput.set_ylim(bottom=0)
    gain.set(title="Gain over plain decoding at the same batch size", ylabel="times")
    for axes in (goodput, gain):
        axes.set_xlabel("draft tokens a step (K)")
        axes.set_xticks(result.counts)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = goodput.get_legend_handles_labels()
    handles += goodput.plot([], [], linestyle=":", color=GREY) + goodput.plot([], [], **_star(GREY))
    figure.legend(handles, [*labels, "plain decoding", "K to use"], loc="outside right center", frameon=False)
    save_titled(figure, result.facts, file)


def _draw_goodput(axes: Axes, row: Mapping[int | None, Cell], size: int, best: int, colour: Any) -> None:
    """The medians with the span of the repeats behind them, plain decoding dotted."""
    cells = {k: cell for k, cell in row.items() if k is not None}
    lows, highs = [min(cell.rates) for cell in cells.values()], [max(cell.rates) for cell in cells.values()]
    axes.fill_between(list(cells), lows, highs, color=colour, alpha=0.15, linewidth=0)
    axes.plot(list(cells), [c.goodput for c in cells.values()], label=f"batch {size}", **_line(colour))
    axes.plot([best], [cells[best].goodput], **_star(colour))
    axes.axhline(row[None].goodput, linestyle=":", color=colour, linewidth=1.2)


def _draw_gain(axes: Axes, row: Mapping[int | None, Cell], size: int, best: int, colour: Any) -> None:
    plain = row[None].goodput
    gains = {k: cell.goodput / plain if plain else float("nan") for k, cell in row.items() if k is not None}
    axes.plot(list(gains), list(gains.values()), label=f"batch {size}", **_line(colour))
    axes.plot([best], [gains[best]], **_star(colour))


def _line(colour: Any) -> dict[str, Any]:
    return {"color": colour, "marker": "o", "markersize": 4, "linewidth": 2}


def _star(colour: Any) -> dict[str, Any]:
    return {"color": colour, "marker": "*", "markersize": 14, "linestyle": "none", "markeredgecolor": "white"}
