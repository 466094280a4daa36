"""A bundle of four small files that matches the golden manifest, and ways to damage it."""

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


@pytest.fixture
def reseal(bundle: Path, golden_json: dict[str, Any]) -> Callable[[Edit], Manifest]:
    """Edit the bundle's manifest and give it the id of its new content, as a forger would."""

    def apply(edit: Edit) -> Manifest:
        edit(golden_json)
        sealed = loads(golden_json).with_id()
        (bundle / MANIFEST).write_text(sealed.dumps(), encoding="utf-8")
        return sealed

    return apply
