"""`eagle3-build --probe-aux` tells which meaning of a draft's layer ids its acceptance fits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import save_file

from aot.cli import cli
from aot.verify.probe import Meaning, fitting
from runtime.bundle.errors import ConfigError, UsageError
from runtime.request import SpecDecodeStats
from tests.aot.toy_drafts import VARIANTS, eagle3

H, V, LAYERS = 32, 64, 8
IDS = [1, 3, 6]


def bigram_target(folder: Path) -> Path:
    """A target whose next token hangs on the last one alone: its layers add nothing to the stream.

    But layer 2 adds a constant to channel 31 and layer 3 takes it away: position 3 of the stream is unlike all others.
    """
    random = torch.Generator().manual_seed(0)
    weights = {"model.embed_tokens.weight": torch.randn(V, H, generator=random)}
    weights["model.embed_tokens.weight"][:, 31] = 0
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{prefix}{name}.weight"] = torch.ones(H)
        for name in ("q", "k", "v", "o"):
            weights[f"{prefix}self_attn.{name}_proj.weight"] = torch.zeros(H, H)
            weights[f"{prefix}self_attn.{name}_proj.bias"] = torch.zeros(H)
        for name, shape in (("gate", (48, H)), ("up", (48, H)), ("down", (H, 48))):
            weights[f"{prefix}mlp.{name}_proj.weight"] = torch.zeros(shape)
    weights["model.layers.2.self_attn.o_proj.bias"][31] = 10.0
    weights["model.layers.3.self_attn.o_proj.bias"][31] = -10.0
    weights |= {"model.norm.weight": torch.ones(H), "lm_head.weight": torch.randn(V, H, generator=random)}
    config = {"model_type": "llama", "hidden_size": H, "intermediate_size": 48, "num_hidden_layers": LAYERS}
    config |= {"num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": V, "attention_bias": True}
    return written(folder, config, weights)


def bigram_draft(folder: Path, *, junk_at: int, **changes: Any) -> Path:
    """A draft that knows the same bigrams, by the target's head, unless channel 31 of a state is not zero.

    Each row attends to rows of its own token and takes the token's embedding from them; of the features it reads
    channel 31 of state `junk_at` alone, and adds much noise in proportion.
    """
    random = torch.Generator().manual_seed(1)
    fc = torch.zeros(H, 3 * H)
    fc[:, junk_at * H + 31] = 5 * torch.randn(H, generator=random)
    embedding_half = torch.cat([torch.eye(H), torch.zeros(H, H)], dim=1)
    attention = {"q": 6 * embedding_half, "k": 6 * embedding_half, "v": embedding_half, "o": torch.eye(H)}
    weights = {"fc.weight": fc, "norm.weight": torch.ones(H)}
    weights |= {f"midlayer.self_attn.{name}_proj.weight": value for name, value in attention.items()}
    for name in ("input_layernorm", "hidden_norm", "post_attention_layernorm"):
        weights[f"midlayer.{name}.weight"] = torch.ones(H)
    for name, shape in (("gate", (40, H)), ("up", (40, H)), ("down", (H, 40))):
        weights[f"midlayer.mlp.{name}_proj.weight"] = torch.zeros(shape)
    config = eagle3(draft_vocab_size=V, num_attention_heads=2, head_dim=16, eagle_aux_hidden_state_layer_ids=IDS)
    return written(folder, config | changes, weights)


def written(folder: Path, config: dict[str, Any], weights: dict[str, torch.Tensor]) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file(weights, folder / "model.safetensors")
    return folder


def yaml_for(folder: Path, target: Path, draft: Path) -> Path:
    file = folder / "probe.yaml"
    file.write_text(
        f"model: {target}\ndtype: float32\nmax_model_len: 64\nmax_num_seqs: 2\nblock_size: 16\n"
        f"speculative_config: {{method: eagle3, model: {draft}, num_speculative_tokens: 3}}\n"
    )
    return file


def probed(file: Path, *options: str) -> str:
    done = CliRunner().invoke(cli, ["--config", str(file), "--probe-aux", *options])
    if done.exception:
        raise done.exception
    return done.output


@pytest.mark.parametrize(
    ("junk_at", "fits", "positions"),
    # Position 3 is state 1 as an input, [1, 3, 6], and no state as an output, [2, 4, 7]; as ids [1, 2, 6] the reverse
    [(1, "output_of", [2, 4, 7]), (0, None, None)],
)
def test_the_meaning_that_is_accepted_fits(junk_at: int, fits: str, positions: Any, tmp_path: Path) -> None:
    """A2, A3: one layer off, next to nothing is accepted."""
    draft = bigram_draft(tmp_path / "draft", junk_at=junk_at)
    found = json.loads(probed(yaml_for(tmp_path, bigram_target(tmp_path / "target"), draft), "--json"))
    assert found["fits"] == fits
    by_meaning = {one["aux_semantic"]: one for one in found["meanings"]}
    assert [one["positions"] for one in found["meanings"]] == [[1, 3, 6], [2, 4, 7]]
    lengths = {semantic: one["mean_acceptance_length"] for semantic, one in by_meaning.items()}
    if fits:
        assert by_meaning[fits]["positions"] == positions
        assert lengths["output_of"] > 2.5
        assert lengths["input_of"] < 1.5
    else:
        assert lengths["input_of"] == lengths["output_of"] > 2.5


def test_inputs_fit_where_outputs_are_a_layer_late(tmp_path: Path) -> None:
    draft = bigram_draft(tmp_path / "draft", junk_at=1, eagle_aux_hidden_state_layer_ids=[1, 2, 6])
    lines = probed(yaml_for(tmp_path, bigram_target(tmp_path / "target"), draft)).splitlines()
    assert lines[0].startswith("input_of   layers 1, 2, 6  acceptance length ")
    assert lines[1].startswith("output_of  layers 2, 3, 7  acceptance length ")
    assert lines[2] == "The draft fits aux_semantic: input_of, which taps the inputs of layers 1, 2, 6"


def test_positions_that_are_stated_are_tried_one_layer_later_too(tmp_path: Path) -> None:
    draft = bigram_draft(tmp_path / "draft", junk_at=1, aux_layers=[1, 3, 6])
    found = json.loads(probed(yaml_for(tmp_path, bigram_target(tmp_path / "target"), draft), "--json"))
    assert [one["positions"] for one in found["meanings"]] == [[1, 3, 6], [2, 4, 7]]
    assert found["fits"] == "output_of"


def test_a_draft_without_auxiliary_layers_has_nothing_to_probe(tmp_path: Path) -> None:
    draft = VARIANTS["final state"]().write(tmp_path / "draft").path
    with pytest.raises(UsageError, match="The draft reads its target's final state and no auxiliary layers"):
        probed(yaml_for(tmp_path, bigram_target(tmp_path / "target"), draft))


def test_ids_that_fit_under_no_meaning_are_refused(tmp_path: Path) -> None:
    draft = bigram_draft(tmp_path / "draft", junk_at=1, eagle_aux_hidden_state_layer_ids=[1, 3, 9])
    with pytest.raises(ConfigError, match="do not fit a target of 8 layers"):
        probed(yaml_for(tmp_path, bigram_target(tmp_path / "target"), draft))


@pytest.mark.parametrize(
    ("lengths", "fits"), [((1.02, 2.8), 1), ((2.8, 1.02), 0), ((2.8, 2.7), None), ((1.0, 1.0), None)]
)
def test_a_difference_must_be_clear(lengths: tuple[float, float], fits: int | None) -> None:
    meanings = [
        Meaning("input_of", (index,), SpecDecodeStats(100, 300, round(100 * (length - 1))))
        for index, length in enumerate(lengths)
    ]
    assert fitting(meanings) == (None if fits is None else meanings[fits])
