"""A bundle of four small files that matches the golden manifest, the toy bundle, which runs, and ways to damage them.

The golden manifest holds every kind of field, but no graphs that a loop could run: it is read, and not opened.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runtime.bundle.manifest import Manifest, loads
from runtime.bundle.open import MANIFEST

GOLDEN = Path(__file__).parent / "golden" / "manifest-v2.json"

CONTENT = {
    "graphs/target_embed.t8/unit.so": b"compiled code of target_embed\n",
    "graphs/target_head.t8/unit.so": b"compiled code of target_head\n",
    "tokenizer/tokenizer.json": b"{}\n",
    "weights/target.safetensors": b"weights of the target\n",
}

Edit = Callable[[dict[str, Any]], None]


@pytest.fixture
def golden_text() -> str:
    return GOLDEN.read_text(encoding="utf-8")


@pytest.fixture
def golden_json(golden_text: str) -> dict[str, Any]:
    """The golden manifest as parsed JSON, free to change."""
    data: dict[str, Any] = json.loads(golden_text)
    return data


@pytest.fixture
def golden(golden_json: dict[str, Any]) -> Manifest:
    return loads(golden_json)


@pytest.fixture
def bundle(tmp_path: Path, golden_text: str) -> Path:
    """A whole bundle called `golden`."""
    root = tmp_path / "golden"
    for relative, content in CONTENT.items():
        (root / relative).parent.mkdir(parents=True, exist_ok=True)
        (root / relative).write_bytes(content)
    (root / MANIFEST).write_text(golden_text, encoding="utf-8")
    return root


@pytest.fixture(scope="session")
def toy_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy bundle, which every part of agrees with every other; not to be changed."""
    from tests.runtime.bundle.toy import write_toy

    folder = tmp_path_factory.mktemp("template") / "toy"
    write_toy(folder)
    return folder


@pytest.fixture
def toy(toy_template: Path, tmp_path: Path) -> Path:
    """A copy of the toy bundle; its files are hard links, to be replaced and not written to."""
    from tests.runtime.bundle.toy import copy_of

    return copy_of(toy_template, tmp_path / "toy")


@pytest.fixture
def reseal(bundle: Path, golden_json: dict[str, Any]) -> Callable[[Edit], Manifest]:
    """Edit the bundle's manifest and give it the id of its new content, as a forger would."""

    def apply(edit: Edit) -> Manifest:
        edit(golden_json)
        sealed = loads(golden_json).with_id()
        (bundle / MANIFEST).write_text(sealed.dumps(), encoding="utf-8")
        return sealed

    return apply
