"""Rules between keys: each refusal names the keys, the least value that works and the repair."""

from __future__ import annotations

from pathlib import Path

import pytest

from aot.config import BuildConfig, check_against_model, load_config
from aot.config.limits import cross_problems
from runtime.bundle.errors import render

BASE: dict[str, object] = {
    "model": "org/target",
    "speculative_config": {"model": "org/draft", "num_speculative_tokens": 3},
}


def sentences(**keys: object) -> list[str]:
    config = BuildConfig.model_validate({**BASE, **keys})
    return [line for problem in cross_problems(config) for line in render(problem.error())]


def drafting(num_speculative_tokens: int) -> dict[str, object]:
    return {"model": "org/draft", "num_speculative_tokens": num_speculative_tokens}


def test_a_plain_configuration_breaks_no_rule() -> None:
    assert sentences() == []


RULES = [
    (
        {"buckets": {"num_seqs": [4, 1]}},
        "buckets.num_seqs is out of order: expected strictly ascending values, found [4, 1].",
        "set buckets.num_seqs: [1, 4]",
    ),
    (
        {"buckets": {"num_seqs": [1, 1, 4]}},
        "buckets.num_seqs is out of order: expected strictly ascending values, found [1, 1, 4].",
        "set buckets.num_seqs: [1, 4]",
    ),
    (
        {"buckets": {"num_seqs": [1, 2]}},
        "buckets.num_seqs does not end at max_num_seqs: expected 4 as its last value, found [1, 2].",
        "set buckets.num_seqs: [1, 2, 4]",
    ),
    (
        {"buckets": {"num_seqs": [1, 8]}},
        "buckets.num_seqs does not end at max_num_seqs: expected 4 as its last value, found [1, 8].",
        "set buckets.num_seqs: [1, 4]",
    ),
    (
        {"buckets": {"prefill_tokens": [128, 64]}},
        "buckets.prefill_tokens is out of order: expected strictly ascending values, found [128, 64].",
        "set buckets.prefill_tokens: [64, 128]",
    ),
    (
        {"buckets": {"prefill_tokens": [128, 4096]}},
        "buckets.prefill_tokens has a bucket larger than max_model_len: expected at most 2048, found 4096.",
        "set buckets.prefill_tokens: [128, 2048]",
    ),
    (
        # E8 (vllm#50708)
        {"buckets": {"prefill_tokens": [8]}},
        "buckets.prefill_tokens is too small for max_num_seqs * "
        "(1 + speculative_config.num_speculative_tokens): "
        "expected a largest bucket of at least 16 = 4 * (1 + 3), found 8.",
        "set buckets.prefill_tokens: [8, 16], or lower max_num_seqs to 2",
    ),
    (
        {"buckets": {"prefill_tokens": [3]}},
        "buckets.prefill_tokens is too small for max_num_seqs * "
        "(1 + speculative_config.num_speculative_tokens): "
        "expected a largest bucket of at least 16 = 4 * (1 + 3), found 3.",
        "set buckets.prefill_tokens: [3, 16]",
    ),
    (
        {"buckets": {"context_tokens": [2048, 512]}},
        "buckets.context_tokens is out of order: expected strictly ascending values, found [2048, 512].",
        "set buckets.context_tokens: [512, 2048]",
    ),
    (
        {"buckets": {"context_tokens": [500, 2048]}},
        "buckets.context_tokens has buckets that are not multiples of block_size: expected multiples of 16, found 500.",
        "set buckets.context_tokens: [512, 2048]",
    ),
    (
        {"buckets": {"context_tokens": [512, 1024]}},
        "buckets.context_tokens does not end at max_model_len: expected 2048 as its last value, found [512, 1024].",
        "set buckets.context_tokens: [512, 1024, 2048]",
    ),
    (
        {"buckets": {"context_tokens": [16, 2048]}, "speculative_config": drafting(15)},
        "buckets.context_tokens is too small for speculative_config.num_speculative_tokens: "
        "expected a smallest bucket of at least 17, a prompt token and 1 + 15 verify rows, found 16.",
        "set buckets.context_tokens: [32, 2048]",
    ),
    (
        {"max_model_len": 2000, "block_size": 32},
        "max_model_len is not a multiple of block_size: expected a multiple of 32, found 2000.",
        "set max_model_len: 2016",
    ),
    (
        {"max_model_len": 16, "max_num_seqs": 1, "speculative_config": drafting(15)},
        "max_model_len is too small for speculative_config.num_speculative_tokens: "
        "expected at least 32, a prompt token and 1 + 15 verify rows in whole blocks, found 16.",
        "set max_model_len: 32, or lower speculative_config.num_speculative_tokens",
    ),
    (
        {"tensor_parallel_size": 8},
        "tensor_parallel_size is larger than the aoti backend supports: "
        "expected 1, because only the neuron backend shards a model, found 8.",
        "set tensor_parallel_size: 1, or backend.name: neuron",
    ),
    (
        {"kv_blocks": 128},
        "kv_blocks is too small for one request of max_model_len tokens: "
        "expected at least 129, the null block included, found 128.",
        "set kv_blocks: 129, or remove it",
    ),
    (
        {"kv_blocks": 2**27},
        "the KV pool has more slots than an int32 can number: "
        "expected at most 134217727 blocks of 16 tokens, found 134217728 blocks.",
        "lower kv_blocks, max_num_seqs or max_model_len",
    ),
    (
        {"model": None},
        "model is missing: expected model or model_config.",
        "add model: and a hub id (ORG/TARGET), a folder or a file",
    ),
    (
        {"speculative_config": {"num_speculative_tokens": 3}},
        "speculative_config.model is missing: expected speculative_config.model or draft_config.",
        "add speculative_config.model: and a hub id (ORG/DRAFT), a folder or a file",
    ),
    (
        {"speculative_config": {**drafting(3), "num_speculative_tokens_per_batch_size": [[1, 2, 3], [3, 4, 4]]}},
        "speculative_config.num_speculative_tokens_per_batch_size asks for more draft tokens than "
        "num_speculative_tokens: expected a K of at most 3, found [3, 4, 4].",
        "lower that K, or rebuild the bundle with a larger num_speculative_tokens",
    ),
    (
        {"speculative_config": {**drafting(3), "num_speculative_tokens_per_batch_size": [[1, 4]]}},
        "speculative_config.num_speculative_tokens_per_batch_size holds what is no range: "
        "expected [first, last, K], three whole numbers, found [1, 4].",
        "write [first, last, K], as in [1, 4, 3]",
    ),
    (
        {
            "draft_fused": True,
            "speculative_config": {**drafting(3), "num_speculative_tokens_per_batch_size": [[1, 4, 1]]},
        },
        "speculative_config.num_speculative_tokens_per_batch_size is given with draft_fused: expected a draft of "
        "separate passes, because the fused graph always makes num_speculative_tokens drafts, found draft_fused: true.",
        "remove speculative_config.num_speculative_tokens_per_batch_size, or set draft_fused: false",
    ),
    (
        {"random_weights": {"seed": 1}, "model_config": "target.json"},
        "random_weights is given without both configurations: expected model_config and draft_config beside it.",
        "add model_config and draft_config, or remove random_weights",
    ),
]


