"""What each published variant is read as, who decided it, and what a user is told of guesses."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from aot.checkpoint.draft import DraftConfig, DraftOptions, draft_config_from_json, embedding_note, load_draft_weights
from aot.checkpoint.rope import inverse_frequencies
from aot.checkpoint.target import TargetConfig, target_config_from_json
from runtime.bundle.errors import ConfigError
from tests.aot.toy_drafts import LLAMA3, VARIANTS, Published, eagle3, mapping, original, tensors, wrapped

Json = dict[str, Any]


def refusal(published: Published, folder: Path, target: TargetConfig) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        published.read(folder, target)
    assert caught.value.repair
    return caught.value


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_is_read_as_what_it_is(name: str, tmp_path: Path, target: TargetConfig) -> None:
    published = VARIANTS[name]()
    config = published.read(tmp_path / "draft", target)
    assert {key: getattr(config, key) for key in published.facts} == published.facts
    # Each field with its source, and through JSON unchanged: that is what the manifest holds
    fields = {field.name for field in dataclasses.fields(DraftConfig)} - {"sources", "notes"}
    assert set(config.sources) == fields
    assert set(config.sources.values()) <= {"config", "weights", "default", "override"}
    assert DraftConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_s_weights_come_whole_and_cast(name: str, tmp_path: Path, target: TargetConfig) -> None:
    published = VARIANTS[name]()
    source, config = published.write(tmp_path / "draft"), published.read(tmp_path / "draft", target)
    weights = load_draft_weights(source, config, target, torch.bfloat16)
    floats = [tensor for tensor in published.tensors.values() if tensor.is_floating_point()]
    unread = name == "targets embedding by override"
    assert len(weights) == len(floats) + 1 - unread
    assert {str(tensor.dtype) for key, tensor in weights.items() if key != "d2t"} == {"torch.bfloat16"}
    assert weights["d2t"].shape == (config.draft_vocab_size,)


@pytest.mark.parametrize("name", [name for name in VARIANTS if name != "targets embedding by override"])
def test_any_tensor_that_is_missing_or_too_much_is_named(name: str, tmp_path: Path, target: TargetConfig) -> None:
    """B12: never strict=False. What may be missing is shared with the target or rebuilt from its counterpart."""
    published = VARIANTS[name]()
    published.form = "safetensors"
    optional = {"d2t", "t2d", "lm_head.weight", "embed_tokens.weight"}
    for number, tensor in enumerate(sorted(published.tensors.keys() - optional)):
        rest = {key: value for key, value in published.tensors.items() if key != tensor}
        part = dataclasses.replace(published, tensors=rest, config={"head_dim": 8, **published.config})
        assert "lacks" in refusal(part, tmp_path / str(number), target).sentence()
    extra = dataclasses.replace(published, tensors={**published.tensors, "midlayer.surprise.weight": torch.zeros(1)})
    assert "architecture lacks, midlayer.surprise.weight" in refusal(extra, tmp_path / "extra", target).sentence()


# Residual and output norms


def test_speculators_default_of_norm_before_residual_is_said(target: TargetConfig) -> None:
    """C5: vLLM's reader takes true where speculators' own class has false."""
    config = wrapped()
    del config["norm_before_residual"]
    draft = draft_config_from_json(config, target)
    assert (draft.norm_before_residual, draft.sources["norm_before_residual"]) == (False, "default")
    assert draft.notes == (
        "draft_config does not say norm_before_residual; taken as false, the default of speculators' own class "
        "(vLLM takes true); speculative_config.draft_overrides.norm_before_residual states it",
    )
    stated = draft_config_from_json(config, target, options=DraftOptions(norm_before_residual=True))
    assert (stated.norm_before_residual, stated.sources["norm_before_residual"]) == (True, "override")
    assert stated.notes == ()


def test_the_state_handed_on_is_not_normed_unless_stated(target: TargetConfig) -> None:
    """C6: SpecForge's class means the norm before the head by norm_output, everyone else what is handed on."""
    ids = {"eagle_aux_hidden_state_layer_ids": [2, 4, 5]}
    assert not draft_config_from_json(eagle3(**ids), target).norm_output
    for said in (True, False):
        with pytest.raises(ConfigError) as caught:
            draft_config_from_json(eagle3(norm_output=said, **ids), target)
        assert caught.value.sentence() == (
            "norm_output of draft_config can mean the norm before the head or the state that is handed on: "
            f"found {str(said).lower()}."
        )
        options = DraftOptions(norm_output=said)
        assert draft_config_from_json(eagle3(norm_output=said, **ids), target, options=options).norm_output is said
    assert draft_config_from_json(wrapped(norm_output=True), target).norm_output


