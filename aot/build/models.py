"""The two models of a build: found, read, checked against the configuration, and loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aot.build.plan import Models
from aot.checkpoint.draft import (
    DraftConfig,
    DraftOptions,
    draft_config_from_json,
    load_draft_weights,
    read_draft_config,
)
from aot.checkpoint.endings import NOTHING_ENDS
from aot.checkpoint.random_weights import random_draft_weights, random_target_weights
from aot.checkpoint.source import NotFetchedError, resolve
from aot.checkpoint.target import (
    TargetConfig,
    load_target_weights,
    read_target_config,
    read_target_headers,
    target_config_from_json,
)
from aot.checkpoint.tensors import cast_note
from aot.config import BuildConfig, Heads, check_against_model, check_heads
from runtime.bundle.errors import ConfigError, Eagle3Error, ErrorGroup, HostError

if TYPE_CHECKING:
    from torch import Tensor


ADD_WEIGHTS = "run the same command where both models are, and the bundle gets their weights"


def read_models(config: BuildConfig, options: DraftOptions | None = None, *, weights: bool = True) -> Models:
    """Both models' configurations, without loading a weight.

    Args:
        options: how the draft is read, by default as the configuration says.
        weights: False to look for no weights where `model_config` and `draft_config` say all that graphs need.

    Raises:
        ConfigError, ErrorGroup: a model is missing or not supported, or does not fit the configuration.
    """
    if config.random_weights is not None:
        return _random_models(config, options or draft_options(config))
    if config.target_config_path is not None or config.draft_config_path is not None:
        return _models_with_configs(config, options or draft_options(config), weights)
    return _models_of_sources(config, options or draft_options(config))


def _models_of_sources(config: BuildConfig, options: DraftOptions) -> Models:
    """Both models from where their weights are."""
    problems: list[Eagle3Error] = []
    sources = []
    for reference, key in (
        (config.model, "model"),
        (config.speculative_config.model, "speculative_config.model"),
    ):
        try:
            sources.append(resolve(reference or "", key=key, base=config.base))
        except ConfigError as error:
            problems.append(error)
    if problems:
        raise problems[0] if len(problems) == 1 else ErrorGroup("Both models are missing", problems)
    target = read_target_config(sources[0])
    _check_length(config, target.max_length)
    headers = read_target_headers(sources[0], target)
    draft = read_draft_config(sources[1], target, options=options)
    _check_heads(config, target, draft)
    notes = (
        *target.notes,
        *headers.notes,
        "" if target.eos_token_ids else NOTHING_ENDS,
        cast_note(headers.floats, config.dtype, what="target"),
        cast_note(frozenset(draft.stored_dtype.split(" and ")) - {""}, config.dtype, what="draft"),
    )
    return Models(sources[0], sources[1], target, draft, notes=tuple(note for note in notes if note))


def _models_with_configs(config: BuildConfig, options: DraftOptions, weights: bool) -> Models:
    """Both models from their config.json files: with weights where they are found, else for graphs alone."""
    if config.target_config_path is None or config.draft_config_path is None or config.backend.name != "neuron":
        raise ConfigError(
            "model_config and draft_config alone describe graphs without weights, which only the neuron backend builds",
            expected="both of them with backend.name neuron, or random_weights: {seed: 0} beside both",
            found="one of them" if config.backend.name == "neuron" else f"backend.name {config.backend.name}",
            repair="give both, add random_weights, or remove them and name model and speculative_config.model",
        )
    target = target_config_from_json(config.target_config_path)
    _check_length(config, target.max_length)
    draft = draft_config_from_json(config.draft_config_path, target, options=options)
    _check_heads(config, target, draft)
    alone = Models(None, None, target, draft, without_weights=True, notes=target.notes)
    if not weights or config.model is None or config.speculative_config.model is None:
        return alone
    try:
        found = _models_of_sources(config, options)
    except (ConfigError, ErrorGroup) as error:
        if not all(isinstance(problem, NotFetchedError) for problem in getattr(error, "problems", [error])):
            raise
        why = " ".join(problem.sentence() for problem in getattr(error, "problems", [error]))
        note = f"graphs alone, from model_config and draft_config: {why.rstrip('.')}; {ADD_WEIGHTS}"
        return replace(alone, notes=(*alone.notes, note))
    for key, given, read in (
        ("model_config", _shapes(target.to_json()), _shapes(found.target.to_json())),
        ("draft_config", _shapes(draft.to_json()), _shapes(found.draft.to_json())),
    ):
        if different := sorted(name for name in given if given[name] != read[name]):
            name = different[0]
            raise ConfigError(
                f"{key} is not the configuration of the model that is named beside it",
                expected=f"{name} {read[name]}",
                found=f"{name} {given[name]}",
                repair=f"remove {key}, or give that model's own config.json",
            )
    return found


# What says where a configuration came from, or is read off the weights alone
_NO_SHAPES = ("eos_token_ids", "bos_token_id", "sources", "form", "stored_dtype", "notes", "own_embedding", "own_head")


def _shapes(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Those facts of a model that decide its graphs."""
    return {name: value for name, value in facts.items() if name not in _NO_SHAPES}


