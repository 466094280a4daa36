"""Whatever a config.json holds, reading it gives a draft or one sentence, and nothing else."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from aot.checkpoint.draft import DraftConfig, DraftOptions, draft_config_from_json
from aot.checkpoint.target import TargetConfig, target_config_from_json
from runtime.bundle.errors import ConfigError
from tests.aot.toy_drafts import VARIANTS, eagle3, wrapped

TARGET: TargetConfig = target_config_from_json(
    {
        "model_type": "llama",
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 8,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 64,
    }
)
# Every key that some variant has, at any place
KEYS = sorted(
    {key for make in VARIANTS.values() for key in make().config}
    | set(wrapped()["transformer_layer_config"])
    | {"eagle_aux_hidden_state_layer_ids", "aux_layers", "layer_types", "sliding_window", "use_sliding_window"}
    | {"use_aux_hidden_state", "norm_output", "fc_norm", "norm_before_fc", "hidden_act", "rope_parameters", "dtype"}
)
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 200) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=4), inner),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(
    base=st.sampled_from([eagle3(), wrapped()]),
    changes=st.dictionaries(st.sampled_from(KEYS), JUNK, min_size=1, max_size=2),
    nested=st.none() | st.dictionaries(st.sampled_from(KEYS), JUNK, max_size=3),
)
def test_a_config_is_a_draft_or_one_sentence(
    base: dict[str, Any], changes: dict[str, Any], nested: dict[str, Any] | None
) -> None:
    config = {**base, **changes} | ({"eagle_config": nested} if nested is not None else {})
    try:
        draft = draft_config_from_json(config, TARGET)
    except ConfigError as error:
        refused = error
    else:
        refused = None
    if refused is not None:
        assert refused.repair
        assert "\n" not in refused.sentence()
        return
    assert DraftConfig.from_json(json.loads(json.dumps(draft.to_json()))) == draft
    assert 1 <= draft.draft_vocab_size <= draft.vocab_size == 64
    assert len(draft.windows) in (0, draft.num_layers)


@settings(max_examples=200, deadline=None)
@given(ids=st.lists(st.integers(0, 9), max_size=5), semantic=st.sampled_from(["auto", "input_of", "output_of"]))
def test_positions_ascend_within_the_target_and_say_what_the_ids_mean(ids: list[int], semantic: Any) -> None:
    """A3, A4, A5: for every list of ids and every meaning."""
    config = eagle3(eagle_aux_hidden_state_layer_ids=ids)
    try:
        draft = draft_config_from_json(config, TARGET, options=DraftOptions(aux_semantic=semantic))
    except ConfigError:
        return
    assert list(draft.aux_layers) == sorted(set(draft.aux_layers))
    assert 0 <= draft.aux_layers[0] <= draft.aux_layers[-1] <= 8
    assert draft.aux_layers == tuple(layer + (draft.aux_semantic == "output_of") for layer in ids)
    assert draft.aux_semantic == (semantic if semantic != "auto" else draft.aux_semantic)
    assert draft.num_aux == len(ids)
