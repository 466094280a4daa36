"""JSON is read strictly: what does not fit exactly is refused, and the sentence names the place."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.bundle.errors import IntegrityError
from runtime.bundle.record import from_json, parse, to_json


@dataclass(frozen=True)
class Leaf:
    name: str
    shape: tuple[int | str, ...]


@dataclass(frozen=True)
class Tree:
    """One field of every kind that manifests use, one of them optional."""

    count: int
    share: float
    done: bool
    state: Literal["ready", "lowered"]
    leaves: tuple[Leaf, ...]
    by_name: Mapping[str, Leaf]
    free: Mapping[str, Any]
    first: Leaf | None = None


LEAF = Leaf("tokens", (4, "context_blocks"))
TREE = Tree(3, 0.5, True, "ready", (LEAF, LEAF), {"a": LEAF}, {"x": [1, {"y": None}]}, LEAF)


def data(**changes: object) -> dict[str, Any]:
    return {**to_json(TREE), **changes}


def test_a_record_becomes_plain_json() -> None:
    leaf = {"name": "tokens", "shape": [4, "context_blocks"]}
    assert to_json(TREE) == {
        "count": 3,
        "share": 0.5,
        "done": True,
        "state": "ready",
        "leaves": [leaf, leaf],
        "by_name": {"a": leaf},
        "free": {"x": [1, {"y": None}]},
        "first": leaf,
    }


def test_defaults_are_written_too() -> None:
    assert to_json(Tree(3, 0.5, True, "ready", (), {}, {}))["first"] is None


def test_a_record_comes_back_equal() -> None:
    assert from_json(Tree, json.loads(json.dumps(to_json(TREE)))) == TREE


def test_a_field_with_a_default_may_be_missing() -> None:
    changed = data()
    del changed["first"]
    assert from_json(Tree, changed).first is None


def test_a_whole_number_is_a_float_where_one_is_wanted() -> None:
    share = from_json(Tree, data(share=1)).share
    assert share == 1.0
    assert type(share) is float


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"count": "3"}, "tree.count is not readable: expected int, found '3'."),
        ({"count": 3.0}, "tree.count is not readable: expected int, found 3.0."),
        ({"count": True}, "tree.count is not readable: expected int, found True."),
        ({"count": None}, "tree.count is not readable: expected int, found None."),
        ({"share": "0.5"}, "tree.share is not readable: expected float, found '0.5'."),
        ({"share": False}, "tree.share is not readable: expected float, found False."),
        ({"share": float("inf")}, "tree.share is not readable: expected a finite number, found inf."),
        ({"share": float("nan")}, "tree.share is not readable: expected a finite number, found nan."),
        ({"done": 1}, "tree.done is not readable: expected bool, found 1."),
        ({"state": "done"}, "tree.state is not readable: expected ready or lowered, found 'done'."),
        ({"state": ["ready"]}, "tree.state is not readable: expected ready or lowered, found list."),
        ({"leaves": {}}, "tree.leaves is not readable: expected a list, found dict."),
        ({"leaves": "ab"}, "tree.leaves is not readable: expected a list, found 'ab'."),
        ({"leaves": [to_json(LEAF), 7]}, "tree.leaves[1] is not readable: expected an object, found 7."),
        (
            {"leaves": [{"name": "x", "shape": [1, True]}]},
            "tree.leaves[0].shape[1] is not readable: expected int or str, found True.",
        ),
        (
            {"leaves": [{"name": "x", "shape": [1.5]}]},
            "tree.leaves[0].shape[0] is not readable: expected int or str, found 1.5.",
        ),
        ({"by_name": []}, "tree.by_name is not readable: expected an object, found list."),
        (
            {"by_name": {"a": {"name": 1, "shape": []}}},
            "tree.by_name.a.name is not readable: expected str, found 1.",
        ),
        ({"free": None}, "tree.free is not readable: expected an object, found None."),
        ({"first": []}, "tree.first is not readable: expected an object, found list."),
        ({"first": {"name": "x"}}, "tree.first.shape is not readable: expected a value, found nothing."),
        (
            {"first": {"name": "x", "shape": [], "dtype": "int8"}},
            "tree.first.dtype is not readable: expected one of name, shape, found an unknown key.",
        ),
    ],
)
def test_what_does_not_fit_is_named_by_its_key_path(changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(IntegrityError) as caught:
        from_json(Tree, data(**changes), "tree")
    assert caught.value.sentence() == sentence
    assert caught.value.repair == "rebuild the bundle with eagle3-build"


@pytest.mark.parametrize("key", ["count", "share", "done", "state", "leaves", "by_name", "free"])
def test_a_missing_key_is_named(key: str) -> None:
    changed = data()
    del changed[key]
    with pytest.raises(IntegrityError) as caught:
        from_json(Tree, changed)
    assert caught.value.sentence() == f"manifest.{key} is not readable: expected a value, found nothing."


def test_an_unknown_key_that_would_break_the_line_is_quoted() -> None:
    with pytest.raises(IntegrityError, match=r"^manifest\.'\\x1b\[2J\\n' is not readable: .* found an unknown key\.$"):
        from_json(Tree, data(**{"\x1b[2J\n": 1}))


def test_a_number_too_large_for_a_float_is_refused() -> None:
    with pytest.raises(IntegrityError, match=r"^manifest\.share is not readable: expected a finite number"):
        from_json(Tree, data(share=10**400))


@pytest.mark.parametrize("found", ["x" * 10**6, 10**4000])
def test_a_huge_value_is_shown_shortened(found: object) -> None:
    with pytest.raises(IntegrityError) as caught:
        from_json(Tree, data(done=found))
    assert 50 < len(caught.value.sentence()) < 200
    assert "..." in caught.value.sentence()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(st.sampled_from(sorted(to_json(TREE))), JSON)
def test_any_json_in_any_field_is_read_as_it_is_or_refused(key: str, value: object) -> None:
    try:
        read = from_json(Tree, data(**{key: value}))
    except IntegrityError as error:
        refused = error.what
    else:
        refused = ""
        assert to_json(read)[key] == (float(value) if key == "share" else value)  # type: ignore[arg-type]
    assert not refused or refused.startswith(f"manifest.{key}")


@given(JSON)
def test_any_json_in_place_of_the_record_is_refused(value: object) -> None:
    with pytest.raises(IntegrityError, match=r"^manifest"):
        from_json(Tree, value)


# Text to values


@given(JSON.filter(lambda value: "NaN" not in json.dumps(value) and "Infinity" not in json.dumps(value)))
def test_json_text_is_parsed(value: object) -> None:
    assert parse(json.dumps(value)) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Expecting value"),
        ("{", "Expecting property name"),
        ("{} {}", "Extra data"),
        ("{'a': 1}", "Expecting property name"),
        ("\ufeff{}", "BOM"),
        ('{"a": 1, "b": 2, "a": 1}', "the key 'a' twice in one object"),
        ('[{"x": {"b": 1, "b": 2}}]', "the key 'b' twice in one object"),
        ('{"a": 1, "\\u0061": 2}', "the key 'a' twice in one object"),
        ('{"a": NaN}', "NaN, which is not a JSON number"),
        ("[Infinity]", "Infinity, which is not a JSON number"),
        ("-Infinity", "-Infinity, which is not a JSON number"),
        ("[" * 200_000, "nested too deeply"),
        ('{"a":' * 200_000, "nested too deeply"),
        ("[" * 200_000 + "]" * 200_000, "nested too deeply"),
        ("1" * 5000, "limit"),
    ],
)
def test_what_is_not_strict_json_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(text)


def test_one_key_in_two_objects_is_no_repetition() -> None:
    assert parse('[{"a": 1}, {"a": {"a": 2}}]') == [{"a": 1}, {"a": {"a": 2}}]
