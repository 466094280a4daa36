"""What a build prints: past-tense lines, and on a terminal a live view of the units that compile."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from aot.build.result import UnitResult


class QuietReporter:
    """Says nothing."""

    def say(self, line: str) -> None:
        return

    def compiling(self, total: int) -> None:
        return

    def unit_started(self, name: str) -> None:
        return

    def unit_finished(self, result: UnitResult) -> None:
        return

    def compiled(self) -> None:
        return


class PlainReporter(QuietReporter):
    """One line per event, with the unit, its time and what is left; for logs and pipes."""

    def __init__(self, write: Callable[[str], None] | None = None) -> None:
        self._write = write or (lambda line: print(line, file=sys.stderr, flush=True))
        self._total = self._done = 0
        self._began = time.monotonic()

    def say(self, line: str) -> None:
        self._write(line)

    def compiling(self, total: int) -> None:
        self._total, self._done, self._began = total, 0, time.monotonic()
        self._write(f"Compiling {total} units")

    def unit_finished(self, result: UnitResult) -> None:
        self._done += 1
        left = self._total - self._done
        elapsed = time.monotonic() - self._began
        remaining = f", {left} left, about {elapsed / self._done * left:.0f} s" if left else ""
        verb = "Compiled" if result.ok else f"FAILED (exit {result.exit_code}, {result.log})"
        verb = "Found" if result.cached else verb
        self._write(f"  {verb} {result.name} in {result.seconds:.1f} s [{self._done}/{self._total}{remaining}]")


class LiveReporter(PlainReporter):
    """A progress bar with the running units and their elapsed time."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._running: set[str] = set()
        super().__init__(lambda line: console.print(line, highlight=False))

    def compiling(self, total: int) -> None:
        super().compiling(total)
        self._task = self._progress.add_task("", total=total)
        self._progress.start()

    def unit_started(self, name: str) -> None:
        self._running.add(name)
        self._show()

    def unit_finished(self, result: UnitResult) -> None:
        super().unit_finished(result)
        self._running.discard(result.name)
        self._progress.advance(self._task)
        self._show()

    def _show(self) -> None:
        self._progress.update(self._task, description=" ".join(sorted(self._running)))

    def compiled(self) -> None:
        self._progress.stop()
