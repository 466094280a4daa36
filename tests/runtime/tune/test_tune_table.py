"""What people and machines are shown of hand-made trials."""

from __future__ import annotations

import json
from dataclasses import replace

from runtime.tune.result import Result
from runtime.tune.table import table
from tests.runtime.bench.records import FACTS
from tests.runtime.tune.records import TEXT, trial, trials

NAMES = ("first", "second")


def result_of(rows: int = 4) -> Result:
    return Result.of(FACTS, NAMES, 3, trials(rows))


def test_the_table() -> None:
    assert table(result_of()) == [
        "bundle   toy 0123456789ab, K=3, float32, exact",
        "machine  cpu: A CPU, 2 cores, 2 threads, load average 0.50 before; Linux",
        "with     eagle3-aot 0.1.0, torch 2.13.0, python 3.11.7",
        "run      2 prompts, at most 11 new tokens each, batches of 1, 4 kept full, 3 repeats, greedy",
        "",
        "       accept.  batch 1  decode  batch 4  decode",
        "        length    tok/s   tok/s    tok/s   tok/s",
        "plain        -    100.0   180.0    200.0   380.0",
        "K=0       1.00     96.0   172.0    190.0   360.0",
        "K=1       1.50    150.0   280.0   *240.0   460.0",
        "K=3       1.50   *180.0   340.0    241.0   462.0",
        "",
        "* the K to use: the smallest within the noise of the fastest, end to end.",
        "Noise of a figure: at most 2.1 %.",
        "Batch 1: K=3 gives 1.80x plain decoding.",
        "Batch 4: K=1 gives 1.20x plain decoding.",
        "K=0, 1 ran in passes of more rows than 1+K: the bundle has no graphs of fewer that keep every bit. "
        "eagle3-build tries to make them where it is given the schedule.",
        "Text identical at every K and batch size, on 2 prompts.",
        "num_speculative_tokens_per_batch_size: [[1, 1, 3], [2, 4, 1]]",
    ]


def test_passes_with_the_rows_that_they_need_are_no_note() -> None:
    assert not any("more rows" in line for line in table(result_of(rows=1)))


def test_where_no_k_pays_plain_decoding_is_named() -> None:
    slow = [trial(1, None, 100.0), trial(1, 0, 90.0), trial(1, 2, 60.0)]
    lines = table(Result.of(FACTS, NAMES, 1, slow))
    assert "Batch 1: K=0 gives 0.90x plain decoding." in lines
    assert any(
        line.startswith("No K is faster than plain decoding: give eagle3-run --no-speculation") for line in lines
    )
    assert not any(line.startswith("Noise") for line in lines)


def test_a_text_that_differs_is_named_once() -> None:
    """Of the second prompt, at its second token, in every repeat of one cell."""
    wrong = [
        replace(one, outputs=trial(4, 1, 1.0, texts=(TEXT, (5, 9, 7))).outputs)
        if (one.batch_size, one.k) == (4, 1)
        else one
        for one in trials()
    ]
    result = Result.of(FACTS, NAMES, 3, wrong)
    assert "DIFFERENT with K=1 at batch 4: second, first at token 1" in table(result)
    assert result.to_json()["differences"] == [
        {"prompt": "second", "batch_size": 4, "num_speculative_tokens": 1, "token": 1}
    ]
    near = replace(result, facts=replace(FACTS, lossless="near_tie"))
    assert any(line.startswith("The bundle is near_tie") for line in table(near))


def test_the_json_has_exactly_the_promised_keys() -> None:
    data = json.loads(json.dumps(result_of().to_json()))
    assert list(data) == ["facts", "results", "schedule", "differences"]
    assert (data["facts"]["batch_sizes"], data["facts"]["repeat"]) == ([1, 4], 3)
    assert "concurrency" not in data["facts"]
    assert data["schedule"] == [[1, 1, 3], [2, 4, 1]]
    assert data["differences"] == []
    first = data["results"][0]
    assert list(first) == ["batch_size", "plain", "cells", "best"]
    assert (first["batch_size"], first["best"]) == (1, 3)
    assert [cell["num_speculative_tokens"] for cell in first["cells"]] == [0, 1, 3]
    assert first["cells"][2] == {
        "num_speculative_tokens": 3,
        "goodput": 180.0,
        "decode_tokens_per_s": 340.0,
        "noise": 0.0056,
        "mean_acceptance_length": 1.5,
        "rows": 4,
    }
    assert first["plain"]["num_speculative_tokens"] is None
