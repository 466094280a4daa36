"""Every field of a draft's config, decided: by an override, by the config, by the weights, or by default.

Weights are physical, a config.json is hearsay: where a tensor's shape settles a number, it does, and a config that says
otherwise is told of in a note. Where a key is absent, the default is that of the form's own trainer.
"""

from __future__ import annotations

from aot.checkpoint import draft_parts
from aot.checkpoint.aux_layers import AuxLayers, read_aux_layers
from aot.checkpoint.draft_config import DraftConfig
from aot.checkpoint.draft_decisions import Decisions, axis_size
from aot.checkpoint.draft_format import DraftFields
from aot.checkpoint.draft_heads import heads_of
from aot.checkpoint.draft_options import DraftOptions, TargetFacts
from aot.checkpoint.draft_tensors import EMBEDDING, HEAD
from aot.checkpoint.headers import Shapes
from runtime.bundle.errors import ConfigError


def facts_of_draft(fields: DraftFields, shapes: Shapes) -> TargetFacts:
    """The target's sizes as far as a draft tells them, for a look at a draft alone."""
    top = fields.top
    vocab_size = axis_size(shapes, "t2d", 0) or top.integer("vocab_size")
    return TargetFacts(vocab_size, top.integer("target_hidden_size", top.integer("hidden_size")), None)


def read_fields(fields: DraftFields, target: TargetFacts, shapes: Shapes, options: DraftOptions) -> DraftConfig:
    """The draft that `fields`, the tensors' `shapes` (canonical names; empty: none at hand) and `options` describe.

    Raises:
        ConfigError: a key is wrong or ambiguous, or does not fit the target.
    """
    made, top = Decisions(fields, shapes), fields.top
    hidden_size = made.size("hidden_size", "hidden_size", axis_size(shapes, "norm.weight", 0))
    intermediate = "intermediate_size_mlp" if top.has("intermediate_size_mlp") else "intermediate_size"
    num_heads, num_kv_heads, head_dim = heads_of(made, hidden_size)
    vocab_size = _of_target(made, "vocab_size", target.vocab_size)
    target_hidden_size = _of_target(made, "target_hidden_size", target.hidden_size)
    draft_vocab_size = _draft_vocabulary(made, vocab_size)
    own_embedding, own_head = _shared(made, (vocab_size, hidden_size), target_hidden_size, options)
    features, aux = _features(made, hidden_size, target, options)
    rope_theta, rope_scaling = draft_parts.rope(made, options)
    num_layers = draft_parts.layers(made, target.num_layers)
    made.by("rms_norm_eps", "config" if top.has("rms_norm_eps") else "default")
    made.by("logit_scale", "config" if top.has("logit_scale") else "default")
    made.by("form", "config")
    made.by("stored_dtype", "config")
    return DraftConfig(
        hidden_size=hidden_size,
        intermediate_size=made.size(
            "intermediate_size", intermediate, axis_size(shapes, "midlayer.mlp.gate_proj.weight", 0)
        ),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        vocab_size=vocab_size,
        draft_vocab_size=draft_vocab_size,
        rms_norm_eps=top.number("rms_norm_eps", 1e-6),
        rope_theta=rope_theta,
        rope_scaling=rope_scaling,
        max_position_embeddings=made.plain("max_position_embeddings", 2048),
        target_hidden_size=target_hidden_size,
        num_aux=aux.states if aux else 1,
        aux_layers=aux.positions if aux else (),
        norm_before_residual=draft_parts.norm_before_residual(made, options),
        sources=made.sources,
        form=fields.form,
        stored_dtype=top.text("torch_dtype", top.text("dtype", "")),
        aux_semantic=aux.semantic if aux else "input_of",
        num_layers=num_layers,
        features="auxiliary" if features else "final",
        feature_norm=draft_parts.feature_norm(made),
        fc_bias=made.tensor("fc_bias", "fc.bias", *(("bias",) if features else ())),
        norm_output=draft_parts.norm_output(made, options),
        qkv_bias=made.tensor("qkv_bias", "midlayer.self_attn.q_proj.bias", "attention_bias", "qkv_bias"),
        o_bias=made.tensor("o_bias", "midlayer.self_attn.o_proj.bias", "attention_bias"),
        mlp_bias=made.tensor("mlp_bias", "midlayer.mlp.down_proj.bias", "mlp_bias"),
        qk_norm=draft_parts.qk_norm(made),
        windows=draft_parts.windows(made, num_layers, options),
        logit_scale=top.number("logit_scale", 1.0),
        own_embedding=own_embedding,
        own_head=own_head,
        notes=tuple(made.notes),
    )


