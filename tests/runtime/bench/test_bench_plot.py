"""The picture: that it is one, that it shows what it should, and that its file is judged before the run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from runtime.bench.plot import check_plot, plot
from runtime.bench.result import Result
from runtime.bundle.errors import HostError, UsageError
from runtime.prompts import Prompt
from tests.runtime.bench.records import FACTS, plain_and_speculative, run

PROMPTS = [Prompt("line 1", "long", kind="math $x$"), Prompt("line 2", "short", kind="code")]


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


def lines(axes: Axes) -> dict[str, list[float]]:
    """The values of every line that the legend names."""
    handles, labels = axes.get_legend_handles_labels()
    return {label: list(handle.get_ydata()) for handle, label in zip(handles, labels, strict=True)}  # type: ignore[attr-defined]


def test_the_picture_of_one_k(tmp_path: Path, panels: list[Axes]) -> None:
    file = tmp_path / "bench.png"
    plot(Result.of(FACTS, PROMPTS, plain_and_speculative()), file)
    assert file.read_bytes().startswith(b"\x89PNG\r\n")
    acceptance, rates = panels
    assert lines(acceptance)["total"] == [0.75, 0.5, 0.25]
    assert set(lines(acceptance)) == {r"math \$x\$", "code", "total", "given the one before"}
    assert list(acceptance.get_xticks()) == [1, 2, 3]
    assert lines(rates)["total"] == pytest.approx([5.6])
    assert lines(rates)["total, plain decoding"] == pytest.approx([14 / 3, 14 / 3])
    assert rates.get_xlim() == (2, 4)


def test_the_picture_of_several_k_draws_rates_against_k(tmp_path: Path, panels: list[Axes]) -> None:
    runs = plain_and_speculative()
    runs += [run(0, 1, range(11), after_first=0.25, seconds=0.75), run(1, 1, range(5), after_first=1.0, seconds=1.5)]
    plot(Result.of(FACTS, PROMPTS, runs), tmp_path / "bench.png")
    acceptance, rates = panels
    assert lines(rates)["total"] == pytest.approx([14 / 1.25, 5.6])
    assert list(rates.get_xticks()) == [1, 3]
    assert acceptance.get_title() == "Acceptance, K=3"


def test_one_token_answers_and_no_kinds_still_make_a_picture(tmp_path: Path) -> None:
    runs = [run(0, k, [7], after_first=0.0, seconds=1.0) for k in (0, 3)]
    plot(Result.of(FACTS, [Prompt("line 1", "text")], runs), tmp_path / "bench.png")
    assert (tmp_path / "bench.png").stat().st_size > 1000


@pytest.mark.parametrize("name", ["bench.png", "bench.SVG", "bench.pdf"])
def test_a_file_that_can_be_written_passes_and_is_not_left_behind(tmp_path: Path, name: str) -> None:
    check_plot(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_an_older_picture_stays_until_it_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "bench.png").write_bytes(b"old")
    check_plot(tmp_path / "bench.png")
    assert (tmp_path / "bench.png").read_bytes() == b"old"


@pytest.mark.parametrize("name", ["bench", "bench.txt", "bench.pgf"])
def test_a_suffix_that_names_no_picture_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=r"names no kind of picture: expected .*png.*, found") as caught:
        check_plot(tmp_path / name)
    assert caught.value.repair == "give a name such as bench.png"


def test_a_path_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.png").mkdir()
    for file in (tmp_path / "nowhere" / "bench.png", tmp_path / "folder.png"):
        with pytest.raises(UsageError, match="cannot be written: expected a file in a folder that is there"):
            check_plot(file)
    assert not (tmp_path / "nowhere").exists()


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.backend_bases", None)
    with pytest.raises(HostError, match="--plot needs matplotlib") as caught:
        check_plot(tmp_path / "bench.png")
    assert (caught.value.repair, caught.value.exit_code) == ("pip install 'eagle3-aot[plot]'", 4)
