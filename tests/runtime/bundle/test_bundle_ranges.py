"""P5: every number of a manifest has a range, and every name comes from a list; the field is named."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest

from runtime.bundle.errors import ErrorGroup
from runtime.bundle.manifest import Manifest
from runtime.bundle.open import open_bundle, read_manifest
from runtime.bundle.ranges import MOST_TOLD, Ascending, Between, Entries, Matching, OneOf, range_problems
from tests.runtime.bundle.toy import forge

Data = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Inner:
    size: Annotated[int, Between(1, 4)]


@dataclasses.dataclass(frozen=True)
class Outer:
    name: Annotated[str, OneOf(("a", "b"))] = "a"
    sizes: Annotated[tuple[Annotated[int, Between(0, 9)], ...], Entries(1, 3), Ascending()] = (1,)
    inner: tuple[Inner, ...] = ()
    table: dict[Annotated[str, Matching("[a-z]+", "letters")], Inner] = dataclasses.field(default_factory=dict)
    maybe: Inner | None = None
    dim: Annotated[int, Between(0, 9)] | Annotated[str, OneOf(("n",))] = 1


@pytest.mark.parametrize(
    ("value", "problems"),
    [
        (Outer(), []),
        (Outer(name="c"), ["x.name is out of range: expected a or b, found 'c'."]),
        (Outer(sizes=()), ["x.sizes is out of range: expected 1 to 3 entries, found 0 entries."]),
        (Outer(sizes=(2, 2)), ["x.sizes is out of range: expected ascending numbers, none twice, found (2, 2)."]),
        (Outer(sizes=(1, 10)), ["x.sizes[1] is out of range: expected a number from 0 to 9, found 10."]),
        (
            Outer(inner=(Inner(1), Inner(0), Inner(5))),
            [
                "x.inner[1].size is out of range: expected a number from 1 to 4, found 0.",
                "x.inner[2].size is out of range: expected a number from 1 to 4, found 5.",
            ],
        ),
        (Outer(table={"A": Inner(1)}), ["the name x.table.A is out of range: expected letters, found 'A'."]),
        (Outer(table={"a": Inner(9)}), ["x.table.a.size is out of range: expected a number from 1 to 4, found 9."]),
        (Outer(maybe=Inner(7)), ["x.maybe.size is out of range: expected a number from 1 to 4, found 7."]),
        (Outer(dim=10), ["x.dim is out of range: expected a number from 0 to 9, found 10."]),
        (Outer(dim="m"), ["x.dim is out of range: expected n, found 'm'."]),
    ],
)
def test_a_rule_is_kept_wherever_its_field_is(value: Outer, problems: list[str]) -> None:
    assert [problem.sentence() for problem in range_problems(value, "x")] == problems


def test_only_the_first_few_are_told() -> None:
    assert len(range_problems(Outer(inner=(Inner(0),) * 1000), "x")) == MOST_TOLD


def set_at(path: str, value: object) -> Callable[[Data], None]:
    def edit(data: Data) -> None:
        *outer, last = [int(part) if part.isdigit() else part for part in path.split(".")]
        place: Any = data
        for part in outer:
            place = place[part]
        place[last] = value

    return edit


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("kv_cache.block_size", 0),
        ("kv_cache.num_blocks", 2**31),
        ("kv_cache.groups.0.head_dim", -8),
        ("kv_cache.groups.1.kv_heads", 0),
        ("kv_cache.groups.0.dtype", "load"),
        ("kv_cache.groups", []),
        ("graphs.0.requests", 0),
        ("graphs.0.rows", 0),
        ("graphs.0.inputs.0.dtype", "load"),
        ("graphs.0.inputs.0.shape", [-1]),
        ("graphs.0.name", "../x"),
        ("units.0.constants.0.dtype", "Tensor"),
        ("units.0.constants.0.shape", [2**62]),
        ("units.0.outputs.0.shape", ["rows"]),
        ("units.0.name", "a/b"),
        ("buckets.num_seqs", []),
        ("buckets.prefill_tokens", [8, 4]),
        ("buckets.context_tokens", [16, 16, 32]),
        ("dtype", "int32"),
        ("limits.max_num_seqs", 0),
        ("limits.max_model_len", 10**30),
        ("speculation.num_speculative_tokens", 0),
        ("speculation.aux_layers", [3, 1]),
        ("target.vocab_size", 0),
        ("target.eos_token_ids", [-1]),
        ("exactness.scripted_patterns", -1),
        ("requires.backend", "eager"),
        ("files.build/x", {"size": -1, "sha256": "0" * 64}),
    ],
)
def test_p5_a_resealed_manifest_out_of_range_is_refused_by_its_field(toy: Path, path: str, value: object) -> None:
    forge(toy, set_at(path, value))
    for read in (read_manifest, lambda folder: open_bundle(folder, host=False)):
        with pytest.raises(ErrorGroup) as caught:
            read(toy)
        assert caught.value.exit_code == 5
        field = "manifest" + "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in path.split("."))
        assert any(field in problem.what for problem in caught.value.problems)
        assert all(problem.expected and problem.found and problem.repair for problem in caught.value.problems)


# Numbers whose range is that of their type
FREE = {"Manifest.format_version"}


def test_p5_every_number_and_name_of_the_format_has_a_rule() -> None:
    """A field that is added to the format without one fails here."""
    bare, seen = set(), set()

    def walk(hint: Any, place: str) -> None:
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin is Annotated:
            if arguments[0] not in (int, float, str):
                walk(arguments[0], place)
        elif hint in (int, float, str):
            bare.add(place)
        elif dataclasses.is_dataclass(hint):
            if hint in seen:
                return
            seen.add(hint)
            for name, inner in typing.get_type_hints(hint, include_extras=True).items():
                walk(inner, f"{hint.__name__}.{name}")  # type: ignore[union-attr]
        elif origin is not typing.Literal:
            for inner in arguments:
                walk(inner, place)

    walk(Manifest, "Manifest")
    # Kept for people; or a model's own configuration, which decides nothing after the build
    shown = {place for place in bare if place.startswith(("Neff.", "Model.config", "Parameter.", "Result."))}
    assert bare - shown == FREE
