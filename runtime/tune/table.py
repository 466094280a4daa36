"""A tuning result for people: goodput by K and batch size, what it gains over plain decoding, and the schedule."""

from __future__ import annotations

import json
from collections.abc import Sequence

from runtime.schedule import KEY
from runtime.tune.choose import noise
from runtime.tune.result import Cell, Result

MOST_DIFFERENCES = 10
BEST = "*"


def table(result: Result) -> list[str]:
    """The result, line by line; the schedule is the last line."""
    lines = [*result.facts.lines()[:-1], _run(result), "", *_grid(result), "", *_notes(result), *_differences(result)]
    return [*lines, f"{KEY}: {json.dumps(result.schedule.to_json())}"]


def _run(result: Result) -> str:
    facts, sizes = result.facts, ", ".join(map(str, result.cells))
    return (
        f"run      {_counted(facts.prompts, 'prompt')}, at most {facts.max_tokens} new tokens each, "
        f"batches of {sizes} kept full, "
        f"{_counted(result.repeat, 'repeat')}, greedy" + (", past end of sequence" if facts.ignore_eos else "")
    )


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _grid(result: Result) -> list[str]:
    """A line for plain decoding and each K: acceptance length, then for each batch size goodput and decoding alone."""
    heads = [["", "accept.", *(cell for size in result.cells for cell in (f"batch {size}", "decode"))]]
    heads += [["", "length", *(cell for _ in result.cells for cell in ("tok/s", "tok/s"))]]
    rows = [["plain", "-", *_cells(result, None)]]
    rows += [[f"K={k}", f"{result.acceptance_length(k):.2f}", *_cells(result, k)] for k in result.counts]
    rows = [*heads, *rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows]


def _cells(result: Result, k: int | None) -> list[str]:
    cells = []
    for size, row in result.cells.items():
        mark = BEST if k is not None and result.best[size] == k else ""
        cells += [f"{mark}{row[k].goodput:.1f}", f"{row[k].decode_rate:.1f}"]
    return cells


def _notes(result: Result) -> list[str]:
    lines = [f"{BEST} the K to use: the smallest within the noise of the fastest, end to end."]
    every = [cell for row in result.cells.values() for cell in row.values()]
    if result.repeat > 1:
        lines.append(f"Noise of a figure: at most {100 * max(noise(cell.rates) for cell in every):.1f} %.")
    for size, k in result.best.items():
        plain, best = result.cells[size][None].goodput, result.cells[size][k].goodput
        lines.append(f"Batch {size}: K={k} gives {best / plain if plain else 0:.2f}x plain decoding.")
    slower = [
        size for size, k in result.best.items() if result.cells[size][k].goodput < result.cells[size][None].goodput
    ]
    if len(slower) == len(result.best):
        lines.append(
            "No K is faster than plain decoding: give eagle3-run --no-speculation, and look at the acceptance length."
        )
    return [*lines, *_spare_rows(every)]


def _spare_rows(cells: Sequence[Cell]) -> list[str]:
    spare = sorted({cell.k for cell in cells if cell.spare_rows and cell.k is not None})
    if not spare:
        return []
    return [
        f"K={', '.join(map(str, spare))} ran in passes of more rows than 1+K: the bundle has no graphs of fewer that "
        "keep every bit. eagle3-build tries to make them where it is given the schedule."
    ]


def _differences(result: Result) -> list[str]:
    found = result.differences
    lines = [
        f"DIFFERENT {'in plain decoding' if difference.k is None else f'with K={difference.k}'} at batch "
        f"{difference.batch_size}: {result.names[difference.prompt]}, first at token {difference.token}"
        for difference in found[:MOST_DIFFERENCES]
    ]
    if len(found) > MOST_DIFFERENCES:
        lines.append(f"... and {len(found) - MOST_DIFFERENCES} more; --json lists them all")
    if found and result.facts.lossless == "near_tie":
        lines.append("The bundle is near_tie: where two tokens are all but equally likely, it may take the other one.")
    return lines or [f"Text identical at every K and batch size, on {_counted(result.facts.prompts, 'prompt')}."]