def test_a_flag_is_read_at_either_place_and_must_agree(target: TargetConfig) -> None:
    """C3: the same manifest from both nestings."""
    top = draft_config_from_json(eagle3(norm_before_fc=True), target)
    nested = draft_config_from_json(eagle3(eagle_config={"norm_before_fc": True}), target)
    assert top.feature_norm == nested.feature_norm == "joined"
    assert top.sources == nested.sources
    with pytest.raises(ConfigError, match="norm_before_fc stands in draft_config twice, with different values"):
        draft_config_from_json(eagle3(norm_before_fc=True, eagle_config={"norm_before_fc": False}), target)


def test_a_norm_that_is_asked_for_must_be_there(tmp_path: Path, target: TargetConfig) -> None:
    """C3: key true but input_norm.weight missing."""
    asked = Published(eagle3(norm_before_fc=True), tensors())
    assert refusal(asked, tmp_path, target).sentence() == "the draft checkpoint lacks input_norm.weight."


def test_two_kinds_of_feature_norms_exclude_each_other(target: TargetConfig) -> None:
    with pytest.raises(ConfigError, match="a norm before fc and for a norm on each auxiliary state"):
        draft_config_from_json(eagle3(norm_before_fc=True, fc_norm=True), target)


# Vocabulary, embedding, head


def test_weights_decide_the_size_of_the_vocabulary(tmp_path: Path, target: TargetConfig) -> None:
    draft = Published(eagle3(draft_vocab_size=20), tensors()).read(tmp_path, target)
    assert (draft.draft_vocab_size, draft.sources["draft_vocab_size"]) == (16, "weights")
    assert "draft_vocab_size of" in draft.notes[0]
    assert draft.notes[0].endswith("is 20, the draft's weights have 16; the weights are taken")


def test_a_reduced_vocabulary_without_a_map_is_refused(tmp_path: Path, target: TargetConfig) -> None:
    """B1."""
    made = {name: value for name, value in tensors().items() if name not in ("d2t", "t2d")}
    assert refusal(Published(eagle3(), made), tmp_path, target).sentence() == (
        "the draft has a reduced vocabulary and no map to the target's: expected d2t with 16 offsets, "
        "found neither d2t nor t2d."
    )


@pytest.mark.parametrize(
    ("map_of", "sentence"),
    [
        # B3: what a broken export writes
        (torch.zeros(16, dtype=torch.int64), "d2t and t2d of the draft name different target ids"),
        # Ids in the place of offsets (verl-SpeCo#67)
        (torch.arange(40, 56), "d2t of the draft leads outside the target's vocabulary at row 12"),
    ],
)
def test_a_wrong_map_is_told_when_the_weights_are_read(
    map_of: torch.Tensor, sentence: str, tmp_path: Path, target: TargetConfig
) -> None:
    published = Published(eagle3(), {**tensors(), "d2t": map_of})
    config = published.read(tmp_path, target)
    with pytest.raises(ConfigError) as caught:
        load_draft_weights(published.write(tmp_path), config, target, torch.float32)
    assert caught.value.sentence().startswith(sentence)


def test_a_head_of_its_own_goes_before_a_flag_that_ties_it(tmp_path: Path, target: TargetConfig) -> None:
    """B9."""
    published = Published(eagle3(tie_word_embeddings=True), tensors())
    config = published.read(tmp_path, target)
    assert config.own_head
    assert config.notes[0].endswith("is true and the draft has a head of its own; the head is taken")
    weights = load_draft_weights(published.write(tmp_path), config, target, torch.float32)
    assert torch.equal(weights["lm_head.weight"], published.tensors["lm_head.weight"])