def _random_models(config: BuildConfig, options: DraftOptions) -> Models:
    if config.target_config_path is None or config.draft_config_path is None:
        raise ConfigError(
            "random_weights needs both models' shapes",
            expected="model_config and draft_config",
            found="no such key",
            repair="add both keys, each naming a config.json",
        )
    target = target_config_from_json(config.target_config_path)
    _check_length(config, target.max_length)
    draft = draft_config_from_json(config.draft_config_path, target, options=options)
    _check_heads(config, target, draft)
    return Models(None, None, target, draft, notes=target.notes)


def draft_options(config: BuildConfig) -> DraftOptions:
    """What the configuration says about how the draft is read."""
    speculative = config.speculative_config
    return DraftOptions(
        aux_layers=speculative.aux_layers,
        require_aux_layers=speculative.require_aux_layers,
        aux_semantic=speculative.aux_semantic,
        **speculative.draft_overrides.model_dump(),
    )


def _check_length(config: BuildConfig, model_max_len: int) -> None:
    _refuse(check_against_model(config, model_max_len=model_max_len))


def _check_heads(config: BuildConfig, target: TargetConfig, draft: DraftConfig) -> None:
    heads = {
        "the target": Heads(target.num_heads, target.num_kv_heads),
        "the draft": Heads(draft.num_heads, draft.num_kv_heads),
    }
    _refuse(check_heads(config, heads))


def _refuse(found: Sequence[ConfigError]) -> None:
    problems: list[Eagle3Error] = list(found)
    if problems:
        raise (problems[0] if len(problems) == 1 else ErrorGroup("The configuration does not fit the model", problems))


def load_weights(config: BuildConfig, models: Models) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
    """Both models' weights in the configuration's dtype, under the checkpoints' names.

    Raises:
        ConfigError: a checkpoint cannot be read, or its weights are not finite in that dtype.
        HostError: the weights are larger than the memory that can be had.
    """
    try:
        return _weights(config, models)
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "allocate memory" not in str(error):
            raise
        raise HostError(
            "the models' weights do not fit into this machine's memory",
            expected="room for both models in dtype " + config.dtype,
            found=" ".join(str(error).split())[-200:] or "no more memory",
            repair="build on a larger machine, or correct the sizes in the models' config.json",
        ) from None


def _weights(config: BuildConfig, models: Models) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
    import torch

    dtype: torch.dtype = getattr(torch, config.dtype)
    if models.target_source is None or models.draft_source is None:
        seed = config.random_weights.seed if config.random_weights else 0
        return (
            random_target_weights(models.target, seed, dtype),
            random_draft_weights(models.draft, seed + 1, dtype),
        )
    return (
        load_target_weights(models.target_source, models.target, dtype),
        load_draft_weights(models.draft_source, models.draft, models.target, dtype),
    )
