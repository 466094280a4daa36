"""The unit cache: keys, what counts as an entry, publishing, and why a miss misses."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aot.cache import Cache, cache_root, key_of


def factors(name: str = "target_embed.t4", dtype: str = "float32", **changed: str) -> dict[str, str]:
    unit = json.dumps({"name": name, "dtype": dtype, "inputs": []}, sort_keys=True)
    return {
        "unit": unit,
        "program": "p1",
        "flags": "{}",
        "torch": "2.13.0",
        "compiler": "g++",
        "target": "v3",
    } | changed


def publish(cache: Cache, made: dict[str, str], so: bytes = b"code") -> str:
    key = key_of(made)
    with cache.staging(key) as staged:
        (staged / "unit.so").write_bytes(so)
        (staged / "unit.json").write_text("{}")
        cache.publish(staged, key, made)
    return key


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def test_the_cache_lies_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EAGLE3_CACHE", str(tmp_path / "mine"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_root() == tmp_path / "mine"
    monkeypatch.delenv("EAGLE3_CACHE")
    assert cache_root() == tmp_path / "xdg" / "eagle3"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_root() == tmp_path / "home" / ".cache" / "eagle3"


@given(made=st.dictionaries(st.text(max_size=8), st.text(max_size=8), min_size=1, max_size=5), data=st.data())
def test_a_key_depends_on_every_factor_and_on_no_order(made: dict[str, str], data: st.DataObject) -> None:
    """L1 (vllm#53366), L2 (speculators#166): shapes, program, flags, compiler and machine are all in it."""
    backwards = dict(reversed(made.items()))
    assert key_of(backwards) == key_of(made)
    assert len(key_of(made)) == 64
    name = data.draw(st.sampled_from(sorted(made)))
    assert key_of({**made, name: made[name] + "x"}) != key_of(made)
    assert key_of({**made, name + "x" * 9: ""}) != key_of(made)


def test_a_published_unit_is_there_with_its_factors(cache: Cache) -> None:
    key = publish(cache, factors())
    assert cache.has(key)
    assert (cache.entry(key) / "unit.so").read_bytes() == b"code"
    assert json.loads((cache.entry(key) / "factors.json").read_text()) == factors()
    assert list((cache.root / "staging").iterdir()) == []


def test_a_failed_compile_leaves_nothing(cache: Cache) -> None:
    key = key_of(factors())

    def crash() -> None:
        with cache.staging(key) as staged:
            (staged / "unit.so").write_bytes(b"half")
            raise RuntimeError("the compiler crashed")

    with pytest.raises(RuntimeError, match="the compiler crashed"):
        crash()
    assert not cache.has(key)
    assert list((cache.root / "staging").iterdir()) == []


@pytest.mark.parametrize("missing", ["unit.so", "unit.json"])
def test_an_entry_that_lacks_a_file_is_a_miss_and_is_replaced(cache: Cache, missing: str) -> None:
    key = publish(cache, factors())
    (cache.entry(key) / missing).unlink()
    assert not cache.has(key)
    publish(cache, factors(), b"new code")
    assert (cache.entry(key) / "unit.so").read_bytes() == b"new code"


def test_an_entry_that_is_whole_is_never_replaced(cache: Cache) -> None:
    key = publish(cache, factors())
    publish(cache, factors(), b"other code")
    assert (cache.entry(key) / "unit.so").read_bytes() == b"code"


def test_staging_removes_what_a_killed_build_left_of_the_same_unit_only(cache: Cache) -> None:
    mine, other = key_of(factors()), key_of(factors("target_layer.r1x4"))
    left = [cache.root / "staging" / f"{key[:12]}-killed" for key in (mine, other)]
    for folder in left:
        folder.mkdir(parents=True)
        (folder / "unit.so").write_bytes(b"half")
    with cache.staging(mine) as staged:
        assert staged.is_dir()
        assert [folder.exists() for folder in left] == [False, True]


def test_two_builds_hold_a_units_lock_one_after_the_other(cache: Cache) -> None:
    order = []

    def second() -> None:
        with cache.locked("key"):
            order.append("second")

    with cache.locked("key"):
        thread = threading.Thread(target=second)
        thread.start()
        with cache.locked("another key"):
            time.sleep(0.2)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (factors(program="p2"), "changed: program"),
        (factors(torch="2.14.0", compiler="clang++"), "changed: compiler, torch"),
        (factors(dtype="bfloat16"), "changed: dtype"),
        (
            factors(unit=json.dumps({"name": "target_embed.t4", "dtype": "float32", "inputs": [1]})),
            "changed: shapes",
        ),
        (factors("target_embed.t8"), "never compiled here"),
    ],
)
def test_a_miss_names_the_factors_that_changed(cache: Cache, asked: dict[str, str], reason: str) -> None:
    publish(cache, factors())
    assert cache.explain_miss(asked) == reason


def test_a_miss_is_explained_by_the_closest_entry(cache: Cache) -> None:
    publish(cache, factors(program="p0", torch="2.9.0", flags="[]"))
    publish(cache, factors(target="v4"))
    publish(cache, factors(program="p0", torch="2.9.0"))
    assert cache.explain_miss(factors()) == "changed: target"


def test_a_broken_entry_does_not_hinder_an_explanation(cache: Cache) -> None:
    key = publish(cache, factors())
    (cache.entry(key) / "factors.json").write_text("{half")
    assert cache.explain_miss(factors()) == "never compiled here"
    assert Cache(cache.root / "nowhere").explain_miss(factors()) == "never compiled here"