@pytest.mark.parametrize(("keys", "sentence", "hint"), RULES)
def test_a_broken_rule_is_one_sentence_and_its_repair(keys: dict[str, object], sentence: str, hint: str) -> None:
    assert sentences(**keys) == [f"error: {sentence}", f"hint: {hint}"]


def test_many_short_requests_may_have_a_prefill_bucket_over_max_model_len() -> None:
    assert sentences(max_model_len=64, max_num_seqs=64, buckets={"prefill_tokens": [64, 256]}) == []


def test_the_neuron_backend_shards() -> None:
    assert sentences(tensor_parallel_size=8, backend={"name": "neuron"}) == []


def test_max_model_len_over_the_model_s_names_both_numbers(tmp_path: Path) -> None:
    path = tmp_path / "long.yaml"
    path.write_text("model: a/b\nmax_model_len: 16384\nspeculative_config: {model: c/d, num_speculative_tokens: 3}\n")
    config = load_config(path)
    assert check_against_model(config, model_max_len=16384) == []
    assert check_against_model(config, model_max_len=None) == []
    (error,) = check_against_model(config, model_max_len=8200)
    assert error.exit_code == 3
    assert render(error) == [
        "error: max_model_len is larger than max_position_embeddings of model: expected at most 8200, found 16384.",
        "hint: set max_model_len: 8192",
    ]


def test_compiler_arguments_of_the_user_s_own_are_taken() -> None:
    assert sentences(backend={"name": "neuron", "compiler_args": ["--verbose=35"]}) == []


def test_compiler_arguments_may_not_undo_the_build_s() -> None:
    sentence, hint = sentences(backend={"name": "neuron", "compiler_args": ["--verbose=35", "--target=trn1"]})
    assert sentence.startswith("error: A compiler argument is one that the build sets itself: expected arguments other")
    assert sentence.endswith("found --target=trn1 in backend.compiler_args.")
    assert "remove it" in hint
