"""B10: every number of a model's files has a range, and one outside it is a sentence, whatever its size."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from aot.checkpoint.draft import draft_config_from_json
from aot.checkpoint.fields import Fields, brief, read_json
from aot.checkpoint.ranges import INTEGERS, NUMBERS
from aot.checkpoint.target import TargetConfig, target_config_from_json
from runtime.bundle.errors import ConfigError

Json = dict[str, Any]
HOSTILE = [-2, 2**64, 10**59, 10**4000, 1e59, 1e308, float("inf"), float("nan"), True, "4", [], {}]


@pytest.mark.parametrize("key", INTEGERS)
def test_B10_an_integer_outside_its_range_is_refused_by_name(key: str) -> None:
    least, most = INTEGERS[key]
    for value in (least, most):
        assert Fields({key: value}, "config.json").integer(key) == value
    for wrong in (least - 1, most + 1, *HOSTILE):
        with pytest.raises(ConfigError) as caught:
            Fields({key: wrong}, "config.json").integer(key)
        assert caught.value.sentence().startswith(f"{key} of config.json is wrong")
        assert len(caught.value.sentence()) < 300


@pytest.mark.parametrize("key", NUMBERS)
def test_B10_a_number_outside_its_range_is_refused_by_name(key: str) -> None:
    assert Fields({key: NUMBERS[key]}, "config.json").number(key) == NUMBERS[key]
    for wrong in (0, NUMBERS[key] * 2, *HOSTILE):
        # true is no number, and neither is text
        with pytest.raises(ConfigError, match="is wrong"):
            Fields({key: wrong}, "config.json").number(key)


@pytest.mark.parametrize("value", [10**59, 20_000_000, 2**31, 1e59, 0])
def test_B10_hostile_sizes_end_at_once(
    value: object, target: TargetConfig, target_json: Json, draft_json: Json
) -> None:
    """20,000,000 layers made that many names of tensors before; a head_dim of 10^59 an OverflowError."""
    for key in ("head_dim", "num_hidden_layers", "hidden_size", "vocab_size", "num_key_value_heads"):
        with pytest.raises(ConfigError):
            draft_config_from_json(draft_json | {key: value}, target)
        with pytest.raises(ConfigError):
            target_config_from_json(target_json | {key: value})


@pytest.mark.parametrize(
    "text",
    ['{"hidden_size": ' + "9" * 5000 + "}", '{"a": 1, "a": 2}', '{"a":' * 100_000, "[" * 100_000, "\ufeff{}", "NaN"],
)
def test_B10_json_that_python_reads_with_an_error_or_without_a_word_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError):
        read_json(tmp_path / "config.json")


def test_a_key_that_is_there_twice_with_one_value_is_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"a": [1], "a": [1]}', encoding="utf-8")
    assert read_json(tmp_path / "config.json") == {"a": [1]}


def test_a_value_that_cannot_be_shown_is_described() -> None:
    deep: list[object] = []
    for _ in range(sys.getrecursionlimit() * 10):
        deep = [deep]
    for value in (10**5000, deep):
        assert "cannot be shown" in brief(value)
    assert len(brief("a" * 10_000)) == 80
    assert json.loads(brief(7)) == 7