def test_a_missing_head_cannot_be_the_target_s_where_widths_differ(tmp_path: Path, target: TargetConfig) -> None:
    made = tensors(hidden=48, head=False)
    made["embed_tokens.weight"] = torch.ones(64, 48)
    assert refusal(Published(eagle3(hidden_size=48), made), tmp_path, target).sentence() == (
        "the draft has no lm_head.weight, and the target's cannot stand for it: expected lm_head.weight, or a draft "
        "as wide as its target that shares its embedding, found a width of 48 for 32."
    )


def test_who_owns_the_embedding_is_settled_at_build(tmp_path: Path, target: TargetConfig) -> None:
    """B10, B11: by the file's whole tensors, or by an override; never by a loader."""
    shared = Published(eagle3(), tensors()).read(tmp_path / "shared", target)
    own = Published(eagle3(), {**tensors(), "embed_tokens.weight": torch.ones(64, 32)})
    kept = own.read(tmp_path / "own", target)
    over = dataclasses.replace(own, options=DraftOptions(embed_tokens="target")).read(tmp_path / "over", target)
    found = [(draft.own_embedding, draft.sources["own_embedding"]) for draft in (shared, kept, over)]
    assert found == [(False, "weights"), (True, "weights"), (False, "override")]
    wanting = dataclasses.replace(own, tensors=tensors(), options=DraftOptions(embed_tokens="draft"))
    assert refusal(wanting, tmp_path / "no", target).sentence() == "the draft checkpoint lacks embed_tokens.weight."


def test_an_embedding_of_noise_is_told_of() -> None:
    """B7: saved with its random initialisation."""
    random = torch.Generator().manual_seed(0)
    target, noise = torch.randn(64, 32, generator=random), torch.randn(64, 32, generator=random)
    note = embedding_note({"embed_tokens.weight": noise}, target)
    assert note.startswith("the draft's own embedding table does not resemble the target's (mean cosine ")
    assert note.endswith("set speculative_config.draft_overrides.embed_tokens: target")
    assert embedding_note({"embed_tokens.weight": 0.5 * target + 0.1 * noise}, target) == ""
    assert embedding_note({}, target) == ""
    # Of another width nothing can be compared
    assert embedding_note({"embed_tokens.weight": torch.randn(64, 48)}, target) == ""


# Rotary embedding, windows, positions


@pytest.mark.parametrize(
    ("extra", "theta", "source"),
    [
        ({}, 10000.0, "default"),
        ({"rope_theta": 5e5}, 5e5, "config"),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}, 5e5, "config"),
    ],
)
def test_the_draft_s_base_is_its_own_or_10000(extra: Json, theta: float, source: str, target: TargetConfig) -> None:
    """F2: never the target's; an override wins."""
    draft = draft_config_from_json(original(**extra), target)
    assert (draft.rope_theta, draft.sources["rope_theta"]) == (theta, source)
    over = draft_config_from_json(original(**extra), target, options=DraftOptions(rope_theta=7.0))
    assert (over.rope_theta, over.sources["rope_theta"]) == (7.0, "override")


def test_the_draft_s_scaling_is_its_own(target: TargetConfig) -> None:
    """F1, F3: a scaled draft of a plain target, and the numbers of its frequencies by hand."""
    draft = draft_config_from_json(original(rope_scaling=LLAMA3), target)
    assert (draft.rope_scaling, target.rope_scaling) == (LLAMA3, None)
    # Trained for 32 positions: pairs of 1, 0.1, 0.01 and 0.001 radians turn 5.09, 0.51, 0.05 and 0.005 times
    found = inverse_frequencies(8, 1e4, draft.rope_scaling).tolist()
    assert found == pytest.approx([1.0, 0.1 / 8, 0.01 / 8, 0.001 / 8], rel=1e-5)


