"""What people and machines are shown of hand-made runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runtime.bench.facts import Facts
from runtime.bench.measure import Run
from runtime.bench.result import Result
from runtime.bench.table import table, verdict
from runtime.prompts import Prompt
from tests.runtime.bench.records import FACTS, plain_and_speculative, run
from tests.runtime.loop.rig import make_rig

TWO_KINDS = [Prompt("p.jsonl line 1", "long", id="q1", kind="math"), Prompt("p.jsonl line 2", "short", kind="code")]


@pytest.fixture
def result() -> Result:
    return Result.of(FACTS, TWO_KINDS, plain_and_speculative())


def other_text(runs: list[Run]) -> list[Run]:
    """The same, but the second prompt's text leaves plain decoding at its third token."""
    return [*runs[:3], run(1, 3, [0, 1, 9, 3, 4], after_first=2.0, seconds=2.5)]


def test_the_table_of_one_k(result: Result) -> None:
    assert table(result) == [
        "bundle   toy 0123456789ab, K=3, float32, exact",
        "machine  cpu: A CPU, 2 cores, 2 threads, load average 0.50 before; Linux",
        "with     eagle3-aot 0.1.0, torch 2.13.0, python 3.11.7",
        "run      2 prompts, at most 11 new tokens each, one request at a time, greedy",
        "",
        "K=3",
        "                accept.  accepted %  given the one  plain  spec.  speed-  median  end to  verify  draft  host  same",  # noqa: E501
        "       prompts   length     at 1..K      before, %  tok/s  tok/s      up   of it     end      ms     ms    ms  text",  # noqa: E501
        "math         1     2.50    75 50 25       75 67 50   10.0   20.0    2.00    2.00    1.50    8.00   1.00  0.50     1",  # noqa: E501
        "code         1     1.00           -              -    2.0    2.0    1.00    1.00    1.00       -      -     -     1",  # noqa: E501
        "total        2     2.50    75 50 25       75 67 50    4.7    5.6    1.20    1.50    1.14    8.00   1.00  0.50     2",  # noqa: E501
        "",
        "A step of plain decoding: 7.00 ms in its pass, 0.25 ms host.",
        "With prefill: 4.0 tokens/s plain, 4.6 with K=3.",
        "speculation: 1.20x plain decoding, acceptance length 2.50, text identical on 2 of 2 prompts",
    ]


def test_without_kinds_there_is_the_total_alone() -> None:
    prompts = [Prompt("p.jsonl line 1", "long"), Prompt("p.jsonl line 2", "short")]
    result = Result.of(FACTS, prompts, plain_and_speculative())
    assert result.kinds == {3: {}}
    lines = table(result)
    assert [line.split()[0] for line in lines[lines.index("K=3") + 3 : -4]] == ["total"]


def test_prompts_without_a_kind_among_others_make_one_of_their_own() -> None:
    result = Result.of(FACTS, [TWO_KINDS[0], Prompt("p.jsonl line 2", "short")], plain_and_speculative())
    assert list(result.kinds[3]) == ["math", "other"]


def test_a_kind_may_be_called_total(result: Result) -> None:
    prompts = [replace(TWO_KINDS[0], kind="total"), TWO_KINDS[1]]
    lines = table(Result.of(FACTS, prompts, plain_and_speculative()))
    assert [line.split()[:2] for line in lines if line.startswith("total")] == [["total", "1"], ["total", "2"]]


def test_several_k_end_in_a_table_by_k_and_the_fastest_is_judged() -> None:
    runs = plain_and_speculative()
    runs += [
        run(0, 1, range(11), after_first=0.25, seconds=0.75),
        run(1, 1, range(5), after_first=1.0, seconds=1.5),
    ]
    result = Result.of(FACTS, TWO_KINDS, runs)
    assert list(result.totals) == [1, 3]
    assert result.best == 1
    lines = table(result)
    assert "K=1, in passes of 1+3 rows: a bundle built for K=1 is a little faster" in lines
    at = lines.index("By number of draft tokens")
    assert [line.split()[0] for line in lines[at + 3 : at + 5]] == ["K=1", "K=3"]
    assert verdict(result) == (
        "speculation: 2.40x plain decoding with K=1, the fastest, acceptance length 1.00, "
        "text identical on 2 of 2 prompts"
    )


def test_a_text_that_differs_is_named(result: Result) -> None:
    different = Result.of(FACTS, TWO_KINDS, other_text(plain_and_speculative()))
    lines = table(different)
    assert lines[-2] == "DIFFERENT with K=3: p.jsonl line 2, first at token 2"
    assert lines[-1].endswith("text identical on 1 of 2 prompts")
    assert not any("near_tie" in line for line in lines)
    assert different.to_json()["differences"] == [{"prompt": "p.jsonl line 2", "num_speculative_tokens": 3, "token": 2}]


def test_a_near_tie_bundle_explains_its_differences() -> None:
    facts = replace(FACTS, lossless="near_tie")
    lines = table(Result.of(facts, TWO_KINDS, other_text(plain_and_speculative())))
    assert lines[-2].startswith("The bundle is near_tie")


def test_the_json_has_exactly_the_promised_keys(result: Result) -> None:
    data = result.to_json()
    assert list(data) == ["facts", "results", "differences"]
    assert data["facts"] == FACTS.to_json()
    assert data["differences"] == []
    (entry,) = data["results"]  # type: ignore[misc]
    assert list(entry) == ["num_speculative_tokens", "total", "kinds"]
    assert (entry["num_speculative_tokens"], list(entry["kinds"])) == (3, ["math", "code"])
    assert entry["total"] == {
        "prompts": 2,
        "identical": 2,
        "acceptance": {
            "num_drafts": 4,
            "num_draft_tokens": 11,
            "num_accepted_tokens": 6,
            "mean_acceptance_length": 2.5,
            "unconditional_per_pos": [0.75, 0.5, 0.25],
            "conditional_per_pos": [0.75, 0.6667, 0.5],
        },
        "plain": {
            "completion_tokens": 16,
            "decode_tokens_per_s": 4.6667,
            "end_to_end_tokens_per_s": 4.0,
            "verify_ms": 7.0,
            "draft_ms": None,
            "host_ms": 0.25,
        },
        "speculative": {
            "completion_tokens": 16,
            "decode_tokens_per_s": 5.6,
            "end_to_end_tokens_per_s": 4.5714,
            "verify_ms": 8.0,
            "draft_ms": 1.0,
            "host_ms": 0.5,
        },
        "speedup": {"decode": 1.2, "decode_median": 1.5, "end_to_end": 1.1429},
    }


def test_the_facts_of_a_bundle_on_this_machine() -> None:
    facts = Facts.gather(
        make_rig().manifest, prompts=9, max_tokens=7, concurrency=2, warmup=1, ignore_eos=True, raw=False
    )
    assert (facts.bundle, facts.num_speculative_tokens, facts.dtype, facts.device) == ("toy", 3, "float32", "cpu")
    assert facts.threads == 1  # see conftest.py
    assert facts.cores >= 1
    assert facts.cpu
    assert set(facts.versions) == {"eagle3-aot", "torch", "python"}
    assert facts.lines()[-1] == (
        "run      9 prompts, at most 7 new tokens each, 2 requests at a time, greedy, past end of sequence"
    )
