"""How many attention heads a draft has, and of what size.

The projections' rows are products: num_heads * head_dim of queries, num_kv_heads * head_dim of keys. So the weights
settle all three numbers once one of them is known, and a config that has one of them wrong contradicts the other two.
The head size that the fewest numbers of the config contradict is taken, with a note on those that do.
"""

from __future__ import annotations

from aot.checkpoint.draft_decisions import Decisions, axis_size
from aot.checkpoint.draft_tensors import K_PROJ, Q_NORM, Q_PROJ
from runtime.bundle.errors import ConfigError

_KEYS = {"num_heads": "num_attention_heads", "num_kv_heads": "num_key_value_heads", "head_dim": "head_dim"}


def heads_of(made: Decisions, hidden_size: int) -> tuple[int, int, int]:
    """(num_heads, num_kv_heads, head_dim).

    Raises:
        ConfigError: a number is missing or wrong, they do not fit together, or no head size that the config names
            or implies fits the weights with one number corrected.
    """
    top = made.fields.top
    said = {name: top.integer(key) for name, key in _KEYS.items() if top.has(key) or name == "num_heads"}
    queries, keys = axis_size(made.shapes, Q_PROJ, 0), axis_size(made.shapes, K_PROJ, 0)
    if not queries or not keys:
        num_heads = said["num_heads"]
        found = (num_heads, said.get("num_kv_heads", num_heads), said.get("head_dim", max(1, hidden_size // num_heads)))
        for name in _KEYS:
            made.by(name, "config" if name in said else "default")
        if num_heads % found[1] or found[2] % 2:
            raise _misfit(made, found, "query heads a multiple of key-value heads, and an even head_dim")
        return found
    fitting = [_with(size, queries, keys) for size in _sizes(made, said, queries, keys)]
    # Of equals the first: by the order of _sizes
    best = min((one for one in fitting if one), key=lambda one: len(_contradicted(said, one)), default=None)
    if best is None or len(_contradicted(said, best)) > 1:
        claimed = tuple(said.get(name) for name in _KEYS)
        raise _misfit(
            made, claimed, f"heads that make {queries} rows of queries and {keys} of keys, as the weights have"
        )
    for name, value in best.items():
        made.by(name, "config" if said.get(name) == value else "weights")
        if name in _contradicted(said, best):
            made.notes.append(
                f"{_KEYS[name]} of {made.fields.where} is {said[name]}, the draft's weights have {value}; "
                "the weights are taken"
            )
    return best["num_heads"], best["num_kv_heads"], best["head_dim"]


def _sizes(made: Decisions, said: dict[str, int], queries: int, keys: int) -> list[int]:
    """The head sizes that may be meant, the likeliest first; a norm over each head is of no other size than its own."""
    if measured := axis_size(made.shapes, Q_NORM, 0):
        return [measured]
    by_heads = [queries // said["num_heads"], said.get("head_dim", 0)]
    return [*by_heads, keys // said["num_kv_heads"]] if "num_kv_heads" in said else by_heads


def _with(head_dim: int, queries: int, keys: int) -> dict[str, int] | None:
    """The three numbers with that head size, None where it fits no weights of that many rows."""
    if head_dim < 1 or head_dim % 2 or queries % head_dim or keys % head_dim or queries % keys:
        return None
    return {"num_heads": queries // head_dim, "num_kv_heads": keys // head_dim, "head_dim": head_dim}


def _contradicted(said: dict[str, int], found: dict[str, int]) -> list[str]:
    return [name for name, value in said.items() if found[name] != value]


def _misfit(made: Decisions, found: tuple[int | None, ...], expected: str) -> ConfigError:
    listed = ", ".join(f"{key} {value}" for key, value in zip(_KEYS.values(), found, strict=True) if value is not None)
    return ConfigError(
        f"the attention heads of {made.fields.where} do not fit together",
        expected=expected,
        found=listed,
        repair="correct the config",
    )
