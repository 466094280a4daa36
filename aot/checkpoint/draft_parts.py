"""Which parts a draft has inside: layers, norms, rotary embedding, windows. Each decided and its source recorded.

Where trainers mean two things by one key, or leave a key out with different defaults in mind, it is settled here: by
the form's own default and a note, or by a refusal that names the override which states it.
"""

from __future__ import annotations

from typing import Any, Literal

from aot.checkpoint.draft_decisions import Decisions
from aot.checkpoint.draft_format import DraftFields, unsupported
from aot.checkpoint.draft_options import DraftOptions
from aot.checkpoint.draft_tensors import layer_indices, layer_prefix
from aot.checkpoint.fields import brief
from aot.checkpoint.rope import read_rope
from runtime.bundle.errors import ConfigError


def rope(made: Decisions, options: DraftOptions) -> tuple[float, dict[str, Any] | None]:
    """The draft's own base and scaling, never the target's."""
    theta, scaling, given = read_rope(made.fields.top)
    made.by("rope_theta", "config" if given else "default")
    described = made.fields.top.has("rope_scaling") or made.fields.top.has("rope_parameters")
    made.by("rope_scaling", "config" if described else "default")
    if options.rope_theta is not None:
        made.by("rope_theta", "override")
        theta = options.rope_theta
    return theta, scaling


def layers(made: Decisions, target_layers: int | None) -> int:
    """As many as the weights have, whatever the config says: published ones repeat their target's number.

    Raises:
        ConfigError: a layer between two others is missing; or no weights are at hand, and the config's number is
            the target's own.
    """
    held = layer_indices(made.shapes)
    if gap := next((layer for layer in range(max(held, default=0)) if layer not in held), None):
        raise ConfigError(
            f"the draft checkpoint lacks the layer {layer_prefix(gap)[:-1]}",
            expected=f"every layer up to layers.{max(held)}",
            repair="fetch the checkpoint again, or export the draft again",
        )
    said = made.fields.top.integer("num_hidden_layers", 1)
    if not made.shapes and said > 1 and target_layers is not None and said >= target_layers:
        raise ConfigError(
            f"num_hidden_layers of {made.fields.where} is the target's, and there are no weights to count layers by",
            expected="the draft's own number, 1 for nearly all",
            found=str(said),
            repair="correct num_hidden_layers, or name the draft's checkpoint",
        )
    return made.size("num_layers", "num_hidden_layers", max(held, default=0) + 1 if made.shapes else None, 1)


def norm_before_residual(made: Decisions, options: DraftOptions) -> bool:
    """False where nobody says: in every trainer's code. vLLM's reader of speculators files takes True there."""
    fields = made.fields
    if options.norm_before_residual is not None:
        made.by("norm_before_residual", "override")
        return options.norm_before_residual
    made.by("norm_before_residual", "config" if fields.has("norm_before_residual") else "default")
    if fields.form == "speculators" and not fields.has("norm_before_residual"):
        made.notes.append(
            f"{fields.where} does not say norm_before_residual; taken as false, the default of speculators' own class "
            "(vLLM takes true); speculative_config.draft_overrides.norm_before_residual states it"
        )
    return fields.flag("norm_before_residual", False)


def norm_output(made: Decisions, options: DraftOptions) -> bool:
    """Whether the state handed on is the normed one. SpecForge's own class means another thing by the same key."""
    fields = made.fields
    if options.norm_output is not None:
        made.by("norm_output", "override")
        return options.norm_output
    made.by("norm_output", "config" if fields.has("norm_output") else "default")
    if fields.form == "specforge" and fields.has("norm_output"):
        raise ConfigError(
            f"norm_output of {fields.where} can mean the norm before the head or the state that is handed on",
            found=str(fields.flag("norm_output", False)).lower(),
            repair=(
                "set speculative_config.draft_overrides.norm_output: true if each step reads the normed state of the "
                "step before (vLLM, SGLang), else false (SpecForge's class, which norms before the head)"
            ),
        )
    return fields.flag("norm_output", False)


def feature_norm(made: Decisions) -> Literal["none", "joined", "each"]:
    """none, joined or each: by the flags and by the tensors."""
    fields = made.fields
    if fields.has("fc_norm") and fields.has("use_aux_norm"):
        newer, older = fields.flag("fc_norm", False), fields.flag("use_aux_norm", False)
        if newer != older:
            raise ConfigError(
                f"the norm of each auxiliary state stands in {fields.where} twice, with different values",
                found=f"fc_norm {newer} and, under its older name, use_aux_norm {older}",
                repair="remove the wrong one",
            )
    joined = made.tensor("feature_norm", "input_norm.weight", "norm_before_fc")
    joined_source = made.sources["feature_norm"]
    each = made.tensor("feature_norm", "fc_norm.0.weight", "fc_norm", "use_aux_norm")
    if joined and each:
        raise ConfigError(
            f"{made.fields.where} asks for a norm before fc and for a norm on each auxiliary state",
            expected="one of norm_before_fc and fc_norm",
            repair="export the draft again; no trainer means both",
        )
    if joined:
        made.by("feature_norm", joined_source)
    return "joined" if joined else "each" if each else "none"


def refuse_norm_of_final(fields: DraftFields) -> None:
    for key in ("fc_norm", "use_aux_norm", "norm_before_fc"):
        if fields.flag(key, False):
            raise unsupported(f"a draft on the final hidden state with a norm of its own ({key}: True)", fields.where)


def qk_norm(made: Decisions) -> bool:
    if not made.shapes and made.fields.top.text("model_type", "llama") == "qwen3":
        made.by("qk_norm", "config")
        return True
    return made.tensor("qk_norm", "midlayer.self_attn.q_norm.weight")


def windows(made: Decisions, num_layers: int, options: DraftOptions) -> tuple[int, ...]:
    """Each layer's window. A sliding_window alone, without layer_types, says nothing of how a draft was trained."""
    top = made.fields.top
    made.by("windows", "config" if top.has("sliding_window") or top.has("layer_types") else "default")
    if options.attention_window is not None:
        made.by("windows", "override")
        return (options.attention_window,) * num_layers if options.attention_window else ()
    types = top.raw.get("layer_types") or []
    if not isinstance(types, list) or any(kind not in ("full_attention", "sliding_attention") for kind in types):
        raise ConfigError(
            f"layer_types of {made.fields.where} is wrong",
            expected="a list of full_attention and sliding_attention",
            found=brief(types),
            repair="correct layer_types",
        )
    if "sliding_attention" in types:
        if len(types) != num_layers:
            raise ConfigError(
                f"layer_types of {made.fields.where} does not name each layer of the draft",
                expected=str(num_layers),
                found=str(len(types)),
                repair="correct layer_types",
            )
        window = top.integer("sliding_window")
        return tuple(window if kind == "sliding_attention" else 0 for kind in types)
    family = top.text("model_type", "llama")
    switched = top.flag("use_sliding_window", False)
    if top.has("sliding_window") and not types and (switched or family == "mistral"):
        return (top.integer("sliding_window"),) * num_layers
    if top.has("sliding_window") and not types and not top.has("use_sliding_window") and family.startswith("llama"):
        raise ConfigError(
            f"sliding_window of {made.fields.where} stands without layer_types, and a Llama layer has none",
            found=str(top.integer("sliding_window")),
            repair="set speculative_config.draft_overrides.attention_window to it, or to 0 if it was trained without",
        )
    return ()
