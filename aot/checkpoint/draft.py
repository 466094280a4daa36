"""The EAGLE3 draft: its config and its weights, whatever its trainer called them.

Published drafts differ in more than names, and a difference that is passed over silently costs acceptance
without any visible error. So there is one schema, `DraftConfig`, with the source of each of its fields; the weights
are the truth where config and weights can disagree; every guess is a sentence in `DraftConfig.notes`; and what our
graphs lack is refused by name (draft_variants.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aot.checkpoint.draft_config import DraftConfig
from aot.checkpoint.draft_fields import facts_of_draft, read_fields
from aot.checkpoint.draft_format import draft_fields
from aot.checkpoint.draft_options import AS_PUBLISHED, DraftOptions, TargetFacts
from aot.checkpoint.draft_tensors import EMBEDDING, canonical_names, check_draft_shapes, draft_shapes
from aot.checkpoint.draft_variants import refuse_unsupported_config, refuse_unsupported_tensors
from aot.checkpoint.fields import Fields, read_json
from aot.checkpoint.headers import read_headers
from aot.checkpoint.source import ModelSource
from aot.checkpoint.target import TargetConfig
from aot.checkpoint.tensors import cast, read_tensors
from aot.checkpoint.vocabulary_map import draft_to_target
from runtime.bundle.errors import ConfigError

if TYPE_CHECKING:
    import torch

# Mean cosine between rows of the draft's embedding table and the target's: that of noise is 0, of a copy 1
LEAST_LIKENESS = 0.1

__all__ = [
    "DraftConfig",
    "DraftOptions",
    "draft_config_from_json",
    "draft_shapes",
    "embedding_note",
    "load_draft_weights",
    "load_map",
    "read_draft_config",
]


def read_draft_config(
    source: ModelSource,
    target: TargetConfig | None,
    *,
    aux_layers: Sequence[int] | None = None,
    options: DraftOptions = AS_PUBLISHED,
) -> DraftConfig:
    """The config of the draft at `source`, checked against its tensors' shapes and against `target`.

    Args:
        target: None for a look at a draft alone; then the default auxiliary layers stay open, and nothing is
            checked against a target.
        aux_layers: residual-stream positions that override what the checkpoint and `options` say.

    Raises:
        ConfigError: it cannot be read, does not fit the target, or is a variant that is not supported yet.
    """
    if source.kind == "gguf":
        raise ConfigError(
            "a draft in GGUF is not supported yet",
            expected="a folder or hub id with config.json and safetensors",
            found=source.name,
            repair="give the original draft checkpoint as speculative_config.model",
        )
    name = source.name
    fields = draft_fields(Fields(read_json(source.path / "config.json"), f"{name}/config.json"))
    refuse_unsupported_config(fields)
    if (source.path / "hf_quant_config.json").is_file():
        raise ConfigError(
            f"{name} is a quantised draft, which is not supported yet",
            expected="no hf_quant_config.json beside the weights",
            repair="give the unquantised checkpoint as speculative_config.model",
        )
    headers = read_headers(source.path)
    shapes = canonical_names(headers.shapes)
    refuse_unsupported_tensors(shapes)
    facts = _facts(target) if target else facts_of_draft(fields, shapes)
    config = read_fields(fields, facts, shapes, _positions(aux_layers, options))
    check_draft_shapes(shapes, config)
    return dataclasses.replace(
        config,
        stored_dtype=" and ".join(sorted(headers.floats)),
        sources={**config.sources, "stored_dtype": "weights"},
        notes=(*config.notes, *headers.notes),
    )


def draft_config_from_json(
    path_or_dict: Path | str | dict[str, Any],
    target: TargetConfig,
    *,
    aux_layers: Sequence[int] | None = None,
    options: DraftOptions = AS_PUBLISHED,
) -> DraftConfig:
    """The config of a draft of which only config.json is at hand (the YAML's `draft_config:`)."""
    if isinstance(path_or_dict, dict):
        config = Fields(path_or_dict, "draft_config")
    else:
        path = Path(path_or_dict)
        config = Fields(read_json(path, repair="correct draft_config; it names the draft's config.json"), path.name)
    fields = draft_fields(config)
    refuse_unsupported_config(fields)
    return read_fields(fields, _facts(target), {}, _positions(aux_layers, options))


def _facts(target: TargetConfig) -> TargetFacts:
    return TargetFacts(target.vocab_size, target.hidden_size, target.num_layers)


def _positions(aux_layers: Sequence[int] | None, options: DraftOptions) -> DraftOptions:
    if aux_layers is None:
        return options
    return dataclasses.replace(options, aux_layers=tuple(aux_layers), aux_semantic="input_of")


def load_draft_weights(
    source: ModelSource, config: DraftConfig, target_config: TargetConfig, dtype: torch.dtype
) -> dict[str, torch.Tensor]:
    """The draft's weights by the names of `draft_shapes`, contiguous, on the CPU, cast to `dtype`.

    Beside them `d2t`, int64 [draft_vocab_size], offsets: draft id i is target id i + d2t[i] (all zero where
    the vocabularies are the same). An embedding table that the draft does not read is left out.

    Raises:
        ConfigError: a tensor is missing, unknown, of the wrong shape or not finite, or the vocabulary map is
            not one.
    """
    found = canonical_names(read_tensors(source.path))
    shapes = {name: tuple(tensor.shape) for name, tensor in found.items()}
    refuse_unsupported_tensors(shapes)
    check_draft_shapes(shapes, config)
    weights = {}
    for name in draft_shapes(config):
        # Some trainers save an embedding table that was filled with NaN to be replaced at load
        hint = "; with speculative_config.draft_overrides.embed_tokens: target it shares the target's"
        weights[name] = cast(name, found[name], dtype, what="draft", hint=hint if name == EMBEDDING else "")
    weights["d2t"] = draft_to_target(
        found.get("d2t"), found.get("t2d"), config.draft_vocab_size, target_config.vocab_size
    )
    return weights


def load_map(source: ModelSource, config: DraftConfig) -> torch.Tensor:
    """The draft's checked vocabulary map alone, as `load_draft_weights` returns it: int64 [draft_vocab_size].

    Raises:
        ConfigError: it is not one.
    """
    found = canonical_names(read_tensors(source.path, only=frozenset({"d2t", "t2d", "model.d2t", "model.t2d"})))
    return draft_to_target(found.get("d2t"), found.get("t2d"), config.draft_vocab_size, config.vocab_size)


def embedding_note(draft: Mapping[str, torch.Tensor], embedding: torch.Tensor) -> str:
    """What a user should be told of the draft's own embedding table, "" for nothing.

    Drafts are trained over the target's embeddings, which a copy in the checkpoint resembles. Some trainers saved a
    fresh one by mistake, and a draft that reads noise is hardly ever accepted.

    Args:
        draft: as `load_draft_weights` returns it.
        embedding: the target's, [V, H].
    """
    own = draft.get(EMBEDDING)
    if own is None or own.shape != embedding.shape:
        return ""
    step = max(1, len(own) // 4096)
    own, theirs = own[::step].float(), embedding[::step].float()
    likeness = float((own * theirs).sum(-1).div((own.norm(dim=-1) * theirs.norm(dim=-1)).clamp(min=1e-12)).mean())
    if likeness > LEAST_LIKENESS:
        return ""
    return (
        f"the draft's own embedding table does not resemble the target's (mean cosine {likeness:.2f}); if few drafts "
        "are accepted, set speculative_config.draft_overrides.embed_tokens: target"
    )
