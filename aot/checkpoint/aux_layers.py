"""Which of the target's hidden states the draft eats: the one field that most often goes wrong.

Auxiliary layers are positions in the target's residual stream: position k is the stream that enters layer k,
position 0 the embeddings, position N what leaves the last layer before the final norm. Published ids mean
either that (`input_of`: SafeAILab, vLLM, speculators; lists that begin with 2) or the output of layer k, which
is position k + 1 (`output_of`: SpecForge, ModelOpt; lists that begin with 1). Reading them one layer off costs
nearly all acceptance and shows nowhere else, so a meaning that is taken rather than stated is announced, and
what could mean both is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

from aot.checkpoint.draft_format import DraftFields
from aot.checkpoint.draft_options import DraftOptions, Semantic
from aot.checkpoint.draft_variants import AUX_IDS, ID_KEYS
from runtime.bundle.errors import ConfigError

# How many states the default list names.
DEFAULT_STATES = 3


@dataclass(frozen=True)
class AuxLayers:
    """The auxiliary states' positions, how they were found, and what a user should be told of it.

    Attributes:
        positions: residual-stream positions, ascending; empty where the default hangs on a target that is not known.
        states: how many there are.
        semantic: how the ids that were given were read: input_of or output_of.
        source, semantic_source: who decided both: override, config or default.
        note: a sentence about a guess, without a full stop; "" where there was none.
    """

    positions: tuple[int, ...]
    states: int
    semantic: Semantic
    source: str
    semantic_source: str
    note: str


def read_aux_layers(
    fields: DraftFields, num_layers: int | None, num_states: int | None, options: DraftOptions
) -> AuxLayers:
    """The auxiliary layers of a draft.

    Our own key `aux_layers` of config.json states positions plainly. Other ids are read by `options.aux_semantic`;
    under auto, lists that begin with 2 are inputs, those that begin with 1 are outputs, a list that names N,
    the target's layers, can only be inputs, and so are a speculators file's that begin with neither. Without any ids
    they are (2, N // 2, N - 3), as in SafeAILab's and vLLM's code.

    Args:
        num_layers: N, the target's layers; None where the target is not known.
        num_states: how many auxiliary states the draft's weights take; None where no weights are at hand.

    Raises:
        ConfigError: the ids are ambiguous, are not as many as the weights take, or are not different ascending
            positions from 0 to N (the default is not for N of 6 or less); or there are none and the options
            require them, or the default's three are not what the weights take.
    """
    found, source, semantic, semantic_source, note = _named(fields, num_layers, options)
    if found is None:
        return _default(fields, num_layers, num_states, options)
    positions = tuple(layer + (semantic == "output_of") for layer in found)
    _check(positions, num_layers, "the auxiliary layers of " + ("the YAML" if source == "override" else fields.where))
    if num_states is not None and len(positions) != num_states:
        raise ConfigError(
            f"fc.weight of the draft takes {num_states} auxiliary states, and {len(positions)} are named",
            expected=f"{num_states} auxiliary layers",
            found=str(list(found)),
            repair="state the layers that the draft was trained on as speculative_config.aux_layers",
        )
    return AuxLayers(positions, len(positions), semantic, source, semantic_source, note)


def _named(
    fields: DraftFields, num_layers: int | None, options: DraftOptions
) -> tuple[tuple[int, ...] | None, str, Semantic, str, str]:
    """The ids as they are given (None: nowhere), who gave them, their meaning, who decided it, and a note."""
    if options.aux_layers is not None:
        ids, source, where = options.aux_layers, "override", "the YAML"
    elif fields.top.has("aux_layers"):
        return fields.top.integers("aux_layers"), "config", "input_of", "config", ""
    else:
        published = _published(fields)
        if published is None:
            return None, "default", "input_of", "default", ""
        ids, where = published
        source = "config"
    if not ids or list(ids) != sorted(set(ids)):
        raise _misfit(ids, num_layers, f"the auxiliary layer ids of {where}")
    if options.aux_semantic != "auto":
        return ids, source, options.aux_semantic, "override", ""
    if num_layers in ids or ids[:1] == (2,):
        return ids, source, "input_of", "default", ""
    if ids[:1] == (1,):
        note = (
            f"the auxiliary layer ids {list(ids)} of {where} begin with 1 and are taken for layers whose outputs the "
            "draft eats (SpecForge, ModelOpt); speculative_config.aux_semantic states it"
        )
        return ids, source, "output_of", "default", note
    if fields.form == "speculators" and source == "config":
        note = (
            f"the auxiliary layer ids {list(ids)} of {where} are taken for layers whose inputs the draft eats, as in "
            "speculators; speculative_config.aux_semantic states it"
        )
        return ids, source, "input_of", "default", note
    raise ConfigError(
        f"the auxiliary layer ids of {where} can mean the inputs or the outputs of those layers",
        found=str(list(ids)),
        repair=(
            "set speculative_config.aux_semantic: output_of if the draft's trainer is SpecForge or ModelOpt, else "
            "input_of; eagle3-build --probe-aux tries which fits"
        ),
    )


def _published(fields: DraftFields) -> tuple[tuple[int, ...], str] | None:
    """The ids of the config.json and where they stand; None where it has none.

    Raises:
        ConfigError: they stand at several places or under several names, and differ.
    """
    found = [
        (place.integers(key), f"{key} of {place.where}")
        for key in ID_KEYS
        for place in (fields.top, fields.eagle)
        if place.has(key)
    ]
    for ids, where in found[1:]:
        if ids != found[0][0]:
            raise ConfigError(
                f"the auxiliary layer ids stand in {fields.where} twice, with different values",
                found=f"{list(found[0][0])} as {found[0][1]}, {list(ids)} as {where}",
                repair="remove the wrong ones, or state the right ones as speculative_config.aux_layers",
            )
    return (found[0][0], fields.where) if found else None


def _default(fields: DraftFields, num_layers: int | None, num_states: int | None, options: DraftOptions) -> AuxLayers:
    positions = () if num_layers is None else (2, num_layers // 2, num_layers - 3)
    listed = ", ".join(map(str, positions)) or "2, N // 2 and N - 3 of the target's N"
    if options.require_aux_layers:
        raise ConfigError(
            f"{fields.where} names no auxiliary layers, and speculative_config.require_aux_layers wants them named",
            repair=f"state them as speculative_config.aux_layers; the default would be {listed}",
        )
    if num_states not in (None, DEFAULT_STATES):
        raise ConfigError(
            f"fc.weight of the draft takes {num_states} auxiliary states, and {fields.where} names no layers",
            expected=f"{num_states} ids under {AUX_IDS}",
            found="none; the default list has three",
            repair="state the layers that the draft was trained on as speculative_config.aux_layers",
        )
    if num_layers is not None:
        _check(positions, num_layers, "the default auxiliary layers")
    note = f"the draft's config names no auxiliary layers; taken by default: inputs of layers {listed}"
    return AuxLayers(positions, DEFAULT_STATES, "input_of", "default", "default", note)


def _check(positions: tuple[int, ...], num_layers: int | None, whose: str) -> None:
    outside = num_layers is not None and positions[-1:] > (num_layers,)
    if not positions or outside or list(positions) != sorted(set(positions)) or positions[0] < 0:
        raise _misfit(positions, num_layers, whose)


def _misfit(found: tuple[int, ...], num_layers: int | None, whose: str) -> ConfigError:
    layers = "N" if num_layers is None else num_layers
    return ConfigError(
        f"{whose} do not fit a target of {layers} layers",
        expected=f"different ascending positions from 0 to {layers}",
        found=str(list(found)),
        repair="state them as speculative_config.aux_layers, such as [2, 4, 6] with aux_semantic: input_of",
    )
