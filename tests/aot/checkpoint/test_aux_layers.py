"""Auxiliary layers: stored as positions in the residual stream, and never guessed in silence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from aot.checkpoint.draft import DraftOptions, draft_config_from_json
from aot.checkpoint.random_weights import random_target_weights
from aot.checkpoint.target import TargetConfig, target_config_from_json
from aot.reference import target_forward
from runtime.bundle.errors import ConfigError
from tests.aot.toy_drafts import Published, eagle3, original, tensors, wrapped

Json = dict[str, Any]
IDS = "eagle_aux_hidden_state_layer_ids"


def refusal(config: Json, target: TargetConfig, **options: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        draft_config_from_json(config, target, options=DraftOptions(**options))
    assert caught.value.repair
    return caught.value


@pytest.mark.parametrize(
    "config",
    [
        eagle3(**{IDS: [2, 4, 8]}),
        eagle3(eagle_config={IDS: [2, 4, 8]}),
        eagle3(eagle_config={"layer_ids": [2, 4, 8]}),
    ],
)
def test_ids_are_read_at_every_place_where_trainers_put_them(config: Json, target: TargetConfig) -> None:
    draft = draft_config_from_json(config, target)
    assert (draft.aux_layers, draft.num_aux, draft.sources["aux_layers"]) == ((2, 4, 8), 3, "config")
    assert (draft.aux_semantic, draft.notes) == ("input_of", ())


@pytest.mark.parametrize(
    "config",
    [
        eagle3(layer_ids=[2, 4, 8]),
        eagle3(target_layer_ids=[2, 4, 8]),
        eagle3(eagle_config={"target_layer_ids": [2, 4, 8]}),
        eagle3(layer_ids=[2, 4, 8], eagle_config={IDS: [2, 4, 8]}),
    ],
)
def test_C2_ids_have_several_names_at_both_places(config: Json, target: TargetConfig) -> None:
    assert draft_config_from_json(config, target).aux_layers == (2, 4, 8)


def test_C2_five_states_by_the_name_target_layer_ids(tmp_path: Path, target: TargetConfig) -> None:
    published = Published(eagle3(target_layer_ids=[1, 2, 3, 5, 6]), tensors(states=5))
    draft = published.read(tmp_path / "draft", target)
    assert (draft.aux_layers, draft.num_aux, draft.aux_semantic) == ((2, 3, 4, 6, 7), 5, "output_of")


@pytest.mark.parametrize(
    "config",
    [
        eagle3(**{IDS: [2, 4, 5]}, eagle_config={IDS: [2, 4, 6]}),
        eagle3(**{IDS: [2, 4, 5]}, layer_ids=[2, 4, 6]),
        eagle3(eagle_config={IDS: [2, 4, 5], "layer_ids": [2, 4, 6]}),
        eagle3(**{IDS: [2, 4, 5]}, eagle_config={"layer_ids": [2, 4, 6]}),
    ],
)
def test_C2_ids_in_two_places_that_differ_are_refused_unless_the_yaml_states_them(
    config: Json, target: TargetConfig
) -> None:
    sentence = refusal(config, target).sentence()
    assert "[2, 4, 5]" in sentence
    assert "[2, 4, 6]" in sentence
    stated = draft_config_from_json(config, target, options=DraftOptions(aux_layers=(2, 4, 7)))
    assert stated.aux_layers == (2, 4, 7)


def test_C2_ids_of_a_speculators_file_can_only_be_inputs(target_json: Json) -> None:
    deep = target_config_from_json(target_json | {"num_hidden_layers": 40})
    draft = draft_config_from_json(wrapped(**{IDS: [3, 19, 39]}), deep)
    assert (draft.aux_layers, draft.aux_semantic) == ((3, 19, 39), "input_of")
    assert any("[3, 19, 39]" in note and "aux_semantic" in note for note in draft.notes)
    options = DraftOptions(aux_semantic="output_of")
    assert draft_config_from_json(wrapped(**{IDS: [3, 19, 39]}), deep, options=options).aux_layers == (4, 20, 40)


def test_C2_what_a_speculators_file_says_twice_must_be_the_same(target: TargetConfig) -> None:
    """The layer's config lies inside; what each says of itself alone may differ."""
    differing = wrapped({"rms_norm_eps": 1e-6}, rms_norm_eps=1e-5)
    sentence = refusal(differing, target).sentence()
    assert "rms_norm_eps" in sentence
    assert "1e-06" in sentence
    draft_config_from_json(wrapped({"tie_word_embeddings": True, "torch_dtype": "float32"}), target)