def _of_target(made: Decisions, key: str, expected: int) -> int:
    """A number that a draft's config repeats of its target's."""
    top = made.fields.top
    made.by(key, "config" if top.has(key) else "default")
    found = top.integer(key, expected)
    if found != expected:
        raise ConfigError(
            f"{key} of the draft's {made.fields.where} is not the target's",
            expected=str(expected),
            found=str(found),
            repair="check that this draft was trained for this target",
        )
    return found


def _draft_vocabulary(made: Decisions, vocab_size: int) -> int:
    measured = axis_size(made.shapes, HEAD, 0) or axis_size(made.shapes, "d2t", 0)
    size = made.size("draft_vocab_size", "draft_vocab_size", measured, vocab_size)
    if size > vocab_size:
        raise ConfigError(
            f"draft_vocab_size of {made.fields.where} is larger than the target's vocabulary",
            expected=f"at most {vocab_size}",
            found=str(size),
            repair="check that this draft was trained for this target",
        )
    return size


def _shared(
    made: Decisions, table: tuple[int, int], target_hidden_size: int, options: DraftOptions
) -> tuple[bool, bool]:
    """Whether the draft has an embedding table, of the shape `table`, and a head of its own."""
    shapes, hidden_size = made.shapes, table[1]
    same_width = hidden_size == target_hidden_size
    by_weights = "weights" if shapes else "default"
    own_embedding = EMBEDDING in shapes if shapes else not same_width
    made.by("own_embedding", by_weights if options.embed_tokens == "auto" else "override")
    if options.embed_tokens != "auto":
        own_embedding = options.embed_tokens == "draft"
    if not own_embedding and not same_width:
        raise ConfigError(
            "the draft is not as wide as the target and has no embed_tokens.weight of its own",
            expected=f"embed_tokens.weight {list(table)}",
            repair="export the draft again with its embedding table",
        )
    own_head = HEAD in shapes or not shapes
    made.by("own_head", by_weights)
    tied = made.fields.top.flag("tie_word_embeddings", False)
    if tied and own_head and shapes:
        made.notes.append(
            f"tie_word_embeddings of {made.fields.where} is true and the draft has a head of its own; the head is taken"
        )
    if not own_head and (not same_width or (tied and own_embedding)):
        raise ConfigError(
            "the draft has no lm_head.weight, and the target's cannot stand for it",
            expected="lm_head.weight, or a draft as wide as its target that shares its embedding",
            found=f"a width of {hidden_size} for {target_hidden_size}" if not same_width else "an embedding of its own",
            repair="export the draft again with its lm_head",
        )
    if not own_head:
        made.notes.append("the draft has no lm_head.weight and takes the target's head for its vocabulary")
    return own_embedding, own_head


def _features(
    made: Decisions, hidden_size: int, target: TargetFacts, options: DraftOptions
) -> tuple[bool, AuxLayers | None]:
    """Whether the draft reads auxiliary states through fc, and which; else it reads the final normed state."""
    fields = made.fields
    made.by("features", "config" if fields.has("use_aux_hidden_state") else "default")
    for name in ("num_aux", "aux_layers", "aux_semantic"):
        made.by(name, made.sources["features"])
    if not fields.flag("use_aux_hidden_state", True):
        draft_parts.refuse_norm_of_final(fields)
        if hidden_size != target.hidden_size:
            raise ConfigError(
                "the draft reads the target's final state as it is and is not as wide as the target",
                expected=str(target.hidden_size),
                found=str(hidden_size),
                repair="check that this draft was trained for this target",
            )
        return False, None
    width = axis_size(made.shapes, "fc.weight", 1)
    whole = width is not None and width % target.hidden_size == 0
    measured = width // target.hidden_size if width is not None and whole else None
    holder = fields.holder("num_aux_hidden_states")
    said = holder.integer("num_aux_hidden_states") if holder.has("num_aux_hidden_states") else None
    if measured is not None and said not in (None, measured):
        made.notes.append(
            f"num_aux_hidden_states of {fields.where} is {said}, the draft's weights have {measured}; "
            "the weights are taken"
        )
    measured = said if measured is None else measured
    aux = read_aux_layers(fields, target.num_layers, measured, options)
    made.by("aux_layers", aux.source)
    made.by("aux_semantic", aux.semantic_source)
    made.by("num_aux", "weights" if whole else aux.source)
    made.notes.extend([aux.note] if aux.note else [])
    return True, aux
