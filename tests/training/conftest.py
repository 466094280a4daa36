from __future__ import annotations

import pytest

from tests.training.toy import Toy, make_toy


@pytest.fixture
def toy() -> Toy:
    return make_toy()