@pytest.mark.parametrize(
    ("key", "inside", "outside"),
    [
        ("rms_norm_eps", 1e-6, 1e-5),
        ("rope_theta", 1e4, 5e5),
        ("sliding_window", 16, 32),
        ("layer_types", ["full_attention"], ["sliding_attention"]),
        ("attention_bias", False, True),
        ("mlp_bias", False, True),
        ("hidden_act", "silu", "gelu"),
        ("norm_before_residual", False, True),
    ],
)
def test_C2_any_key_that_is_read_and_said_twice_must_be_the_same(
    key: str, inside: object, outside: object, target: TargetConfig
) -> None:
    sentence = refusal(wrapped({key: inside}, **{key: outside}), target).sentence()
    assert key in sentence
    assert "transformer_layer_config" in sentence


def test_C2_a_key_that_nobody_reads_may_differ_inside(target: TargetConfig) -> None:
    """transformers writes them into both configs, each by its own class."""
    inside = {"_name_or_path": "layer", "_attn_implementation_autoset": True, "bos_token_id": 1, "eos_token_id": 2}
    outside = {"_name_or_path": "", "_attn_implementation_autoset": False, "bos_token_id": 0, "eos_token_id": 3}
    assert draft_config_from_json(wrapped(inside, **outside), target) == draft_config_from_json(wrapped(), target)


@pytest.mark.parametrize(
    ("ids", "positions", "semantic"),
    [([1, 3, 4], (2, 4, 5), "output_of"), ([2, 4, 5], (2, 4, 5), "input_of"), ([4, 6, 8], (4, 6, 8), "input_of")],
)
def test_auto_reads_ids_by_the_first_and_by_what_can_only_be_an_input(
    ids: list[int], positions: tuple[int, ...], semantic: str, target: TargetConfig
) -> None:
    """A3, A4: 8 of 8 can only be what leaves the last layer, for there is no layer 8 to leave."""
    draft = draft_config_from_json(eagle3(**{IDS: ids}), target)
    assert (draft.aux_layers, draft.aux_semantic) == (positions, semantic)
    assert draft.sources["aux_semantic"] == "default"


def test_outputs_that_are_taken_and_not_stated_are_said(target: TargetConfig) -> None:
    """A2: one layer off costs nearly all acceptance."""
    draft = draft_config_from_json(eagle3(**{IDS: [1, 3, 4]}), target)
    assert draft.notes == (
        "the auxiliary layer ids [1, 3, 4] of draft_config begin with 1 and are taken for layers whose outputs the "
        "draft eats (SpecForge, ModelOpt); speculative_config.aux_semantic states it",
    )
    stated = draft_config_from_json(eagle3(**{IDS: [1, 3, 4]}), target, options=DraftOptions(aux_semantic="input_of"))
    assert (stated.aux_layers, stated.notes, stated.sources["aux_semantic"]) == ((1, 3, 4), (), "override")


@pytest.mark.parametrize("ids", [[3, 4, 5], [0, 4, 5]])
def test_ids_that_can_mean_both_are_refused_until_their_meaning_is_stated(ids: list[int], target: TargetConfig) -> None:
    """A3."""
    error = refusal(eagle3(**{IDS: ids}), target)
    assert error.sentence() == (
        f"the auxiliary layer ids of draft_config can mean the inputs or the outputs of those layers: found {ids}."
    )
    assert "speculative_config.aux_semantic: output_of" in error.repair
    for semantic, added in (("input_of", 0), ("output_of", 1)):
        options = DraftOptions(aux_semantic=semantic)  # type: ignore[arg-type]
        draft = draft_config_from_json(eagle3(**{IDS: ids}), target, options=options)
        assert draft.aux_layers == tuple(layer + added for layer in ids)


@pytest.mark.parametrize("ids", [[2, 4, 9], [2, 4, 4], [5, 2, 4], []])
def test_ids_outside_the_target_repeated_or_unsorted_are_refused(ids: list[int], target: TargetConfig) -> None:
    """A4, A5: the same at build and in the reference, which takes positions as they are."""
    sentence = refusal(eagle3(**{IDS: ids}), target).sentence()
    assert sentence.endswith(
        f"do not fit a target of 8 layers: expected different ascending positions from 0 to 8, found {ids}."
    )


