"""`eagle3-build inspect --draft`: how a draft is read, without building."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from aot.checkpoint.draft import DraftConfig
from aot.cli import cli, notices
from runtime.bundle.errors import ConfigError, UsageError
from tests.aot.toy_drafts import VARIANTS, Published, eagle3, rig_of_variant, tensors

TARGET = {
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
}


@pytest.fixture
def target(tmp_path: Path) -> Path:
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "config.json").write_text(json.dumps(TARGET))
    return tmp_path / "target"


def inspect(*arguments: object) -> str:
    done = CliRunner().invoke(cli, ["inspect", *map(str, arguments)], catch_exceptions=True)
    if done.exception:
        raise done.exception
    return done.output


@pytest.mark.parametrize("name", ["specforge", "speculators qwen3", "final state", "window by override"])
def test_every_field_is_shown_with_its_source(name: str, tmp_path: Path, target: Path) -> None:
    VARIANTS[name]().write(tmp_path / "draft")
    lines = inspect("--draft", tmp_path / "draft", "--model", target).splitlines()
    assert lines[0].endswith("draft: an EAGLE3 draft")
    shown = {line.split()[0]: line.split()[1] for line in lines[1:] if line.startswith("  ")}
    raw = json.loads(inspect("--draft", tmp_path / "draft", "--model", target, "--json"))
    assert shown == raw["sources"]
    assert [line for line in lines if line.startswith("note:")] == [f"note: {note}" for note in raw["notes"]]
    assert DraftConfig.from_json(raw).sources == shown


def test_a_draft_alone_leaves_open_what_hangs_on_its_target(tmp_path: Path) -> None:
    Published(eagle3(), tensors()).write(tmp_path / "draft")
    lines = inspect("--draft", tmp_path / "draft").splitlines()
    assert lines[0].endswith("an EAGLE3 draft, seen without its target")
    assert lines[-1].endswith("taken by default: inputs of layers 2, N // 2 and N - 3 of the target's N")


def test_an_ambiguous_draft_is_shown_once_its_meaning_is_stated(tmp_path: Path, target: Path) -> None:
    Published(eagle3(eagle_aux_hidden_state_layer_ids=[3, 4, 5]), tensors()).write(tmp_path / "draft")
    with pytest.raises(ConfigError, match="can mean the inputs or the outputs of those layers"):
        inspect("--draft", tmp_path / "draft", "--model", target)
    shown = inspect("--draft", tmp_path / "draft", "--model", target, "--aux-semantic", "output_of")
    assert any(line.split() == ["aux_layers", "config", "4,", "5,", "6"] for line in shown.splitlines())


def test_a_wrong_map_is_told(tmp_path: Path, target: Path) -> None:
    """B3, B4: the vocabulary map is checked too."""
    made = tensors()
    made["d2t"] = made["d2t"] * 0
    Published(eagle3(), made).write(tmp_path / "draft")
    with pytest.raises(ConfigError, match="d2t and t2d of the draft name different target ids"):
        inspect("--draft", tmp_path / "draft", "--model", target)


def test_a_build_says_what_it_takes_for_granted() -> None:
    """A1, E1, F5: a default list, a draft past its trained length, and ropes that differ."""
    plain = rig_of_variant("specforge")
    draft = replace(rig_of_variant("rope yarn").draft, max_position_embeddings=16)
    plan = SimpleNamespace(
        models=SimpleNamespace(draft=draft, target=plain.target, notes=()), config=SimpleNamespace(max_model_len=64)
    )
    assert notices(plan, SimpleNamespace(notices=list)) == [
        "the draft's config names no auxiliary layers; taken by default: inputs of layers 2, 4, 5",
        "the draft's rope scaling is not the target's; each follows its own config",
        "the draft was trained for 16 positions, max_model_len is 64: drafts past that length will be poor, text "
        "stays right",
    ]


def test_inspect_looks_at_one_thing(tmp_path: Path) -> None:
    for arguments in ((), ("--bundle", tmp_path, "--draft", tmp_path)):
        with pytest.raises(UsageError, match="expected either --bundle or --draft"):
            inspect(*arguments)
