"""Every status of the Neuron runtime is a sentence with a repair, and a fault of the machine or of the NEFF."""

from __future__ import annotations

import pytest

from runtime.backends.nrt.status import STATUSES, status_error, status_of
from runtime.bundle.errors import HostError, IntegrityError

# nrt_status.h of the Neuron SDK, NRT_SUCCESS aside
CODES = {1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 13, 14, 15, 101, *range(1002, 1007), 1100, *range(1200, 1207)}


def test_every_code_of_the_header_is_known() -> None:
    assert set(STATUSES) == CODES


@pytest.mark.parametrize("code", sorted(CODES))
def test_a_status_is_a_sentence_with_a_repair(code: int) -> None:
    error = status_error("nrt_execute", code, "unit verify, rank 3")
    sentence = error.sentence()
    assert sentence.startswith("nrt_execute failed for unit verify, rank 3, ")
    assert sentence.endswith(f"found {STATUSES[code].name} ({code}).")
    assert error.repair
    assert error.exit_code == (5 if code in (1002, 1006) else 4)


def test_a_status_that_nobody_knows_keeps_its_number() -> None:
    error = status_error("nrt_execute", 4711, "unit verify, rank 0")
    assert error.sentence() == (
        "nrt_execute failed for unit verify, rank 0, this version knows no such status: found status 4711."
    )


def test_invalid_is_the_neffs_fault_when_it_is_loaded_and_only_then() -> None:
    assert isinstance(status_error("nrt_load", 2, "x"), IntegrityError)
    assert isinstance(status_error("nrt_load_collectives", 2, "x"), IntegrityError)
    assert isinstance(status_error("nrt_tensor_write", 2, "x"), HostError)


def test_a_neff_that_is_too_new_is_for_the_runtime_to_read() -> None:
    assert isinstance(status_error("nrt_load", 10, "x"), HostError)
    assert "update the Neuron runtime" in status_of("nrt_load", 10).repair
