"""The picture shows every batch size's goodput against K, plain decoding, and the chosen K."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from runtime.bundle.errors import UsageError
from runtime.tune.plot import plot
from runtime.tune.result import Result
from tests.runtime.bench.records import FACTS
from tests.runtime.tune.records import trial, trials


@pytest.fixture
def panels(monkeypatch: pytest.MonkeyPatch) -> list[Axes]:
    """The panels of the figure that was saved last."""
    saved: list[Axes] = []
    inner = Figure.savefig

    def save(figure: Figure, *arguments: object, **options: object) -> None:
        saved[:] = figure.axes
        inner(figure, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Figure, "savefig", save)
    return saved


def lines(axes: Axes) -> dict[str, tuple[list[float], list[float]]]:
    """(K, value) of every line with a name."""
    handles, labels = axes.get_legend_handles_labels()
    return {
        label: (list(handle.get_xdata()), list(handle.get_ydata()))  # type: ignore[attr-defined]
        for handle, label in zip(handles, labels, strict=True)
    }


def test_a_line_for_each_batch_size(tmp_path: Path, panels: list[Axes]) -> None:
    file = tmp_path / "k.png"
    plot(Result.of(FACTS, ("a", "b"), 3, trials()), file)
    assert file.read_bytes().startswith(b"\x89PNG\r\n")
    goodput, gain = panels
    assert lines(goodput) == {
        "batch 1": ([0, 1, 3], [96.0, 150.0, 180.0]),
        "batch 4": ([0, 1, 3], [190.0, 240.0, 241.0]),
    }
    assert lines(gain)["batch 4"][1] == pytest.approx([0.95, 1.2, 1.205])
    marked = [line.get_xydata().tolist() for line in goodput.lines if line.get_marker() == "*"]  # type: ignore[union-attr]
    assert [points for points in marked if points] == [[[3.0, 180.0]], [[1.0, 240.0]]]
    assert list(goodput.get_xticks()) == [0, 1, 3]
    assert goodput.get_ylim()[0] == 0


def test_one_k_and_one_batch_size_still_make_a_picture(tmp_path: Path) -> None:
    plot(Result.of(FACTS, ("a", "b"), 1, [trial(2, None, 50.0), trial(2, 3, 80.0)]), tmp_path / "k.svg")
    assert (tmp_path / "k.svg").stat().st_size > 1000


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        plot(Result.of(FACTS, ("a", "b"), 3, trials()), tmp_path / "nowhere" / "k.png")
