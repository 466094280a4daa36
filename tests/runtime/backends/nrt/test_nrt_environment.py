"""The Neuron runtime's variables are set where nothing is set, kept where they will do, and never overruled."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.backends.nrt.environment import contradictions, visible_cores, wanted
from runtime.bundle.manifest import Requires

REQUIRES = Requires("neuron", "trn2", "", "linux", (), "", False, ranks=4, lnc=2)


@pytest.fixture(autouse=True)
def no_neuron_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("NEURON_"):
            monkeypatch.delenv(name)


def test_what_is_missing_is_set() -> None:
    assert wanted(REQUIRES) == {"NEURON_LOGICAL_NC_CONFIG": "2", "NEURON_RT_NUM_CORES": "4"}
    assert contradictions(REQUIRES) == []


def test_no_logical_size_is_set_where_it_means_nothing() -> None:
    assert wanted(replace(REQUIRES, lnc=0)) == {"NEURON_RT_NUM_CORES": "4"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NEURON_RT_VISIBLE_CORES", "0-3"),
        ("NEURON_RT_VISIBLE_CORES", "8-11,13"),
        ("NEURON_RT_NUM_CORES", "4"),
        ("NEURON_RT_NUM_CORES", "64"),
        ("NEURON_RT_NUM_CORES", "0"),  # all
    ],
)
def test_enough_cores_are_left_alone(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    assert contradictions(REQUIRES) == []
    assert wanted(REQUIRES) == {"NEURON_LOGICAL_NC_CONFIG": "2"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NEURON_RT_VISIBLE_CORES", "0-2"),
        ("NEURON_RT_VISIBLE_CORES", "0,1,1,1,1"),
        ("NEURON_RT_VISIBLE_CORES", "all"),
        ("NEURON_RT_NUM_CORES", "3"),
        ("NEURON_RT_NUM_CORES", "-1"),
    ],
)
def test_too_few_cores_are_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    (problem,) = contradictions(REQUIRES)
    assert problem.sentence() == (
        f"{name} does not leave the bundle a NeuronCore for each rank: expected 4 or more, found {value}."
    )


def test_the_list_goes_before_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", "0-3")
    monkeypatch.setenv("NEURON_RT_NUM_CORES", "1")
    assert contradictions(REQUIRES) == []


def test_another_logical_size_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "1")
    (problem,) = contradictions(REQUIRES)
    assert (problem.expected, problem.found) == ("2", "1")
    assert contradictions(replace(REQUIRES, lnc=0)) == []


@given(st.sets(st.integers(0, 200), min_size=1))
def test_a_list_of_single_cores_has_as_many_as_it_names(cores: set[int]) -> None:
    assert visible_cores(",".join(map(str, cores))) == len(cores)


@given(st.integers(0, 500), st.integers(0, 500))
def test_a_range_has_both_its_ends(first: int, more: int) -> None:
    assert visible_cores(f"{first}-{first + more}") == more + 1


@given(st.text())
def test_any_text_is_a_number_of_cores_or_none(text: str) -> None:
    cores = visible_cores(text)
    assert cores is None or cores >= 0


def test_a_range_beyond_any_instance_is_no_list() -> None:
    assert visible_cores("0-99999999999") is None
