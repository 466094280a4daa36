"""What every test shares: no hub, no tokenizer threads, and a build cache of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

# Set here and not in a fixture: huggingface_hub and tokenizers read these when they are imported, and test
# modules are imported before any fixture runs. Subprocesses that tests start inherit them.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"


@pytest.fixture(scope="session", autouse=True)
def build_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The build cache of this session, empty at its start, in place of the user's."""
    folder = tmp_path_factory.mktemp("eagle3-cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EAGLE3_CACHE", str(folder))
        yield folder
