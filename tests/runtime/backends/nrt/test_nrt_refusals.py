"""Before a NEFF goes near a device all that can be compared is, and everything that is wrong reported at once."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from runtime.backends.nrt import library
from runtime.backends.nrt.backend import NrtBackend
from runtime.backends.nrt.versions import FAMILIES, RELEASED_TOGETHER, minimum_runtime
from runtime.bundle.errors import Eagle3Error, ErrorGroup, HostError, IntegrityError
from runtime.bundle.manifest import Unit
from runtime.bundle.open import Bundle
from tests.runtime.backends.nrt.stand_in import (
    COMPILER,
    REQUIRES,
    StandIn,
    neuron_bundle,
    neuron_unit,
    table_lines,
    with_neff,
)

ONE = ("int32", (1,))
UNIT = neuron_unit("plain", inputs={"x": ONE}, outputs={"y": ONE})

Open = Callable[[Bundle], NrtBackend]


def refusal(backend: Open, bundle: Bundle) -> Eagle3Error:
    with pytest.raises(Eagle3Error) as caught:
        backend(bundle)
    return caught.value


# The library itself


def test_a_machine_without_the_runtime_is_told_where_to_find_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(library.VARIABLE, raising=False)
    monkeypatch.setattr(library, "NAME", "libnrt-that-is-nowhere.so.1")
    monkeypatch.setattr(library, "INSTALLED", "/nowhere/libnrt.so.1")
    with pytest.raises(HostError, match=r"^This machine has no Neuron runtime: expected libnrt") as caught:
        library.open_library()
    assert "Trainium instance" in caught.value.repair
    assert "--device sim" in caught.value.repair


def test_a_library_that_is_named_is_the_only_one_tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(library.VARIABLE, str(tmp_path / "none.so"))
    with pytest.raises(
        HostError, match=r"\(\$EAGLE3_LIBNRT names it\): expected .*none\.so, found .*none\.so"
    ) as caught:
        library.open_library()
    assert "EAGLE3_LIBNRT" in caught.value.repair


@pytest.mark.skipif(sys.platform != "linux", reason="names the C library of Linux")
def test_a_library_that_is_another_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(library.VARIABLE, "libc.so.6")
    with pytest.raises(HostError, match=r"expected a library with nrt_init, found none\.$"):
        library.open_library()


# The runtime's version


@pytest.mark.parametrize(
    ("text", "runtime"),
    [
        ("2.27.5334.0+4a1c", (2, 34)),
        ("neuronx-cc 2.21.18209.0", (2, 28)),
        ("2.99.1.0", None),
        ("", None),
    ],
)
def test_a_compiler_asks_for_the_runtime_of_its_release(text: str, runtime: tuple[int, int] | None) -> None:
    assert minimum_runtime(text) == runtime


def test_the_newest_runtime_goes_with_the_newest_compiler() -> None:
    assert list(RELEASED_TOGETHER) == sorted(RELEASED_TOGETHER)
    assert list(RELEASED_TOGETHER.values()) == sorted(RELEASED_TOGETHER.values())


def test_an_older_runtime_is_refused(stand_in: StandIn, backend: Open, tmp_path: Path) -> None:
    stand_in.set_version(2, 33, 10, 0)
    error = refusal(backend, neuron_bundle(tmp_path, [UNIT]))
    assert isinstance(error, HostError)
    assert error.sentence() == (
        f"The Neuron runtime is older than the compiler that made the bundle ({COMPILER}): "
        "expected runtime 2.34 or later, found 2.33.10.0."
    )


def test_a_newer_runtime_will_do(stand_in: StandIn, backend: Open, tmp_path: Path) -> None:
    stand_in.set_version(3, 0, 0, 0)
    backend(neuron_bundle(tmp_path, [UNIT]))


def test_an_unknown_compiler_is_no_refusal(stand_in: StandIn, backend: Open, tmp_path: Path) -> None:
    stand_in.set_version(2, 20, 0, 0)
    bundle = neuron_bundle(tmp_path, [with_neff(UNIT, build_version="unknown")])
    backend(Bundle(bundle.root, replace(bundle.manifest, toolchain={})))


# The instance


@pytest.mark.parametrize("family", sorted(FAMILIES["trn2"]))
def test_every_trn2_is_one(stand_in: StandIn, backend: Open, tmp_path: Path, family: int) -> None:
    stand_in.set_family(family)
    backend(neuron_bundle(tmp_path, [UNIT]))


@pytest.mark.parametrize(("family", "found"), [(14, "trn3"), (2, "trn1"), (99, "family 99")])
def test_another_device_family_is_refused(
    stand_in: StandIn, backend: Open, tmp_path: Path, family: int, found: str
) -> None:
    stand_in.set_family(family)
    error = refusal(backend, neuron_bundle(tmp_path, [UNIT]))
    assert error.sentence() == f"The bundle is for another device family: expected trn2, found {found}."


def test_an_older_familys_bundle_runs_where_the_user_allows_it(
    stand_in: StandIn, backend: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEURON_RT_ALLOW_LEGACY_NEFF", "1")
    stand_in.set_family(14)
    backend(neuron_bundle(tmp_path, [UNIT])).close()
    stand_in.set_family(2)  # but never a newer family's on an older device
    assert refusal(backend, neuron_bundle(tmp_path, [UNIT])).found == "trn1"


# The NEFFs


def test_stand_in_neffs_are_refused_by_the_real_runtime(stand_in: StandIn, backend: Open, tmp_path: Path) -> None:
    stand_in.set_version(2, 34, 10, 0, detail="")
    error = refusal(backend, neuron_bundle(tmp_path, [UNIT]))
    assert isinstance(error, IntegrityError)
    assert error.sentence().startswith("Refusing to load since the bundle's NEFFs come from a stand-in")


def test_neffs_of_the_compiler_are_not_refused_by_the_real_runtime(
    stand_in: StandIn, backend: Open, tmp_path: Path
) -> None:
    stand_in.set_version(2, 34, 10, 0, detail="")
    backend(neuron_bundle(tmp_path, [with_neff(UNIT, stand_in=False)]))


def test_a_newer_format_is_refused(stand_in: StandIn, backend: Open, tmp_path: Path) -> None:
    error = refusal(backend, neuron_bundle(tmp_path, [with_neff(UNIT, version="3.0")]))
    assert (error.expected, error.found) == ("version 2 or older", "3.0")


def test_a_neff_of_another_logical_core_size_is_refused(stand_in: StandIn, backend: Open, tmp_path: Path) -> None:
    error = refusal(backend, neuron_bundle(tmp_path, [with_neff(UNIT, lnc=2)]))
    assert (error.expected, error.found) == ("lnc 1 (NEURON_LOGICAL_NC_CONFIG)", "lnc 2")


def test_a_unit_without_a_neff_is_refused(stand_in: StandIn, backend: Open, tmp_path: Path) -> None:
    error = refusal(backend, neuron_bundle(tmp_path, [replace(UNIT, neff=None)]))
    assert error.sentence() == (
        "The bundle is lowered but not compiled: expected a NEFF for every unit, found none for plain."
    )


# All of it


def test_everything_is_reported_at_once_and_nothing_is_kept(
    stand_in: StandIn, backend: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "2")
    stand_in.set_version(2, 28, 0, 0, detail="")
    stand_in.set_family(14)
    error = refusal(backend, neuron_bundle(tmp_path, [with_neff(UNIT, version="4.1", lnc=2)]))
    assert isinstance(error, ErrorGroup)
    assert error.sentence() == "This instance cannot run the bundle."
    assert [problem.found for problem in error.problems] == ["2", "1 stand-ins", "4.1", "lnc 2", "2.28.0.0", "trn3"]
    assert stand_in.calls("nrt_load") == 0
    assert stand_in.calls("nrt_close") == stand_in.calls("nrt_init") == 1
    assert "NEURON_RT_NUM_CORES" not in os.environ


def test_a_runtime_that_does_not_start_is_a_sentence(stand_in: StandIn, backend: Open, tmp_path: Path) -> None:
    stand_in.fail("nrt_init", 9)
    error = refusal(backend, neuron_bundle(tmp_path, [UNIT]))
    assert error.sentence() == (
        "nrt_init failed for this process, too few NeuronCores are free: found NRT_LOAD_NOT_ENOUGH_NC (9)."
    )
    assert stand_in.calls("nrt_close") == 0


def test_the_runtime_sees_what_the_bundle_needs_when_it_starts(
    stand_in: StandIn, backend: Open, tmp_path: Path
) -> None:
    opened = backend(neuron_bundle(tmp_path, [UNIT], requires=replace(REQUIRES, ranks=2)))
    assert stand_in.environment() == {"NEURON_RT_NUM_CORES": "2", "NEURON_LOGICAL_NC_CONFIG": "1"}
    opened.close()
    assert not {"NEURON_RT_NUM_CORES", "NEURON_LOGICAL_NC_CONFIG"} & set(os.environ)


# What a loaded NEFF says of itself

TABLED = neuron_unit(
    "tabled", inputs={"x": ("int32", (2, 3))}, outputs={"y": ("bfloat16", (4,))}, kv={"kv.0.k": ("float32", (4, 2))}
)


def load(stand_in: StandIn, backend: Open, tmp_path: Path, unit: Unit, lines: list[str]) -> None:
    stand_in.add(unit, lambda rank, taken, given: None, lines)
    backend(neuron_bundle(tmp_path, [unit])).open(unit, "")


def test_every_difference_from_the_manifest_is_reported_at_once(
    stand_in: StandIn, backend: Open, tmp_path: Path
) -> None:
    lines = [
        "in kv.0.k.must_alias_input 7 16 - 2 4 2",
        "in z 8 24 - 2 2 3",
        "out y 6 10 - 1 5",
        "out kv.0.k.out 10 32 kv.0.k.must_alias_input 2 4 2",
    ]
    with pytest.raises(ErrorGroup) as caught:
        load(stand_in, backend, tmp_path, TABLED, lines)
    assert caught.value.exit_code == 5
    assert [problem.sentence() for problem in caught.value.problems] == [
        "Input kv.0.k.must_alias_input of unit tabled differs: "
        "expected float32 [4, 2] of 32 bytes, found float16 [4, 2] of 16 bytes.",
        "Input x of unit tabled is not in its NEFF.",
        "Output y of unit tabled differs: expected bfloat16 [4] of 8 bytes, found bfloat16 [5] of 10 bytes.",
        "The NEFF of unit tabled has a tensor of its own: found z.",
    ]
    assert stand_in.bytes("live infos") == 0


def test_a_type_that_nobody_knows_is_shown_by_its_number(stand_in: StandIn, backend: Open, tmp_path: Path) -> None:
    lines = ["in x 77 4 - 1 1", "out y 8 4 - 1 1"]
    with pytest.raises(IntegrityError, match=r"expected int32 \[1\] of 4 bytes, found type 77 \[1\] of 4 bytes\.$"):
        load(stand_in, backend, tmp_path, UNIT, lines)


def test_a_scalar_may_have_no_dimension_or_one(stand_in: StandIn, backend: Open, tmp_path: Path) -> None:
    load(stand_in, backend, tmp_path, UNIT, ["in x 8 4 - 0", "out y 8 4 - 1 1"])


BARE = replace(
    TABLED,
    parameters=tuple(replace(p, neff_name=p.neff_name.removesuffix(".must_alias_input")) for p in TABLED.parameters),
)


@pytest.mark.parametrize(("unit", "neff"), [(TABLED, BARE), (BARE, TABLED)], ids=["missing", "the compiler's"])
def test_the_suffix_of_an_aliased_input_may_be_in_one_of_the_two(
    stand_in: StandIn, backend: Open, tmp_path: Path, unit: Unit, neff: Unit
) -> None:
    """Tensors are bound under the NEFF's own names: the stand-in refuses a pass without them."""

    def compute(rank: int, taken: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
        given["kv.0.k.out"][1] = given["y"][:] = 3

    stand_in.add(unit, compute, table_lines(neff))
    bundle = neuron_bundle(tmp_path, [unit])
    opened = backend(bundle)
    pool = opened.pools(bundle.manifest.kv_cache, 4)["kv.0.k"]
    (y,) = opened.open(unit, "")([torch.zeros(2, 3, dtype=torch.int32), pool])
    assert y.tolist() == [3.0] * 4
    assert pool.tolist() == [[0.0, 0.0], [3.0, 3.0], [0.0, 0.0], [0.0, 0.0]]


def test_a_runtime_that_does_not_read_the_format_is_a_sentence(
    stand_in: StandIn, backend: Open, tmp_path: Path
) -> None:
    bundle = neuron_bundle(tmp_path, [with_neff(UNIT, version="3.0")])
    # The record says one thing and the file another: the library has the last word
    said = Bundle(bundle.root, replace(bundle.manifest, units=(UNIT,)))
    stand_in.add(UNIT, lambda rank, taken, given: None)
    with pytest.raises(
        HostError, match=r"^nrt_load failed for unit plain, rank 0, .*NRT_UNSUPPORTED_NEFF_VERSION \(10\)"
    ):
        backend(said).open(UNIT, "")


def test_a_neff_that_the_runtime_finds_invalid_is_the_bundles_fault(
    stand_in: StandIn, backend: Open, tmp_path: Path
) -> None:
    with pytest.raises(IntegrityError, match="the runtime finds the NEFF invalid"):
        backend(neuron_bundle(tmp_path, [UNIT])).open(UNIT, "")


def test_a_call_with_a_scope_is_no_neuron_bundles(stand_in: StandIn, backend: Open, tmp_path: Path) -> None:
    stand_in.add(UNIT, lambda rank, taken, given: None)
    with pytest.raises(IntegrityError, match="weights of a scope"):
        backend(neuron_bundle(tmp_path, [UNIT])).open(UNIT, "target.layers.0")


def test_a_weight_of_another_shape_is_refused(stand_in: StandIn, backend: Open, tmp_path: Path) -> None:
    unit = neuron_unit("w", inputs={"x": ONE}, outputs={"y": ONE}, weights={"a.weight": ("float32", (2, 2))})
    stand_in.add(unit, lambda rank, taken, given: None)
    bundle = neuron_bundle(tmp_path, [unit], {"a.weight": {"plain": torch.zeros(2, 3)}})
    with pytest.raises(IntegrityError) as caught:
        backend(bundle).open(unit, "")
    assert caught.value.sentence() == (
        "The weight a.weight (plain) is not what its graphs take: expected float32 [2, 2], found float32 [2, 3]."
    )
