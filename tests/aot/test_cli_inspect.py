"""`eagle3-build inspect --bundle`: what is wrong is told, as one JSON document where JSON is asked for."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from aot.cli import main
from runtime.bundle.open import MANIFEST
from tests.runtime.bundle.toy import forge, write_toy


class Done(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    write_toy(tmp_path / "toy")
    return tmp_path / "toy"


@pytest.fixture
def inspect(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """`inspect(bundle, "--json")`: the command in this process, with its exit code and what it printed."""

    def run(bundle: Path, *options: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["eagle3-build", "inspect", "--bundle", str(bundle), *options])
        monkeypatch.delenv("EAGLE3_DEBUG", raising=False)
        with pytest.raises(SystemExit) as left:
            main()
        printed = capsys.readouterr()
        return Done(int(left.value.code or 0), printed.out, printed.err)

    return run


def as_it_is(toy: Path) -> None: ...


def without_a_unit(toy: Path) -> None:
    next(toy.glob("graphs/*/unit.so")).unlink()


def with_more(toy: Path) -> None:
    (toy / "more").mkdir()


def with_a_link_for_a_manifest(toy: Path) -> None:
    (toy / MANIFEST).rename(toy.parent / "real.json")
    (toy / MANIFEST).symlink_to("../real.json")


def out_of_range(toy: Path) -> None:
    forge(toy, lambda data: data["kv_cache"].update(block_size=0))


def contradicting(toy: Path) -> None:
    forge(toy, lambda data: data["kv_cache"].update(block_size=8))


def odd_schedule(toy: Path) -> None:
    forge(toy, lambda data: data["speculation"].update(num_speculative_tokens_per_batch_size=[[2, 1]]))


def odd_build_record(toy: Path) -> None:
    (toy / "build.json").write_text("[]")


def deep_build_record(toy: Path) -> None:
    (toy / "build.json").write_text("[" * 100_000)


CASES: dict[str, tuple[Callable[[Path], None], int]] = {
    "whole": (as_it_is, 0),
    "damaged": (without_a_unit, 5),
    "unlisted": (with_more, 5),
    "link": (with_a_link_for_a_manifest, 5),
    "range": (out_of_range, 5),
    "contradiction": (contradicting, 5),
    "schedule": (odd_schedule, 5),
    "build.json of a list": (odd_build_record, 0),
    "build.json that is deep": (deep_build_record, 0),
}


@pytest.mark.parametrize(("damage", "code"), CASES.values(), ids=CASES.keys())
def test_m9_inspect_prints_one_json_document(
    toy: Path, inspect: Callable[..., Done], damage: Callable[[Path], None], code: int
) -> None:
    damage(toy)
    done = inspect(toy, "--json")
    assert (done.code, done.err) == (code, "")
    shown: Any = json.loads(done.out)
    assert ("bundle_id" in shown, "error" in shown) == (code == 0, code != 0)


def test_m9_inspect_tells_people_what_a_damaged_bundle_holds_and_lacks(toy: Path, inspect: Callable[..., Done]) -> None:
    without_a_unit(toy)
    done = inspect(toy)
    assert done.code == 5
    assert "graph    target_verify.r1.c16" in done.out
    assert "unit.so is missing" in done.err
    assert "Traceback" not in done.err


def test_b14_a_bundle_in_a_folder_whose_name_is_no_utf8(toy: Path, inspect: Callable[..., Done]) -> None:
    moved = toy.rename(os.fsdecode(os.fsencode(toy) + b"\xff"))
    assert inspect(moved).code == 0
    without_a_unit(moved)
    assert json.loads(inspect(moved, "--json").out)["exit_code"] == 5
    done = inspect(moved)
    assert (done.code, "toy\\udcff" in done.err) == (5, True)
