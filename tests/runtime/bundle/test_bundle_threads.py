"""Compute threads stop spinning soon, unless the user decided otherwise."""

from __future__ import annotations

import os

import pytest

from runtime.bundle.threads import SPIN_COUNT, bound_spinning


def test_the_spin_count_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    bound_spinning()
    assert os.environ["GOMP_SPINCOUNT"] == SPIN_COUNT


@pytest.mark.parametrize(("name", "value"), [("OMP_WAIT_POLICY", "active"), ("GOMP_SPINCOUNT", "7")])
def test_a_users_own_setting_stays(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    monkeypatch.setenv(name, value)
    bound_spinning()
    assert os.environ[name] == value
    assert name == "GOMP_SPINCOUNT" or "GOMP_SPINCOUNT" not in os.environ
