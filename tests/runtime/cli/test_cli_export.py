"""export-config: the arguments of a server that match a bundle, and what a bundle cannot tell."""

from __future__ import annotations

import dataclasses
import json
import shlex
from pathlib import Path

import pytest

from runtime.bundle.manifest import Buckets, Manifest, Model, TensorSpec
from runtime.cli import main
from runtime.export import command_line, vllm_arguments
from tests.runtime.loop.rig import Shape, make_rig


def manifest(**changes: object) -> Manifest:
    """A Neuron bundle over eight ranks, by name and shape of the 8B model."""
    toy = make_rig().manifest
    return dataclasses.replace(
        toy,
        target=dataclasses.replace(toy.target, reference="meta-llama/Llama-3.1-8B-Instruct"),
        draft=dataclasses.replace(toy.draft, reference="yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"),
        limits=dataclasses.replace(toy.limits, max_model_len=2048),
        buckets=Buckets((128, 512), (1, 4), (512, 2048)),
        requires=dataclasses.replace(toy.requires, backend="neuron", device="trn2", ranks=8, lnc=2),
        **changes,  # type: ignore[arg-type]
    )


def test_the_arguments_are_the_bundle_s() -> None:
    arguments, notes = vllm_arguments(manifest())
    assert notes == []
    assert arguments["model"] == "meta-llama/Llama-3.1-8B-Instruct"
    assert arguments["tensor_parallel_size"] == 8
    assert (arguments["max_model_len"], arguments["max_num_batched_tokens"]) == (2048, 512)
    assert arguments["speculative_config"] == {
        "method": "eagle3",
        "model": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B",
        "num_speculative_tokens": 3,
    }
    assert arguments["additional_config"]["neuron_config"] == {
        "on_device_sampling_config": {"all_greedy": True},
        "num_batched_tokens_buckets": [128, 512],
        "num_seqs_buckets": [1, 4],
        "decode_context_length_buckets": [512],
    }


def test_a_schedule_goes_along() -> None:
    speculation = dataclasses.replace(
        make_rig().manifest.speculation, num_speculative_tokens_per_batch_size=((1, 2, 3), (3, 4, 1))
    )
    arguments, _ = vllm_arguments(manifest(speculation=speculation))
    assert arguments["speculative_config"]["num_speculative_tokens_per_batch_size"] == [[1, 2, 3], [3, 4, 1]]


def test_the_command_line_reads_back() -> None:
    arguments, _ = vllm_arguments(manifest())
    words = shlex.split(command_line(arguments))
    assert words[:3] == ["vllm", "serve", "meta-llama/Llama-3.1-8B-Instruct"]
    pairs = dict(zip(words[3::2], words[4::2], strict=True))
    assert pairs["--tensor-parallel-size"] == "8"
    assert json.loads(pairs["--speculative-config"]) == arguments["speculative_config"]
    assert json.loads(pairs["--additional-config"]) == arguments["additional_config"]


def test_graphs_with_logits_ask_for_no_sampling_on_the_device() -> None:
    toy = manifest()
    graph = toy.graphs[0]
    with_logits = dataclasses.replace(graph, outputs=(*graph.outputs, TensorSpec("logits", "float32", (1, 4))))
    arguments, _ = vllm_arguments(dataclasses.replace(toy, graphs=(with_logits, *toy.graphs[1:])))
    assert "on_device_sampling_config" not in arguments["additional_config"]["neuron_config"]


def test_graphs_that_draw_tokens_ask_for_more_than_greedy_sampling() -> None:
    toy = manifest()
    sampled = dataclasses.replace(toy, graphs=make_rig(Shape(sampled=True)).manifest.graphs)
    arguments, _ = vllm_arguments(sampled)
    assert arguments["additional_config"]["neuron_config"]["on_device_sampling_config"] == {"all_greedy": False}


@pytest.mark.parametrize(
    ("reference", "model", "said"),
    [
        ("random weights", "MODEL", "the target has random weights"),
        ("llama-folder", "llama-folder", "the target was a local file or folder"),
    ],
)
def test_what_a_bundle_cannot_tell_is_said(reference: str, model: str, said: str) -> None:
    named = manifest()
    target: Model = dataclasses.replace(named.target, reference=reference)
    arguments, notes = vllm_arguments(dataclasses.replace(named, target=target))
    assert arguments["model"] == model
    assert any(note.startswith(said) for note in notes)


def test_contexts_that_vllm_does_not_take_are_left_out_and_named() -> None:
    arguments, notes = vllm_arguments(
        dataclasses.replace(manifest(), buckets=Buckets((128,), (1,), (64, 200, 256, 2048)))
    )
    assert arguments["additional_config"]["neuron_config"]["decode_context_length_buckets"] == [256]
    assert any("64, 200 are left out" in note for note in notes)


def test_another_server_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export-config", "--for", "tgi", "--bundle", str(tmp_path)]) == 2
    assert "vllm" in capsys.readouterr().err


def test_buckets_within_a_context() -> None:
    """A chunk of the third bucket has more than 512 rows, and its last row sees them all."""
    buckets = Buckets((128, 512, 2048), (1,), (512, 2048))
    assert buckets.prefill_within(512) == (128, 512)
    assert buckets.prefill_within(2048) == (128, 512, 2048)
    assert Buckets((32,), (1,), (16, 64)).prefill_within(16) == (32,)
