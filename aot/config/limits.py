"""Rules between keys, and between the keys and the model.

Every graph has a static shape, so a bucket list that leaves a gap is not slow but impossible: a request that
no bucket holds could not run at all. The rules here make sure, before anything is compiled, that

- every number of requests up to max_num_seqs, and every context up to max_model_len, has a bucket;
- the largest verify pass, max_num_seqs * (1 + K) rows, fits the token budget of one pass, which is the
  largest prefill bucket (vLLM's max_num_batched_tokens; vllm#50708 shows what a budget that is too small
  looks like there);
- buckets are whole blocks of the KV cache, and the pool holds at least one request of full length.
"""

from __future__ import annotations

from itertools import pairwise

from aot.backends.neuron.flags import check_extra
from aot.config.defaults import MOST_TOKENS, least_context, verify_rows
from aot.config.fields import BuildConfig, NeuronBackend
from aot.config.problems import Problem, show
from runtime.bundle.errors import ConfigError, UsageError
from runtime.bundle.schedule import KEY


def cross_problems(config: BuildConfig) -> list[Problem]:
    """Every rule between keys that `config` breaks."""
    return [
        *_models(config),
        *_sharding(config),
        *_compiler_args(config),
        *_lengths(config),
        *_num_seqs(config),
        *_prefill_tokens(config),
        *_context_tokens(config),
        *_pool(config),
        *_schedule(config),
    ]


def check_against_model(config: BuildConfig, *, model_max_len: int | None, key: str = "model") -> list[ConfigError]:
    """The rules between `config` and the target model.

    Args:
        model_max_len: the model's max_position_embeddings, in tokens; None where its config does not say.
        key: the YAML key that named the model (`model` or `model_config`).
    """
    if model_max_len is None or config.max_model_len <= model_max_len:
        return []
    whole_blocks = model_max_len // config.block_size * config.block_size
    return [
        ConfigError(
            f"max_model_len is larger than max_position_embeddings of {key}",
            expected=f"at most {model_max_len}",
            found=str(config.max_model_len),
            repair=f"set max_model_len: {whole_blocks}" if whole_blocks else "lower max_model_len and block_size",
        )
    ]


def _models(config: BuildConfig) -> list[Problem]:
    target, draft = config.target_config_path, config.draft_config_path
    problems = []
    if config.model is None and target is None:
        problems.append(_unnamed("model", "model_config", "ORG/TARGET"))
    if config.speculative_config.model is None and draft is None:
        problems.append(_unnamed("speculative_config.model", "draft_config", "ORG/DRAFT"))
    if config.random_weights and (target is None or draft is None):
        problems.append(
            Problem(
                ("random_weights", "model_config", "draft_config"),
                "random_weights is given without both configurations",
                expected="model_config and draft_config beside it",
                repair="add model_config and draft_config, or remove random_weights",
            )
        )
    return problems


def _unnamed(key: str, instead: str, example: str) -> Problem:
    return Problem(
        (key, instead),
        f"{key} is missing",
        expected=f"{key} or {instead}",
        repair=f"add {key}: and a hub id ({example}), a folder or a file",
    )


def _compiler_args(config: BuildConfig) -> list[Problem]:
    if not isinstance(config.backend, NeuronBackend):
        return []
    try:
        check_extra(config.backend.compiler_args)
    except ConfigError as error:
        found = f"{error.found} in backend.compiler_args"
        return [Problem(("backend.compiler_args",), error.what, error.expected, found, error.repair)]
    return []


def _sharding(config: BuildConfig) -> list[Problem]:
    if config.backend.name == "neuron" or config.tensor_parallel_size == 1:
        return []
    return [
        Problem(
            ("tensor_parallel_size", "backend.name"),
            "tensor_parallel_size is larger than the aoti backend supports",
            expected="1, because only the neuron backend shards a model",
            found=str(config.tensor_parallel_size),
            repair="set tensor_parallel_size: 1, or backend.name: neuron",
        )
    ]


def _lengths(config: BuildConfig) -> list[Problem]:
    length, block = config.max_model_len, config.block_size
    least = _round_up(least_context(config.num_speculative_tokens), block)
    mended = max(least, _round_up(length, block))
    problems = []
    if length % block:
        problems.append(
            Problem(
                ("max_model_len", "block_size"),
                "max_model_len is not a multiple of block_size",
                expected=f"a multiple of {block}",
                found=str(length),
                repair=f"set max_model_len: {mended}",
            )
        )
    if length < least_context(config.num_speculative_tokens):
        problems.append(
            Problem(
                ("max_model_len", "speculative_config.num_speculative_tokens"),
                "max_model_len is too small for speculative_config.num_speculative_tokens",
                expected=f"at least {least}, a prompt token and 1 + {config.num_speculative_tokens} "
                "verify rows in whole blocks",
                found=str(length),
                repair=f"set max_model_len: {mended}, or lower speculative_config.num_speculative_tokens",
            )
        )
    return problems


def _num_seqs(config: BuildConfig) -> list[Problem]:
    key, values, last = "buckets.num_seqs", config.buckets.num_seqs, config.max_num_seqs
    repair = f"set {key}: {show(sorted({v for v in values if v < last} | {last}))}"
    return _out_of_order(key, values, repair) or _uncovered(key, values, "max_num_seqs", last, repair)


