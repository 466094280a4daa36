"""A manifest survives its text unchanged, and its id stands for all of its content and for nothing else."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtime.bundle.errors import IntegrityError
from runtime.bundle.manifest import (
    Axis,
    Buckets,
    Call,
    Check,
    Constant,
    Exactness,
    FileEntry,
    Graph,
    GraphKind,
    KVCache,
    KVGroup,
    Limits,
    Manifest,
    Model,
    Requires,
    Speculation,
    TensorSpec,
    Unit,
    WeightRef,
    loads,
)

# One strategy per dataclass. Names are any text that UTF-8 can hold, numbers of any sign and size.
TEXT = st.text(max_size=8)
INT = st.integers()


def few(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(strategy, max_size=2).map(tuple)


def named(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(TEXT, strategy, max_size=2)


JSON = st.recursive(
    st.none() | st.booleans() | INT | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=2) | named(inner),
    max_leaves=4,
)
SPECS = st.builds(TensorSpec, name=TEXT, dtype=TEXT, shape=few(INT | TEXT))
CONSTANTS = st.builds(Constant, name=TEXT, weight=TEXT, layout=TEXT, dtype=TEXT, shape=few(INT))
UNITS = st.builds(
    Unit,
    name=TEXT,
    artifact=TEXT,
    digest=TEXT,
    constants=few(CONSTANTS),
    inputs=few(SPECS),
    outputs=few(SPECS),
)
CALLS = st.builds(Call, unit=TEXT, scope=TEXT, inputs=few(TEXT), outputs=few(TEXT))
CHECKS = st.builds(
    Check,
    reference=TEXT,
    max_abs_error=st.floats(allow_nan=False, allow_infinity=False),
    tokens_equal=st.booleans(),
)
GRAPHS = st.builds(
    Graph,
    name=TEXT,
    kind=st.sampled_from(get_args(GraphKind)),
    requests=INT,
    rows=INT,
    context=INT,
    inputs=few(SPECS),
    outputs=few(SPECS),
    calls=few(CALLS),
    check=st.none() | CHECKS,
)
KV_GROUPS = st.builds(
    KVGroup,
    role=st.sampled_from(["target", "draft"]),
    first_layer=INT,
    layers=INT,
    kv_heads=INT,
    head_dim=INT,
    dtype=TEXT,
)
KV_CACHES = st.builds(KVCache, block_size=INT, num_blocks=INT, groups=few(KV_GROUPS))
MODELS = st.builds(
    Model,
    reference=TEXT,
    fingerprint=TEXT,
    vocab_size=INT,
    hidden_size=INT,
    eos_token_ids=few(INT),
    config=named(JSON),
)
SPECULATIONS = st.builds(
    Speculation,
    method=st.just("eagle3"),
    num_speculative_tokens=INT,
    aux_layers=few(INT),
    row_convention=TEXT,
)
EXACTNESSES = st.builds(
    Exactness,
    lossless=st.sampled_from(["exact", "near_tie"]),
    bitwise_across=few(st.sampled_from(get_args(Axis))),
    scripted_patterns=INT,
    context_widths=few(INT),
)
REQUIRES = st.builds(
    Requires,
    backend=TEXT,
    device=TEXT,
    machine=TEXT,
    system=TEXT,
    cpu_features=few(TEXT),
    torch=TEXT,
    amx=st.booleans(),
)
MANIFESTS = st.builds(
    Manifest,
    format_version=INT,
    bundle_id=TEXT,
    name=TEXT,
    state=st.sampled_from(["ready", "lowered"]),
    builder=TEXT,
    dtype=TEXT,
    target=MODELS,
    draft=MODELS,
    speculation=SPECULATIONS,
    limits=st.builds(Limits, max_model_len=INT, max_num_seqs=INT),
    buckets=st.builds(Buckets, prefill_tokens=few(INT), num_seqs=few(INT), context_tokens=few(INT)),
    kv_cache=KV_CACHES,
    exactness=EXACTNESSES,
    requires=REQUIRES,
    toolchain=named(TEXT),
    units=few(UNITS),
    graphs=few(GRAPHS),
    weights=named(named(st.builds(WeightRef, file=TEXT, tensor=TEXT, content=TEXT))),
    files=named(st.builds(FileEntry, size=INT, sha256=TEXT)),
)
# Manifests are large to draw; that is no defect of the tests.
slow_to_draw = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)


@slow_to_draw
@given(MANIFESTS)
def test_a_manifest_survives_its_text(manifest: Manifest) -> None:
    assert loads(json.loads(manifest.dumps())) == manifest


@slow_to_draw
@given(MANIFESTS)
def test_the_id_is_a_sha256_that_leaves_the_rest_alone(manifest: Manifest) -> None:
    sealed = manifest.with_id()
    assert len(sealed.bundle_id) == 64
    assert set(sealed.bundle_id) <= set("0123456789abcdef")
    assert dataclasses.replace(sealed, bundle_id=manifest.bundle_id) == manifest


@slow_to_draw
@given(MANIFESTS, TEXT)
def test_the_id_does_not_depend_on_an_older_id(manifest: Manifest, older: str) -> None:
    assert dataclasses.replace(manifest, bundle_id=older).with_id() == manifest.with_id()
    assert manifest.with_id().with_id() == manifest.with_id()


@slow_to_draw
@given(MANIFESTS)
def test_neither_text_nor_id_depends_on_the_order_of_keys(manifest: Manifest) -> None:
    other = loads(_reversed(json.loads(manifest.dumps())))
    assert other.dumps() == manifest.dumps()
    assert other.with_id() == manifest.with_id()


def _reversed(value: Any) -> Any:
    """`value` with the keys of every object in the opposite order."""
    if isinstance(value, dict):
        return {key: _reversed(item) for key, item in reversed(value.items())}
    return [_reversed(item) for item in value] if isinstance(value, list) else value


# Every change of a golden manifest that leaves it readable

ALTERNATIVES = {
    "ready": "lowered",
    "exact": "near_tie",
    "target": "draft",
    "draft": "target",
    "requests": "context",
    "target_prefill": "target_verify",
    "draft_initial_prefill": "draft_initial",
}
# The only values that their fields can hold.
FIXED = ("manifest.speculation.method", "manifest.bundle_id")


def _changes(data: Any, where: str = "manifest") -> Iterator[tuple[str, Any]]:
    """Every copy of `data` in which one leaf is another, or one list is an item shorter; with the place."""
    if isinstance(data, dict):
        for key, item in data.items():
            for place, changed in _changes(item, f"{where}.{key}"):
                yield place, {**data, key: changed}
    elif isinstance(data, list):
        if data:
            yield f"{where}[-1]", data[:-1]
        for i, item in enumerate(data):
            for place, changed in _changes(item, f"{where}[{i}]"):
                yield place, [*data[:i], changed, *data[i + 1 :]]
    elif where not in FIXED:
        yield where, _another(data)


def _another(leaf: Any) -> Any:
    if isinstance(leaf, bool):
        return not leaf
    if isinstance(leaf, int | float):
        return leaf + 1
    return ALTERNATIVES.get(leaf, leaf + "x") if isinstance(leaf, str) else leaf


def test_every_change_of_any_field_changes_the_id(golden: Manifest, golden_json: dict[str, Any]) -> None:
    ids = {"unchanged": golden.bundle_id}
    for place, changed in _changes(golden_json):
        if changed != golden_json:  # a null stays as it is
            ids[place] = loads(changed).with_id().bundle_id
    assert len(ids) > 150
    assert len(set(ids.values())) == len(ids)


@pytest.mark.parametrize("table", ["files", "weights", "toolchain"])
def test_a_removed_or_renamed_entry_changes_the_id(golden_json: dict[str, Any], golden: Manifest, table: str) -> None:
    removed, renamed = copy.deepcopy(golden_json), copy.deepcopy(golden_json)
    first = next(iter(golden_json[table]))
    del removed[table][first]
    renamed[table]["another"] = renamed[table].pop(first)
    ids = {golden.bundle_id, loads(removed).with_id().bundle_id, loads(renamed).with_id().bundle_id}
    assert len(ids) == 3


# Refusals


@pytest.mark.parametrize("key", [field.name for field in dataclasses.fields(Manifest)])
def test_no_key_may_be_missing(golden_json: dict[str, Any], key: str) -> None:
    del golden_json[key]
    with pytest.raises(IntegrityError) as caught:
        loads(golden_json)
    assert caught.value.sentence() == f"manifest.{key} is not readable: expected a value, found nothing."


def test_a_deep_place_is_named(golden_json: dict[str, Any]) -> None:
    golden_json["graphs"][0]["calls"][1]["unit"] = 7
    with pytest.raises(IntegrityError) as caught:
        loads(golden_json)
    assert caught.value.sentence() == "manifest.graphs[0].calls[1].unit is not readable: expected str, found 7."


@pytest.mark.parametrize("odd", ["\ud800", {"a": ["\udfff"]}, math.inf, -math.inf, math.nan])
def test_what_json_text_cannot_hold_gets_no_id(golden: Manifest, odd: object) -> None:
    model = dataclasses.replace(golden.target, config={"odd": odd})
    with pytest.raises(IntegrityError) as caught:
        dataclasses.replace(golden, target=model).with_id()
    assert caught.value.what == "The manifest holds a value that cannot be stored"
    assert caught.value.expected == "Unicode text and finite numbers"
