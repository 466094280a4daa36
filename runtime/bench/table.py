"""A benchmark's result for people: what it was measured on, a table for each K, and the verdict in one line."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.bench.figures import Figures
from runtime.bench.result import Result

TOTAL = "total"
NAME_WIDTH = 20
MOST_DIFFERENCES = 10
# Two lines of heading over each column; the first column is the name of the row
HEADINGS = (
    ("", "prompts"),
    ("accept.", "length"),
    ("accepted %", "at 1..K"),
    ("given the one", "before, %"),
    ("plain", "tok/s"),
    ("spec.", "tok/s"),
    ("speed-", "up"),
    ("median", "of it"),
    ("end to", "end"),
    ("verify", "ms"),
    ("draft", "ms"),
    ("host", "ms"),
    ("same", "text"),
)


def table(result: Result) -> list[str]:
    """The result, line by line; the verdict is the last line."""
    lines = result.facts.lines()
    for count, total in result.totals.items():
        lines += ["", *_notes(result, count)]
        lines += _aligned([*result.kinds[count].items(), (TOTAL, total)])
    if len(result.totals) > 1:
        lines += ["", "By number of draft tokens"]
        lines += _aligned([(f"K={count}", total) for count, total in result.totals.items()])
    lines += ["", *_rates(result), *_differences(result), verdict(result)]
    return lines


def verdict(result: Result) -> str:
    """ "speculation: 1.72x plain decoding, acceptance length 2.31, text identical on 96 of 96 prompts"."""
    best = result.totals[result.best]
    identical = result.facts.prompts - len({difference.prompt for difference in result.differences})
    which = f" with K={result.best}, the fastest" if len(result.totals) > 1 else ""
    return (
        f"speculation: {_number(best.decode_speedup, 2)}x plain decoding{which}, acceptance length "
        f"{best.acceptance.mean_acceptance_length:.2f}, text identical on {identical} of {result.facts.prompts} prompts"
    )


def _notes(result: Result, count: int) -> list[str]:
    built = result.facts.num_speculative_tokens
    note = "" if count == built else f", in passes of 1+{built} rows: a bundle built for K={count} is a little faster"
    return [f"K={count}{note}"]


def _aligned(rows: Sequence[tuple[str, Figures]]) -> list[str]:
    """Two lines of heading and a line for each row: names to the left, figures to the right."""
    cells = [["", *(first for first, _ in HEADINGS)], ["", *(second for _, second in HEADINGS)]]
    cells += [[_short(name), *_cells(figures)] for name, figures in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in cells]


def _cells(figures: Figures) -> list[str]:
    acceptance, speculative = figures.acceptance, figures.speculative
    return [
        str(figures.prompts),
        f"{acceptance.mean_acceptance_length:.2f}",
        _percent(acceptance.unconditional),
        _percent(acceptance.conditional),
        _number(figures.plain.decode_tokens_per_s, 1),
        _number(speculative.decode_tokens_per_s, 1),
        _number(figures.decode_speedup, 2),
        _number(figures.decode_median_speedup, 2),
        _number(figures.end_to_end_speedup, 2),
        _number(speculative.verify_ms, 2),
        _number(speculative.draft_ms, 2),
        _number(speculative.host_ms, 2),
        str(figures.identical),
    ]


def _rates(result: Result) -> list[str]:
    """What the columns do not say: the step of plain decoding, and the rates with prefill."""
    best = result.totals[result.best]
    plain, speculative = best.plain, best.speculative
    return [
        f"A step of plain decoding: {_number(plain.verify_ms, 2)} ms in its pass, {_number(plain.host_ms, 2)} ms host.",
        f"With prefill: {_number(plain.end_to_end_tokens_per_s, 1)} tokens/s plain, "
        f"{_number(speculative.end_to_end_tokens_per_s, 1)} with K={result.best}"
        + (f", of {result.facts.concurrency} requests together." if result.facts.concurrency > 1 else "."),
    ]


def _differences(result: Result) -> list[str]:
    found = result.differences
    lines = [
        f"DIFFERENT with K={difference.num_speculative_tokens}: {result.names[difference.prompt]}, first at token "
        f"{difference.token}"
        for difference in found[:MOST_DIFFERENCES]
    ]
    if len(found) > MOST_DIFFERENCES:
        lines.append(f"... and {len(found) - MOST_DIFFERENCES} more; --json lists them all")
    if found and result.facts.lossless == "near_tie":
        lines.append("The bundle is near_tie: where two tokens are all but equally likely, it may take the other one.")
    return lines


def _percent(shares: Sequence[float | None]) -> str:
    return " ".join("-" if share is None else f"{100 * share:.0f}" for share in shares) or "-"


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _short(name: str) -> str:
    return name if len(name) <= NAME_WIDTH else name[: NAME_WIDTH - 1] + "…"