def _prefill_tokens(config: BuildConfig) -> list[Problem]:
    key, values = "buckets.prefill_tokens", config.buckets.prefill_tokens
    rows = verify_rows(config.max_num_seqs, config.num_speculative_tokens)
    # A prompt chunk is never longer than max_model_len, so a larger bucket would be padding; but many short
    # requests may need a larger budget for their verify pass.
    most = max(config.max_model_len, rows)
    largest = max(values)
    mended = {min(v, most) for v in values} | ({rows} if largest < rows else set())
    repair = f"set {key}: {show(sorted(mended))}"
    problems = _out_of_order(key, values, repair)
    if largest > most:
        problems.append(
            Problem(
                (key, "max_model_len"),
                f"{key} has a bucket larger than max_model_len",
                expected=f"at most {most}",
                found=str(largest),
                repair=repair,
            )
        )
    if largest < rows:
        fits = largest // (1 + config.num_speculative_tokens)
        problems.append(
            Problem(
                (key, "max_num_seqs", "speculative_config.num_speculative_tokens"),
                f"{key} is too small for max_num_seqs * (1 + speculative_config.num_speculative_tokens)",
                expected=f"a largest bucket of at least {rows} = {config.max_num_seqs} * "
                f"(1 + {config.num_speculative_tokens})",
                found=str(largest),
                repair=repair + (f", or lower max_num_seqs to {fits}" if fits else ""),
            )
        )
    return problems


def _context_tokens(config: BuildConfig) -> list[Problem]:
    key, values, last = "buckets.context_tokens", config.buckets.context_tokens, config.max_model_len
    block, least = config.block_size, least_context(config.num_speculative_tokens)
    if last % block or last < least:
        # max_model_len itself is wrong and reported; what a right list would be hangs on its repair.
        return _out_of_order(key, values, f"set {key}: {show(sorted(set(values)))}")
    rounded = {_round_up(max(v, least), block) for v in values}
    repair = f"set {key}: {show(sorted({v for v in rounded if v < last} | {last}))}"
    problems = _out_of_order(key, values, repair)
    if broken := [v for v in values if v % block]:
        problems.append(
            Problem(
                (key, "block_size"),
                f"{key} has buckets that are not multiples of block_size",
                expected=f"multiples of {block}",
                found=", ".join(map(str, broken)),
                repair=repair,
            )
        )
    if min(values) < least:
        problems.append(
            Problem(
                (key, "speculative_config.num_speculative_tokens"),
                f"{key} is too small for speculative_config.num_speculative_tokens",
                expected=f"a smallest bucket of at least {least}, a prompt token and "
                f"1 + {config.num_speculative_tokens} verify rows",
                found=str(min(values)),
                repair=repair,
            )
        )
    return problems or _uncovered(key, values, "max_model_len", last, repair)


def _pool(config: BuildConfig) -> list[Problem]:
    least = 1 + config.blocks_per_seq
    most = MOST_TOKENS // config.block_size
    if config.kv_blocks is not None and config.kv_blocks < least:
        return [
            Problem(
                ("kv_blocks", "max_model_len", "block_size"),
                "kv_blocks is too small for one request of max_model_len tokens",
                expected=f"at least {least}, the null block included",
                found=str(config.kv_blocks),
                repair=f"set kv_blocks: {least}, or remove it",
            )
        ]
    if config.num_kv_blocks > most:
        key = "max_num_seqs" if config.kv_blocks is None else "kv_blocks"
        return [
            Problem(
                (key, "max_model_len", "block_size"),
                "the KV pool has more slots than an int32 can number",
                expected=f"at most {most} blocks of {config.block_size} tokens",
                found=f"{config.num_kv_blocks} blocks",
                repair="lower kv_blocks, max_num_seqs or max_model_len",
            )
        ]
    return []


def _schedule(config: BuildConfig) -> list[Problem]:
    key, k_key = f"speculative_config.{KEY}", "speculative_config.num_speculative_tokens"
    try:
        schedule = config.schedule
    except UsageError as error:
        return [Problem((key, k_key), f"speculative_config.{error.what}", error.expected, error.found, error.repair)]
    if schedule is None or not config.draft_fused:
        return []
    return [
        Problem(
            (key, "draft_fused"),
            f"{key} is given with draft_fused",
            expected="a draft of separate passes, because the fused graph always makes num_speculative_tokens drafts",
            found="draft_fused: true",
            repair=f"remove {key}, or set draft_fused: false",
        )
    ]


def _out_of_order(key: str, values: tuple[int, ...], repair: str) -> list[Problem]:
    if all(low < high for low, high in pairwise(values)):
        return []
    return [
        Problem(
            (key,),
            f"{key} is out of order",
            expected="strictly ascending values",
            found=show(values),
            repair=repair,
        )
    ]


def _uncovered(key: str, values: tuple[int, ...], limit: str, last: int, repair: str) -> list[Problem]:
    if values[-1] == last:
        return []
    return [
        Problem(
            (key, limit),
            f"{key} does not end at {limit}",
            expected=f"{last} as its last value",
            found=show(values),
            repair=repair,
        )
    ]


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
