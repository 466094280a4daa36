"""What holds for every configuration, not only for those in the other tests."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from aot.config import BuildConfig, resolved
from aot.config.explain import known_keys
from aot.config.limits import cross_problems

BACKENDS = st.one_of(
    st.fixed_dictionaries(
        {},
        optional={
            "name": st.just("aoti"),
            "device": st.sampled_from(["cpu", "cuda"]),
            "gemm": st.sampled_from(["auto", "packed", "library"]),
            "cpu_level": st.sampled_from(["auto", "avx2", "avx512", "avx512_bf16", "amx"]),
        },
    ),
    st.fixed_dictionaries(
        {"name": st.just("neuron")},
        optional={"target": st.sampled_from(["trn2", "trn3"]), "lnc": st.sampled_from([1, 2])},
    ),
)


@st.composite
def valid_configurations(draw: st.DrawFn) -> dict[str, object]:
    """YAML mappings that break no rule, with any of the optional keys left out."""
    block_size = draw(st.sampled_from([1, 8, 16, 32]))
    num_speculative_tokens = draw(st.integers(1, 8))
    max_num_seqs = draw(st.integers(1, 16))
    least_blocks = -(-(num_speculative_tokens + 2) // block_size)
    blocks = draw(st.integers(least_blocks, 200))
    max_model_len = blocks * block_size
    rows = max_num_seqs * (1 + num_speculative_tokens)
    prefill = draw(st.sets(st.integers(1, max(rows, max_model_len)), max_size=3)) | {max(rows, max_model_len)}
    num_seqs = draw(st.sets(st.integers(1, max_num_seqs), max_size=3)) | {max_num_seqs}
    context = draw(st.sets(st.integers(least_blocks, blocks), max_size=3)) | {blocks}
    buckets = {
        "prefill_tokens": sorted(prefill),
        "num_seqs": sorted(num_seqs),
        "context_tokens": [count * block_size for count in sorted(context)],
    }
    kept = draw(st.sets(st.sampled_from(sorted(buckets))))
    optional = {
        "dtype": draw(st.sampled_from(["bfloat16", "float16", "float32"])),
        "backend": draw(BACKENDS),
        "exact_greedy": draw(st.booleans()),
        "kv_blocks": draw(st.integers(1 + blocks, 10**6)),
        "additional_config": {
            "neuron_config": {
                "on_device_sampling_config": {"all_greedy": draw(st.sampled_from([True, False, "true", "false"]))}
            }
        },
        "buckets": {key: buckets[key] for key in kept},
    }
    given_keys = draw(st.sets(st.sampled_from(sorted(optional))))
    return {
        "model": "org/target",
        "max_model_len": max_model_len,
        "max_num_seqs": max_num_seqs,
        "block_size": block_size,
        "speculative_config": {"model": "org/draft", "num_speculative_tokens": num_speculative_tokens},
        **{key: optional[key] for key in given_keys},
    }


@settings(deadline=None)
@given(valid_configurations())
def test_a_valid_configuration_round_trips_through_resolved(raw: dict[str, object]) -> None:
    config = BuildConfig.model_validate(raw)
    assert cross_problems(config) == []
    plain = json.loads(json.dumps(resolved(config)))
    again = {
        **plain,
        "name": config.name,
        "model": config.model,
        "speculative_config": {**plain["speculative_config"], "model": config.speculative_config.model},
    }
    restored = BuildConfig.model_validate(again)
    assert resolved(restored) == plain
    # resolved() spells out the size of the pool; everything else comes back as it was.
    assert restored.model_copy(update={"kv_blocks": config.kv_blocks}) == config


@settings(deadline=None)
@given(valid_configurations(), st.sampled_from(["/", "~", "\\"]))
def test_resolved_holds_neither_paths_nor_references(raw: dict[str, object], separator: str) -> None:
    config = BuildConfig.model_validate({**raw, "model_config": "a/t.json", "draft_config": "a/d.json"})
    assert separator not in json.dumps(resolved(config))


SECTIONS = sorted({path.rpartition(".")[0] for path in known_keys()})


@settings(deadline=None)
@given(
    valid_configurations(),
    st.sampled_from(SECTIONS),
    st.from_regex(r"[a-z_]{1,12}", fullmatch=True).filter(lambda key: all(key not in path for path in known_keys())),
)
def test_an_unknown_key_is_refused_wherever_it_stands(raw: dict[str, object], section: str, key: str) -> None:
    values: dict[str, object] = raw
    for part in section.split(".") if section else []:
        inner = values.get(part)
        values[part] = dict(inner) if isinstance(inner, dict) else {}
        values = values[part]  # type: ignore[assignment]
    values[key] = 1
    with pytest.raises(ValidationError) as caught:
        BuildConfig.model_validate(raw)
    assert [error["loc"][-1] for error in caught.value.errors() if error["type"] == "extra_forbidden"] == [key]


def test_a_configuration_cannot_be_changed() -> None:
    config = BuildConfig.model_validate({"speculative_config": {"num_speculative_tokens": 3}})
    parts: list[tuple[BaseModel, str]] = [
        (config, "dtype"),
        (config.buckets, "num_seqs"),
        (config.backend, "name"),
    ]
    for part, key in parts:
        with pytest.raises(ValidationError, match="frozen"):
            setattr(part, key, None)
