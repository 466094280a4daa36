"""`eagle3-run export-config`: the arguments with which vLLM serves what a bundle was built for.

A bundle knows its models, lengths, ranks and buckets; a server that is told the same compiles the same set of shapes.
What a bundle cannot know is said and not invented.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import click

from runtime.bundle.manifest import Manifest
from runtime.bundle.open import read_manifest
from runtime.bundle.schedule import KEY

# vLLM Neuron: buckets of decode contexts ascend in multiples of this, below max_model_len
CONTEXT_STEP = 128
RANDOM = "random weights"
EPILOG = """\b
Examples:
  eagle3-run export-config --for vllm --bundle artifacts/llama8b
  eagle3-run export-config --for vllm --bundle artifacts/llama8b --json
"""


@click.command("export-config", epilog=EPILOG, short_help="Print the arguments of a server that match a bundle.")
@click.option("--for", "server", type=click.Choice(["vllm"]), required=True, help="The server.")
@click.option(
    "--bundle", required=True, type=click.Path(path_type=Path), metavar="DIR", help="The folder that eagle3-build made."
)
@click.option("--json", "as_json", is_flag=True, help="The keyword arguments of vllm.LLM as one JSON object.")
def export_config(server: str, bundle: Path, as_json: bool) -> int:
    """Print the arguments with which vLLM serves the models of a bundle in the same shapes.

    A `vllm serve` command goes to standard output, what the bundle cannot tell to standard error.
    """
    manifest = read_manifest(bundle)
    arguments, notes = vllm_arguments(manifest)
    click.echo(json.dumps(arguments) if as_json else command_line(arguments))
    for note in notes:
        click.echo(f"note: {note}", err=True)
    return 0


def vllm_arguments(manifest: Manifest) -> tuple[dict[str, Any], list[str]]:
    """The keyword arguments of vllm.LLM, and what they leave open, a sentence each without a full stop."""
    buckets, limits, notes = manifest.buckets, manifest.limits, []
    neuron: dict[str, Any] = {}
    if manifest.sampling != "logits":
        neuron["on_device_sampling_config"] = {"all_greedy": manifest.sampling == "greedy"}
    if manifest.requires.backend == "neuron":
        neuron["num_batched_tokens_buckets"] = list(buckets.prefill_tokens)
        neuron["num_seqs_buckets"] = list(buckets.num_seqs)
        contexts = [size for size in buckets.context_tokens if size < limits.max_model_len]
        fitting = [size for size in contexts if size % CONTEXT_STEP == 0]
        if fitting:
            neuron["decode_context_length_buckets"] = fitting
        if fitting != contexts:
            left = ", ".join(str(size) for size in contexts if size not in fitting)
            notes.append(f"context buckets {left} are left out: vLLM Neuron takes multiples of {CONTEXT_STEP} alone")
    for role, model in (("target", manifest.target), ("draft", manifest.draft)):
        if model.reference == RANDOM:
            notes.append(f"the {role} has random weights, so there is no model to name; MODEL stands for it")
        elif "/" not in model.reference:
            notes.append(f"the {role} was a local file or folder, of which the bundle keeps the last part of its name")
    if _source(manifest, "aux_layers") == "override":
        layers = ", ".join(map(str, manifest.speculation.aux_layers))
        notes.append(
            f"the build was told the auxiliary layers ({layers}); vLLM reads them from the draft's config.json"
        )
    arguments: dict[str, Any] = {
        "model": _named(manifest.target.reference),
        "tensor_parallel_size": manifest.requires.ranks,
        "dtype": manifest.dtype,
        "max_model_len": limits.max_model_len,
        "max_num_seqs": limits.max_num_seqs,
        "max_num_batched_tokens": buckets.prefill_tokens[-1],
        "block_size": manifest.kv_cache.block_size,
        "speculative_config": {
            "method": manifest.speculation.method,
            "model": _named(manifest.draft.reference),
            "num_speculative_tokens": manifest.speculation.num_speculative_tokens,
        },
    }
    if manifest.speculation.schedule is not None:
        arguments["speculative_config"][KEY] = manifest.speculation.schedule.to_json()
    if neuron:
        arguments["additional_config"] = {"neuron_config": neuron}
    return arguments, notes


def command_line(arguments: dict[str, Any]) -> str:
    """The same as a `vllm serve` command."""
    words = ["vllm", "serve", str(arguments["model"])]
    for name, value in arguments.items():
        if name != "model":
            words += [f"--{name.replace('_', '-')}", json.dumps(value) if isinstance(value, dict) else str(value)]
    return shlex.join(words)


def _named(reference: str) -> str:
    return "MODEL" if reference == RANDOM else reference


def _source(manifest: Manifest, field: str) -> str:
    sources = manifest.draft.config.get("sources", {})
    return str(sources.get(field, "")) if isinstance(sources, dict) else ""
