"""examples/smollm2/make_random_draft.py writes a published-format draft, the same bytes for the same seed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from aot.checkpoint.draft import load_draft_weights, read_draft_config
from aot.checkpoint.source import resolve
from aot.checkpoint.target import TargetConfig

REPOSITORY = Path(__file__).parents[3]


def make(target: Path, output: Path, *options: str) -> subprocess.CompletedProcess[str]:
    script = REPOSITORY / "examples" / "smollm2" / "make_random_draft.py"
    command = [sys.executable, str(script), "--model", str(target), "--output", str(output), *options]
    code = f"import runpy, sys; sys.argv = {command[1:]!r}; runpy.run_path({str(script)!r}, run_name='__main__')"
    return subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=False)


@pytest.fixture
def model(tmp_path: Path, target_json: dict[str, Any]) -> Path:
    """A target's config alone: the script must not need its weights."""
    folder = tmp_path / "target"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(target_json))
    return folder


def test_the_draft_is_reproducible_and_loads(model: Path, tmp_path: Path, target: TargetConfig) -> None:
    drafts = [tmp_path / "one", tmp_path / "again", tmp_path / "other"]
    for draft, seed in zip(drafts, ("0", "0", "1"), strict=True):
        done = make(model, draft, "--draft-vocab-size", "16", "--seed", seed)
        assert done.returncode == 0, done.stderr
    one, again, other = ({file.name: file.read_bytes() for file in draft.iterdir()} for draft in drafts)
    assert set(one) == {"config.json", "model.safetensors", "README.md"}
    assert one == again
    assert one["model.safetensors"] != other["model.safetensors"]
    assert b"acceptance near zero is right" in one["README.md"]

    source = resolve(str(drafts[0]), key="draft", base=tmp_path)
    config = read_draft_config(source, target)
    assert (config.draft_vocab_size, config.aux_layers) == (16, (2, 4, 5))
    weights = load_draft_weights(source, config, target, torch.bfloat16)
    stored = load_file(drafts[0] / "model.safetensors")
    assert stored["fc.weight"].dtype == torch.bfloat16
    assert stored["t2d"].dtype == torch.bool
    assert "embed_tokens.weight" not in stored
    assert stored["t2d"].nonzero().flatten().tolist() == (torch.arange(16) + weights["d2t"]).tolist()
    assert weights["d2t"].any()


def test_a_vocabulary_larger_than_the_targets_is_one_sentence_and_exit_code_3(model: Path, tmp_path: Path) -> None:
    done = make(model, tmp_path / "out", "--draft-vocab-size", "65")
    assert done.returncode == 3
    assert done.stderr.splitlines()[0] == (
        "error: draft_vocab_size of draft_config is larger than the target's vocabulary: expected at most 64, found 65."
    )
    assert not (tmp_path / "out").exists()