def test_a_window_without_layer_types_says_nothing(target: TargetConfig) -> None:
    """E10: the key is in many configs whose layers have no window."""
    with pytest.raises(ConfigError) as caught:
        draft_config_from_json(eagle3(sliding_window=8), target)
    assert caught.value.sentence() == (
        "sliding_window of draft_config stands without layer_types, and a Llama layer has none: found 8."
    )
    for window, windows in ((8, (8,)), (0, ())):
        options = DraftOptions(attention_window=window)
        draft = draft_config_from_json(eagle3(sliding_window=8), target, options=options)
        assert (draft.windows, draft.sources["windows"]) == (windows, "override")
    assert draft_config_from_json(eagle3(sliding_window=8, use_sliding_window=False), target).windows == ()
    assert draft_config_from_json(eagle3(sliding_window=8, model_type="mistral"), target).windows == (8,)


def test_layer_types_name_each_layer(target: TargetConfig) -> None:
    with pytest.raises(ConfigError, match="layer_types of draft_config does not name each layer of the draft"):
        draft_config_from_json(eagle3(sliding_window=8, layer_types=["sliding_attention"] * 2), target)
    for wrong in (["chunked_attention"], [[]], "sliding_attention"):
        with pytest.raises(ConfigError, match="layer_types of draft_config is wrong: expected a list of full"):
            draft_config_from_json(eagle3(layer_types=wrong), target)


def test_llama_4_drafts_have_their_width_under_another_key(target: TargetConfig) -> None:
    draft = draft_config_from_json(eagle3(model_type="llama4_text", intermediate_size_mlp=72), target)
    assert draft.intermediate_size == 72


def test_a_draft_of_another_target_is_told_by_fc(tmp_path: Path, target: TargetConfig) -> None:
    made = tensors(target=40)
    assert refusal(Published(eagle3(), made), tmp_path, target).sentence() == (
        "fc.weight of the draft does not take whole states of this target: expected a multiple of the target's hidden "
        "size, 32, found a width of 120."
    )


def test_an_all_zero_map_of_the_first_ids_needs_t2d(tmp_path: Path, target: TargetConfig) -> None:
    first = torch.zeros(64, dtype=torch.bool)
    first[:16] = True
    zeros = torch.zeros(16, dtype=torch.int64)
    published = Published(eagle3(), {**tensors(), "d2t": zeros, "t2d": first})
    weights = load_draft_weights(published.write(tmp_path), published.read(tmp_path, target), target, torch.float32)
    assert weights["d2t"].tolist() == [0] * 16


def test_a_map_can_be_rebuilt_from_t2d(tmp_path: Path, target: TargetConfig) -> None:
    """B1."""
    made = tensors()
    expected = made.pop("d2t")
    published = Published(eagle3(), made)
    weights = load_draft_weights(published.write(tmp_path), published.read(tmp_path, target), target, torch.float32)
    assert torch.equal(weights["d2t"], expected)
    assert torch.equal(expected, mapping(16)["d2t"])


def test_a_target_may_be_of_another_depth(target_json: Json) -> None:
    deep = target_config_from_json(target_json | {"num_hidden_layers": 32})
    assert draft_config_from_json(original(), deep).aux_layers == (2, 16, 29)


def test_C2_a_norm_under_its_two_names_must_be_one(target: TargetConfig) -> None:
    with pytest.raises(ConfigError, match="fc_norm True and, under its older name, use_aux_norm False"):
        draft_config_from_json(eagle3(fc_norm=True, use_aux_norm=False), target)
    assert draft_config_from_json(eagle3(fc_norm=True, use_aux_norm=True), target).feature_norm == "each"


def test_a_number_of_states_that_the_weights_do_not_have_is_said(tmp_path: Path, target: TargetConfig) -> None:
    draft = Published(eagle3(num_aux_hidden_states=5), tensors()).read(tmp_path / "draft", target)
    assert draft.num_aux == 3
    assert any(note.startswith("num_aux_hidden_states of ") for note in draft.notes)