def test_outputs_of_the_last_layer_are_the_last_position(target: TargetConfig) -> None:
    options = DraftOptions(aux_semantic="output_of")
    assert draft_config_from_json(eagle3(**{IDS: [1, 3, 7]}), target, options=options).aux_layers == (2, 4, 8)
    assert "found [2, 4, 9]" in refusal(eagle3(**{IDS: [1, 3, 8]}), target, aux_semantic="output_of").sentence()


def test_our_own_key_states_positions(target: TargetConfig) -> None:
    draft = draft_config_from_json(eagle3(aux_layers=[1, 3, 4], **{IDS: [1, 3, 4]}), target)
    assert (draft.aux_layers, draft.sources["aux_layers"], draft.sources["aux_semantic"]) == (
        (1, 3, 4),
        "config",
        "config",
    )


def test_the_yaml_goes_before_the_checkpoint(target: TargetConfig) -> None:
    config = eagle3(**{IDS: [2, 4, 8]})
    draft = draft_config_from_json(config, target, options=DraftOptions(aux_layers=(0, 1, 7), aux_semantic="input_of"))
    assert (draft.aux_layers, draft.sources["aux_layers"]) == ((0, 1, 7), "override")
    draft = draft_config_from_json(config, target, options=DraftOptions(aux_layers=(1, 2, 3)))
    assert (draft.aux_layers, draft.aux_semantic) == ((2, 3, 4), "output_of")


# Without any ids


def test_the_default_is_announced_and_recorded(target: TargetConfig) -> None:
    """A1: 1.2 % acceptance in place of 59 % where a guess went unsaid."""
    draft = draft_config_from_json(original(), target)
    assert (draft.aux_layers, draft.sources["aux_layers"]) == ((2, 4, 5), "default")
    assert draft.notes == ("the draft's config names no auxiliary layers; taken by default: inputs of layers 2, 4, 5",)


def test_a_default_can_be_forbidden(target: TargetConfig) -> None:
    """A1."""
    error = refusal(original(), target, require_aux_layers=True)
    assert error.sentence() == (
        "draft_config names no auxiliary layers, and speculative_config.require_aux_layers wants them named."
    )
    assert error.repair == "state them as speculative_config.aux_layers; the default would be 2, 4, 5"


@pytest.mark.parametrize(("layers", "default"), [(4, [2, 2, 1]), (6, [2, 3, 3])])
def test_the_default_is_refused_for_a_target_too_small_for_it(
    layers: int, default: list[int], target_json: Json
) -> None:
    """A5: never two states where fc takes three."""
    small = target_config_from_json(target_json | {"num_hidden_layers": layers})
    assert refusal(original(), small).sentence() == (
        f"the default auxiliary layers do not fit a target of {layers} layers: expected different ascending "
        f"positions from 0 to {layers}, found {default}."
    )


def test_two_meanings_capture_the_same_states(target_json: Json) -> None:
    """A2: layer i adds the constant i + 1 to a zero stream, so that position k holds k (k + 1) / 2."""
    target = target_config_from_json(target_json)
    weights = {name: torch.zeros_like(value) for name, value in random_target_weights(target, 0, torch.float32).items()}
    for layer in range(8):
        prefix = f"model.layers.{layer}."
        # The second norm reads a stream of equal values as ones; the MLP makes silu(g) * u of them, and down adds
        weights[prefix + "mlp.down_proj.bias"] = torch.full((32,), float(layer + 1))
    captured = {}
    for semantic, ids in (("output_of", [1, 3, 4]), ("input_of", [2, 4, 5])):
        options = DraftOptions(aux_semantic=semantic)  # type: ignore[arg-type]
        positions = draft_config_from_json(eagle3(**{IDS: ids}), target, options=options).aux_layers
        captured[semantic] = target_forward(weights, target, [3, 1, 4], positions)[1]
    assert captured["input_of"].view(3, 3, 32)[:, :, 0].tolist() == [[3.0, 10.0, 15.0]] * 3
    assert torch.equal(captured["input_of"], captured["output_of"])
    # A4: the last position, before the final norm
    assert target_forward(weights, target, [3], (8,))[1][0, 0] == 36.0
