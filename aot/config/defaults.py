"""Defaults that follow from other values, filled in before the types are checked.

Bucket lists are optional in the YAML, but nothing downstream should have to know that: a `BuildConfig` always
holds the lists that will be compiled. Where a value that a default follows from is itself wrong, its own
default stands in for it; the wrong value is reported anyway, and the derived lists add no second report.
"""

from __future__ import annotations

from collections.abc import Mapping

MAX_MODEL_LEN = 2048
MAX_NUM_SEQS = 4
BLOCK_SIZE = 16
# Prompts are cut into chunks of the largest prefill bucket: 128 rows already keep the matrix units busy, and
# a larger bucket makes short prompts pay for padding.
PREFILL_TOKENS = 128
# Far above what any host holds; they keep row counts and slots within an int32.
MOST_NUM_SEQS = 2**16
MOST_SPECULATIVE_TOKENS = 2**10
MOST_TOKENS = 2**31 - 1
# A second, smaller context bucket keeps short conversations from attending over the whole table.
CONTEXT_TOKENS = 512


def verify_rows(max_num_seqs: int, num_speculative_tokens: int) -> int:
    """Rows of the largest verify pass: each request brings its last token and K draft tokens."""
    return max_num_seqs * (1 + num_speculative_tokens)


def least_context(num_speculative_tokens: int) -> int:
    """The shortest context that one verify pass with K draft tokens can fill.

    One prompt token, the token that prefill gave, and K drafts.
    """
    return num_speculative_tokens + 2


def default_prefill_tokens(max_model_len: int, rows: int) -> list[int]:
    """One bucket of 128 tokens: less where no prompt is that long, more where a verify pass is larger."""
    return [max(rows, min(PREFILL_TOKENS, max_model_len))]


def default_num_seqs(max_num_seqs: int) -> list[int]:
    """One request alone, and all of them."""
    return sorted({1, max_num_seqs})


def default_context_tokens(max_model_len: int, block_size: int, least: int) -> list[int]:
    """A bucket of about 512 tokens (whole blocks, at least `least`) and the whole of max_model_len."""
    short = CONTEXT_TOKENS // block_size * block_size
    return [short, max_model_len] if least <= short < max_model_len else [max_model_len]


def with_defaults(raw: Mapping[str, object]) -> dict[str, object]:
    """A copy of `raw` (the YAML's mapping, under the YAML's key names) with the derived values filled in."""
    filled = dict(raw)
    backend = filled.get("backend")
    if isinstance(backend, Mapping):
        filled["backend"] = {"name": "aoti", **backend}
    buckets = filled.get("buckets", {})
    if isinstance(buckets, Mapping):
        filled["buckets"] = {**_derived_buckets(raw), **buckets}
    return filled


def _derived_buckets(raw: Mapping[str, object]) -> dict[str, object]:
    max_model_len = _valid(raw.get("max_model_len"), MAX_MODEL_LEN, MOST_TOKENS)
    max_num_seqs = _valid(raw.get("max_num_seqs"), MAX_NUM_SEQS, MOST_NUM_SEQS)
    block_size = _valid(raw.get("block_size"), BLOCK_SIZE, MOST_TOKENS)
    num_speculative_tokens = _valid(_speculative_tokens(raw.get("speculative_config")), 1, MOST_SPECULATIVE_TOKENS)
    return {
        "prefill_tokens": default_prefill_tokens(max_model_len, verify_rows(max_num_seqs, num_speculative_tokens)),
        "num_seqs": default_num_seqs(max_num_seqs),
        "context_tokens": default_context_tokens(max_model_len, block_size, least_context(num_speculative_tokens)),
    }


def _speculative_tokens(speculative_config: object) -> object:
    if isinstance(speculative_config, Mapping):
        return speculative_config.get("num_speculative_tokens")
    return getattr(speculative_config, "num_speculative_tokens", None)


def _valid(value: object, fallback: int, most: int) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most:
        return value
    return fallback
