"""Which of the target's hidden states the draft eats: the one field that most often goes wrong.

Auxiliary layers are positions in the target's residual stream: position k is the stream that enters layer k,
position 0 the embeddings, position N what leaves the last layer before the final norm. Published ids mean
either that (SafeAILab, vLLM, speculators; lists that begin with 2) or "the output of layer k" (SpecForge,
ModelOpt; lists that begin with 1). Reading them one layer off costs nearly all acceptance and shows nowhere
else, so what could mean both is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from aot.checkpoint.draft_variants import AUX_IDS
from aot.checkpoint.fields import Fields
from runtime.bundle.errors import ConfigError


def read_aux_layers(config: Fields, num_layers: int, override: Sequence[int] | None) -> tuple[tuple[int, ...], str]:
    """The auxiliary states' residual-stream positions, and who decided them: override, config or default.

    Our own key `aux_layers` states positions plainly. Published ids are read as positions, the meaning of
    vLLM and of the AWS design. Without any, they are (2, N // 2, N - 3), as in SafeAILab's and vLLM's code.

    Args:
        config: the draft's config.json.
        num_layers: N, the target's layers.
        override: positions that come before everything in the config.

    Raises:
        ConfigError: the ids are ambiguous, or are not different ascending positions from 0 to N (the default
            is not for N of 6 or less).
    """
    eagle, by = config.mapping("eagle_config"), "config"
    if override is not None:
        aux, by = tuple(override), "override"
    elif config.has("aux_layers"):
        aux = config.integers("aux_layers")
    elif config.has(AUX_IDS) or eagle.has(AUX_IDS):
        aux = (config if config.has(AUX_IDS) else eagle).integers(AUX_IDS)
        _refuse_ambiguous(aux, config.where)
    else:
        aux, by = (2, num_layers // 2, num_layers - 3), "default"
    if not aux or any(not 0 <= layer <= num_layers for layer in aux) or list(aux) != sorted(set(aux)):
        whose = "the default auxiliary layers" if by == "default" else f"the auxiliary layers of {config.where}"
        raise ConfigError(
            f"{whose} do not fit a target of {num_layers} layers",
            expected=f"different ascending positions from 0 to {num_layers}",
            found=str(list(aux)),
            repair='state them in the draft\'s config.json, such as "aux_layers": [0, 1, 2]',
        )
    return aux, by


def _refuse_ambiguous(ids: tuple[int, ...], where: str) -> None:
    if ids[:1] == (1,):
        raise ConfigError(
            f"{AUX_IDS} of {where} begins with 1, which can mean a layer's input or output",
            found=str(list(ids)),
            repair=(
                f'add "aux_layers": {[layer + 1 for layer in ids]} if the ids mean outputs (SpecForge), '
                f'or "aux_layers": {list(ids)} if they mean inputs (vLLM)'
            ),
        )
