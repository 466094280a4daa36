"""Over how many ranks two models can be shared.

A query head is never cut, so the ranks must divide the query heads. KV heads are shared out where the ranks divide them
too, and where they divide the ranks each is held by several; any other number would cut one. Vocabularies and MLPs of
any size fit, since they are padded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aot.config.fields import BuildConfig
from aot.config.problems import show
from runtime.bundle.errors import ConfigError


@dataclass(frozen=True)
class Heads:
    """A model's query heads and KV heads."""

    query: int
    kv: int

    def fit(self, ranks: int) -> bool:
        """Whether so many ranks can share them."""
        return self.query % ranks == 0 and (self.kv % ranks == 0 or ranks % self.kv == 0)


def check_heads(config: BuildConfig, models: Mapping[str, Heads]) -> list[ConfigError]:
    """One error for each model whose heads tensor_parallel_size cannot share.

    Args:
        models: what to call a model ("the target"), and its heads. The sizes that an error offers fit all of them.
    """
    ranks = config.tensor_parallel_size
    most = min(heads.query for heads in models.values())
    fitting = [size for size in range(1, most + 1) if all(heads.fit(size) for heads in models.values())]
    nearest = max(size for size in fitting if size <= max(ranks, 1))
    return [
        ConfigError(
            f"tensor_parallel_size does not fit the heads of {name}, {heads.query} for queries and {heads.kv} for keys",
            expected=f"one of {show(fitting)}",
            found=str(ranks),
            repair=f"set tensor_parallel_size: {nearest}",
        )
        for name, heads in models.items()
        if not heads.fit(ranks)
    ]
