"""The manifest's numbers against one another: limits, buckets, blocks, layers, and what the models' configs say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from runtime.bundle.errors import Eagle3Error, IntegrityError
from runtime.bundle.manifest import MOST_TOKENS, KVGroup, Manifest, Model

REPAIR = "rebuild the bundle with eagle3-build"


def problem(what: str, expected: object, found: object) -> Eagle3Error:
    """A contradiction in a manifest."""
    return IntegrityError(what, expected=str(expected), found=str(found), repair=REPAIR)


def size_problems(manifest: Manifest) -> Iterator[Eagle3Error]:
    """Every number that another one rules out."""
    yield from _bucket_problems(manifest)
    yield from _pool_problems(manifest)
    yield from _host_problems(manifest)
    target, draft = manifest.kv_cache.groups
    yield from _model_problems("target", manifest.target, target, manifest.requires.ranks)
    yield from _model_problems("draft", manifest.draft, draft, manifest.requires.ranks)
    if manifest.draft.vocab_size != manifest.target.vocab_size:
        # Its head may have a smaller one, but it reads the target's tokens
        yield problem("draft.vocab_size is not the target's", manifest.target.vocab_size, manifest.draft.vocab_size)
    aux = manifest.speculation.aux_layers
    if aux and aux[-1] > target.layers:
        yield problem("speculation.aux_layers names a layer that the target lacks", f"at most {target.layers}", aux[-1])
    stated = manifest.draft.config.get("aux_layers", list(aux))
    if stated != list(aux):
        yield problem("speculation.aux_layers is not what draft.config says", stated, list(aux))


def _bucket_problems(manifest: Manifest) -> Iterator[Eagle3Error]:
    buckets, limits, block = manifest.buckets, manifest.limits, manifest.kv_cache.block_size
    if broken := [size for size in buckets.context_tokens if size % block]:
        yield problem("buckets.context_tokens are not whole blocks", f"multiples of block_size {block}", broken[0])
    if buckets.context_tokens[-1] != limits.max_model_len:
        yield problem(
            "buckets.context_tokens do not end at max_model_len", limits.max_model_len, buckets.context_tokens[-1]
        )
    if buckets.num_seqs[-1] != limits.max_num_seqs:
        yield problem("buckets.num_seqs do not end at max_num_seqs", limits.max_num_seqs, buckets.num_seqs[-1])
    exact = manifest.exactness
    if len(set(exact.bitwise_across)) != len(exact.bitwise_across):
        yield problem("exactness.bitwise_across names an axis twice", "each once", ", ".join(exact.bitwise_across))
    widths = exact.context_widths
    if broken := [width for width in widths if width % block]:
        yield problem("exactness.context_widths are not whole blocks", f"multiples of block_size {block}", broken[0])
    if widths and max(widths) < limits.max_model_len:
        yield problem("exactness.context_widths end too early", f"at least {limits.max_model_len}", max(widths))


def _pool_problems(manifest: Manifest) -> Iterator[Eagle3Error]:
    cache = manifest.kv_cache
    least = 1 + -(-manifest.limits.max_model_len // cache.block_size)
    if cache.num_blocks < least:
        yield problem("kv_cache.num_blocks is too few for one request", f"at least {least}", cache.num_blocks)
    if cache.num_blocks * cache.block_size > MOST_TOKENS:
        slots = cache.num_blocks * cache.block_size
        yield problem("kv_cache has more slots than an int32 can number", f"at most {MOST_TOKENS}", slots)
    layer = 0
    for role, group in zip(("target", "draft"), cache.groups, strict=True):
        if (group.role, group.first_layer) != (role, layer):
            found = f"{group.role} from layer {group.first_layer}"
            yield problem("kv_cache.groups are out of order", f"{role} from layer {layer}", found)
        if group.dtype != manifest.dtype:
            yield problem(f"kv_cache has another dtype for the {role}", manifest.dtype, group.dtype)
        layer += group.layers


def _host_problems(manifest: Manifest) -> Iterator[Eagle3Error]:
    requires = manifest.requires
    if requires.backend != "aoti":
        return
    for field, expected, found in (
        ("device", "cpu", requires.device),
        ("ranks", 1, requires.ranks),
        ("lnc", 0, requires.lnc),
        # A process that has not asked for tiles dies of the first instruction that wants them
        ("amx", "amx_tile" in requires.cpu_features, requires.amx),
    ):
        if expected != found:
            yield problem(f"requires.{field} is not that of compiled CPU code", expected, found)


def _model_problems(role: str, model: Model, group: KVGroup, ranks: int) -> Iterator[Eagle3Error]:
    config: Mapping[str, Any] = model.config
    said: dict[str, tuple[str, object]] = {
        "vocab_size": (f"{role}.vocab_size", model.vocab_size),
        "hidden_size": (f"{role}.hidden_size", model.hidden_size),
        "num_layers": (f"kv_cache.groups of the {role}, layers", group.layers),
        "head_dim": (f"kv_cache.groups of the {role}, head_dim", group.head_dim),
    }
    if role == "target":
        said["eos_token_ids"] = (f"{role}.eos_token_ids", list(model.eos_token_ids))
    for key, (field, found) in said.items():
        if key in config and config[key] != found:
            yield problem(f"{field} is not what {role}.config says of {key}", config[key], found)
    heads = config.get("num_kv_heads")
    if isinstance(heads, int) and group.kv_heads != -(-heads // ranks):
        found = f"{group.kv_heads} for one of {ranks} ranks"
        yield problem(f"kv_cache.groups of the {role} have other kv_heads than {role}.config", heads, found)
    if any(token >= model.vocab_size for token in model.eos_token_ids):
        yield problem(
            f"{role}.eos_token_ids has an id beyond the vocabulary", f"below {model.vocab_size}", model.eos_token_ids
        )
